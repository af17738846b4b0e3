"""``perdure agent``: a node's own sign of life, and what is wrong with it."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.output import print_line
from perdure.errors import ConfigError

if TYPE_CHECKING:
    from perdure.job.agent import Agent
    from perdure.job.identity import Task
    from perdure.job.probes import Probing

ONCE_S = 70.0  # for all checks together; one that takes longer is reported as hanging


def agent(
    share: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of the agents, which the service reads; not for users.")
    ],
    node: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The resource manager's name of this node; else its host name."),
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="From one heartbeat to the next.")] = 3.0,
    fence: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Fence directory of jobs whose heartbeats are looked at.", show_default=False),
    ] = None,
    disk: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A directory that must be readable.", show_default=False),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CMD", help="A program that must end with 0, split as words; no shell.", show_default=False
        ),
    ] = None,
    check_every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="From one round of the checks to the next.")
    ] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, print what is wrong, and end.")] = False,
) -> int:
    """Write this node's heartbeat: that it is up, what is wrong with it, and which jobs run on it.

    Run one on each node, as a service of the site. It shuts down cleanly on TERM and INT.

    Exit codes: 0 ok, 1 with --once: something is wrong, 2 usage.
    """
    from perdure.job import probes
    from perdure.job.agent import Agent, Post, keep_looking
    from perdure.job.signals import until_told_to_end

    checks = [probes.memory(), *map(probes.disk, disk or []), *(probes.command(_words(text)) for text in check or [])]
    probing = probes.Probing(checks, check_every)
    watcher = Agent(Post(share, _task(node), every, tuple(fence or [])), probing)
    if once:
        return _once(watcher, probing)
    with until_told_to_end() as wait:
        keep_looking(watcher, every, wait)
    return 0


def _task(node: str | None) -> Task:
    from dataclasses import replace

    from perdure.job.identity import task_of

    task = task_of(os.environ)
    if node is None:
        return task
    if "/" in node or node in ("", ".", ".."):
        raise ConfigError("--node", f"{node[:80]!r} is not a name of a node", "Name it as the resource manager does")
    return replace(task, node=node)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as err:
        raise ConfigError("--check", f"{text[:80]!r}: {err}", "Close the quotation") from err
    if not words:
        raise ConfigError("--check", "it names no program", "Name one")
    return words


def _once(watcher: Agent, probing: Probing) -> int:
    """The problems are known once the checks have run: wait for them between two looks."""
    watcher.look(time.monotonic())
    probing.wait(ONCE_S)
    watcher.look(time.monotonic())
    watcher.end()
    for problem in watcher.problems:
        print_line(problem)
    return int(bool(watcher.problems))
