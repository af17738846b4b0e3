"""``perdure up``: run the service."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.backends.registry import BACKENDS
from perdure.cli.options import ConfigFile, StateDir, load_settings

if TYPE_CHECKING:
    from perdure.service.settings import Settings

Cluster = Annotated[
    str | None,
    typer.Option(
        help=f"{'; '.join(f'{name}: {kind.says}' for name, kind in BACKENDS.items())}.", metavar="|".join(BACKENDS)
    ),
]
Act = Annotated[
    bool | None,
    typer.Option(
        "--act/--shadow",
        help="Carry decisions out, or only say them. Not given: act on the embedded cluster, shadow on Slurm.",
        show_default=False,
    ),
]
Port = Annotated[int | None, typer.Option(help="Port of the dashboard and the API; 0 takes any free one.")]
Host = Annotated[str | None, typer.Option(help="Loopback address to listen on.", metavar="ADDRESS")]
Nodes = Annotated[int | None, typer.Option(help="Nodes of the embedded cluster.")]
Gpus = Annotated[int | None, typer.Option(help="Emulated GPUs of each of its nodes.")]
NoDemo = Annotated[bool, typer.Option("--no-demo", help="Without the demonstration workload.")]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        help="Scheduling policy for jobs that opted in: fifo, fjf, fewest-gpus, las, las-2d, gittins-2d.",
        metavar="NAME",
    ),
]
PolicyPartition = Annotated[
    list[str] | None, typer.Option(help="Jobs of this partition opt in; may be repeated.", metavar="NAME")
]
PolicyQos = Annotated[list[str] | None, typer.Option(help="Jobs of this QOS opt in; may be repeated.", metavar="NAME")]
Clusters = Annotated[
    Path | None,
    typer.Option(
        "--clusters", metavar="DIR", help="Share the clusters whose settings files (NAME.toml) are here with others."
    ),
]
Standby = Annotated[bool, typer.Option("--standby", help="Where another service has the journal, wait and take over.")]


def up(
    cluster: Cluster = None,
    act: Act = None,
    port: Port = None,
    host: Host = None,
    state: StateDir = None,
    nodes: Nodes = None,
    gpus: Gpus = None,
    no_demo: NoDemo = False,
    policy: PolicyName = None,
    policy_partition: PolicyPartition = None,
    policy_qos: PolicyQos = None,
    standby: Standby = False,
    clusters: Clusters = None,
    config: ConfigFile = None,
) -> int:
    """Watch a cluster, and show it on a page. Ctrl-C ends it.

    Exit codes: 0 stopped, 2 it could not start.
    """
    flags: dict[str, object] = {
        "service.cluster": cluster,
        "service.act": act,
        "service.port": port,
        "service.host": host,
        "service.state": state,
        "local.nodes": nodes,
        "local.gpus": gpus,
        "local.demo": False if no_demo else None,
        "policy.name": policy,
        "policy.partitions": tuple(policy_partition) if policy_partition else None,
        "policy.qos": tuple(policy_qos) if policy_qos else None,
        "service.standby": True if standby else None,
    }
    settings = load_settings(config, flags).settings
    try:
        with _ending_by(signal.SIGTERM, signal.SIGHUP):
            code = _run(settings, clusters)
    except KeyboardInterrupt:  # the way to end it, and no error
        code = 0
    given: dict[str, object] = {
        "--cluster": cluster,
        "--act": act is True,
        "--shadow": act is False,
        "--port": port,
        "--host": host,
        "--nodes": nodes,
        "--gpus": gpus,
        "--no-demo": no_demo,
        "--policy": policy,
        "--standby": standby,
        "--clusters": clusters,
        "--config": config,
    }
    typer.echo(parting(settings.service.state, given), err=True)
    return code


def _run(settings: Settings, clusters: Path | None) -> int:
    if clusters is not None:
        from perdure.service.runtime.controller import run_controller

        return run_controller(settings, clusters.absolute())
    from perdure.service.runtime.one_cluster import run

    return run(settings)


def parting(state: Path, given: Mapping[str, object]) -> str:
    """Where the state is kept, how to go on with it under the options given, and how to begin again."""
    from perdure.installation import program
    from perdure.service.settings import ServiceSettings

    of_state = [] if state == ServiceSettings().state else ["--state", str(state)]
    again = " ".join([program(), shlex.join(["up", *_words(given), *of_state])])
    kept = shlex.quote(str(state))
    return (
        f"perdure: ended; what it knows is kept in {kept}. Go on: {again}. "
        f"Begin again: mv {kept} {shlex.quote(f'{state}.old')}"
    )


def _words(given: Mapping[str, object]) -> Iterator[str]:
    """Options as a command line has them, without those that were not given."""
    for name, value in given.items():
        if value is None or value is False:
            continue
        yield name
        if value is not True:
            yield str(value)


@contextmanager
def _ending_by(*signums: int) -> Iterator[None]:
    """Inside the block these signals do what Ctrl-C does: everything is taken down in order."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = {signum: signal.signal(signum, end) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
