"""``perdure whatif``: what other policies would have done to the waiting times, the use and the waste of a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.options import AsJson, Wide
from perdure.cli.trace import CLUSTER_HELP, SkipBad, TraceFormat
from perdure.errors import ConfigError, InputError

if TYPE_CHECKING:
    from perdure.cli.comparison import ComparisonOptions
    from perdure.scheduling.policies import PolicyOptions
    from perdure.simulation.restart_cost import RestartCost
    from perdure.simulation.sweep import SweepExecutor

_OF_ELASTIC = ("traces", "profiles", "policy", "cluster", "retry", "wide", "as_json")
_OF_AGAIN = ("again", "replay_error", "jobs_out", "out", "workers", "wide", "as_json")
_OF_STUDIES = ("study", "policy", "cluster", "load", "seeds", "workers", "wide", "as_json")

Traces = Annotated[
    list[Path] | None, typer.Argument(metavar="TRACE", help="Traces of any known form.", show_default=False)
]
ClusterSpec = Annotated[str | None, typer.Option("--cluster", metavar="SPEC|FILE", help=CLUSTER_HELP)]
Policies = Annotated[
    str | None, typer.Option("--policy", metavar="POLICY,...", help="Policies, or one of your own: mine.py:MyPolicy.")
]
Placement = Annotated[
    str, typer.Option("--placement", metavar="PLACEMENT", help="How gangs find nodes; count: GPUs are only counted.")
]
Retries = Annotated[
    str,
    typer.Option("--retry", metavar="RETRY,...", help="never, always:K, oracle, predicted:TPR,FPR, service:TPR,FPR."),
]
Failures = Annotated[
    str,
    typer.Option("--failures", metavar="M", help="What fails: none, recorded, philly, nodes, or philly+nodes."),
]
Load = Annotated[
    str | None,
    typer.Option("--load", metavar="X", help="Rescale arrivals: the offered load is this fraction of GPU capacity."),
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", metavar="N", min=1, max=10_000, help="Run each case with N seeds; 1 if not given."),
]
PreemptionCost = Annotated[
    str | None,
    typer.Option(
        "--preemption-cost",
        metavar="S|GPUS:S,...,S",
        help="Seconds that a preempted job restarts for, by its GPUs; 1:7,8:30,60 if not given, 0 with --compat.",
    ),
]
Compat = Annotated[
    str | None,
    typer.Option("--compat", metavar="tiresias", help="Follow that simulator to the second, its oddities included."),
]
QueueLimits = Annotated[
    str | None,
    typer.Option("--queue-limits", metavar="S,S", help="Service at which las, las-2d and gittins-2d demote a job."),
]
GittinsSamples = Annotated[
    Path | None,
    typer.Option("--gittins-samples", metavar="FILE", help="GPU-seconds of past jobs, one a line, for gittins-2d."),
]
Quotas = Annotated[
    str | None,
    typer.Option(
        "--vc-quota", metavar="VC=N,...|FILE", help="GPUs of each virtual cluster; by demand in the trace if not given."
    ),
]
JobsOut = Annotated[
    Path | None, typer.Option("--jobs-out", metavar="FILE", help="Write each job's start and end; .csv or .parquet.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write a page with pictures, and the pictures, into this folder."),
]
Workers = Annotated[
    str | None,
    typer.Option(
        "--workers", metavar="N|ADDRESS", help="Processes, dask://HOST:PORT, or slurm:JOBS; a few if not given."
    ),
]
SlurmConf = Annotated[
    Path | None,
    typer.Option(
        "--slurm-conf", metavar="FILE", help="For slurm: this site's slurm.conf; its nodes without --cluster."
    ),
]
ReplayErrors = Annotated[
    bool, typer.Option("--replay-error", help="Hold the waits of each run against those that the trace recorded.")
]
Profiles = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        help="Measured steps of applications: jobs name one, and have work in place of a time.",
    ),
]
Again = Annotated[
    Path | None,
    typer.Option(
        "--again", metavar="FILE", help="Make the comparison of a figures.json again, if no input has changed."
    ),
]
Study = Annotated[
    str | None,
    typer.Option("--study", hidden=True, help="As it was spelt before `perdure study retry` and `delay`."),
]


def whatif(
    context: typer.Context,
    traces: Traces = None,
    cluster: ClusterSpec = None,
    policy: Policies = None,
    placement: Placement = "count",
    retry: Retries = "recorded",
    failures: Failures = "recorded",
    load: Load = None,
    seeds: Seeds = None,
    preemption_cost: PreemptionCost = None,
    compat: Compat = None,
    queue_limits: QueueLimits = None,
    gittins_samples: GittinsSamples = None,
    vc_quota: Quotas = None,
    slurm_conf: SlurmConf = None,
    replay_error: ReplayErrors = False,
    format: TraceFormat = None,
    skip_bad: SkipBad = False,
    jobs_out: JobsOut = None,
    out: Out = None,
    workers: Workers = None,
    profiles: Profiles = None,
    study: Study = None,
    again: Again = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Replay traces on a cluster under scheduling policies, and compare the results.

    \b
    Exit codes:
      0  all runs are done
      2  usage or bad input
    """
    if again is not None:
        from perdure.cli.comparison import compare

        _must_concern(_OF_AGAIN, context, "--again", "with --again there is")
        compare(_asked(_words_of(again), replay_error, jobs_out, out, workers), as_json, wide=wide)
        return 0
    policies = [] if policy is None else names_of("--policy", policy)
    loads = [] if load is None else loads_of(load)
    if study is not None and not traces:
        from perdure.cli.study_replays import run_study

        _must_concern(_OF_STUDIES, context, f"--study {study}", "a study takes")
        return run_study(study, loads, seeds, policies, cluster, workers, as_json, wide=wide)
    if profiles is not None and study is None and traces and cluster and policies:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: threads that wait cost five times the time
        from perdure.cli.elastic import compare_elastic

        _must_concern(_OF_ELASTIC, context, "--profiles", "with --profiles there is")
        return compare_elastic(traces, profiles, cluster, policies, retry, as_json, wide=wide)
    if study is not None or not traces or not (cluster or slurm_conf) or not policies or len(loads) > 1:
        raise InputError(
            "whatif", _misgiven(traces, cluster or slurm_conf, policies, loads, study), "See perdure whatif -h"
        )
    from perdure.cli.comparison import compare

    words = {
        "traces": traces, "cluster": cluster, "policy": policy, "placement": placement, "retry": retry,
        "failures": failures, "load": load, "seeds": seeds, "preemption_cost": preemption_cost, "compat": compat,
        "queue_limits": queue_limits, "gittins_samples": gittins_samples, "vc_quota": vc_quota,
        "slurm_conf": slurm_conf, "format": format, "skip_bad": skip_bad,
    }  # fmt: skip
    plain = {name: _plain(value) for name, value in words.items()}
    compare(_asked(plain, replay_error, jobs_out, out, workers), as_json, wide=wide)
    return 0


def _words_of(again: Path) -> Mapping[str, Any]:
    """The options in a manifest. Raises `InputError`, too for a policy that is code: nobody said that it may run."""
    from perdure.simulation.manifest import read_manifest
    from perdure.simulation.policy_file import is_policy_file

    words = read_manifest(again)
    if any(map(is_policy_file, names_of("--policy", words["policy"]))):
        what = f"it asks for a policy that is code ({words['policy']})"
        raise InputError(str(again), what, "Look at that file, and give the command that stands in the manifest")
    return words


def _plain(value: Any) -> Any:
    """An option's value as JSON holds it."""
    if isinstance(value, list):
        return [str(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _asked(
    words: Mapping[str, Any], replay_error: bool, jobs_out: Path | None, out: Path | None, workers: str | None
) -> ComparisonOptions:
    """A comparison in the words of its options, as the command line or a manifest has them."""
    from perdure.cli.comparison import ComparisonOptions

    told = {name: value for name, value in words.items() if value is not None}
    files = {name: Path(told[name]) if name in told else None for name in ("gittins_samples", "slurm_conf")}
    return ComparisonOptions(
        [Path(trace) for trace in told["traces"]],
        told.get("cluster"),
        names_of("--policy", told["policy"]),
        names_of("--retry", told["retry"]),
        told.get("seeds", 1),
        told["placement"],
        told["failures"],
        loads_of(told["load"])[0] if "load" in told else None,
        _options(told.get("compat"), told.get("queue_limits"), files["gittins_samples"], told.get("vc_quota")),
        told.get("format"),
        told["skip_bad"],
        jobs_out,
        out,
        _executor(workers),
        files["slurm_conf"],
        replay_error,
        _cost(told.get("preemption_cost"), told.get("compat")),
        told,
    )


def _misgiven(traces: object, cluster: object, policies: object, loads: list[float], study: str | None) -> str:
    """What is missing, or too much."""
    if study is not None:
        return "--study is asked for without a trace"
    needed = {"a trace": traces, "--cluster (or --slurm-conf)": cluster, "--policy": policies}
    missing = [name for name, given in needed.items() if not given]
    return f"give {' and '.join(missing)}" if missing else f"{len(loads)} loads, and at most one --load is taken"


def _must_concern(known: Sequence[str], context: typer.Context, where: str, what: str) -> None:
    """Raises `ConfigError` for an option that would be ignored."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in known and source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(where, f"{what} no {option}", f"Omit {option}")


def names_of(option: str, text: str) -> list[str]:
    """The names of "fifo,srtf" or "never,predicted:0.9,0.1": a number belongs to the name before it."""
    names: list[str] = []
    for word in map(str.strip, text.split(",")):
        if names and word.replace(".", "", 1).isdecimal():
            names[-1] += f",{word}"
        else:
            names.append(word)
    if not all(names) or len(set(names)) < len(names):
        raise InputError(option, f"{text!r} has an empty name, or one twice", "Write it like fifo,srtf,las-2d")
    return names


def loads_of(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"--load {text!r}", "not a number", "Write it like 0.8") from None


def _options(
    compat: str | None, queue_limits: str | None, gittins_samples: Path | None, vc_quota: str | None
) -> PolicyOptions:
    from perdure.cli.simulated import numbers, quotas, samples
    from perdure.scheduling.las import QUEUE_LIMITS
    from perdure.scheduling.policies import PolicyOptions

    if compat not in (None, "tiresias"):
        raise ConfigError(f"--compat {compat!r}", "no simulator of that name is followed", "Use tiresias")
    return PolicyOptions(
        queue_limits=QUEUE_LIMITS if queue_limits is None else numbers("--queue-limits", queue_limits),
        gittins_samples=() if gittins_samples is None else samples(gittins_samples),
        quotas={} if vc_quota is None else quotas(vc_quota),
        compat="tiresias" if compat else None,
    )


def _cost(text: str | None, compat: str | None) -> RestartCost:
    from perdure.simulation.restart_cost import FREE, PUBLISHED, restart_cost

    if text is not None:
        return restart_cost(text)
    return FREE if compat else PUBLISHED


def _executor(workers: str | None) -> SweepExecutor | None:
    if workers is None:
        return None
    from perdure.cli.workers import executor_named

    return executor_named(workers)
