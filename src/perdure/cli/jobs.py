"""``perdure jobs`` and ``perdure submit``: what runs, waits and failed; one more job for the embedded cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from perdure.cli.options import AsJson, Limit, StateDir, Wide, service
from perdure.cli.output import clock, print_json, print_line, print_table
from perdure.cli.picture import header, picture_of, warn
from perdure.cli.table import Shortened, text, word
from perdure.cli.text import MAX_JOB_NAME, plain
from perdure.errors import InputError
from perdure.installation import user_name

COLUMNS = (
    word("JOB"), word("STATE"), word("USER", leave=3), word("GPUS", leave=6), word("SUBMITTED", leave=5),
    word("FAILURE", leave=2), word("DECISION", leave=1), text("NAME", leave=4),
)  # fmt: skip

MOST_NAMED = 5  # jobs in a line about what they wait for

Consent = Literal["none", "order", "preempt"]
Status = Literal["pending", "held", "running", "suspended", "completed", "failed", "cancelled"]


def jobs(
    status: Annotated[Status | None, typer.Option("--job-state", "--status", help="Only jobs in this state.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    limit: Limit = 50,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """List jobs, the latest first. Asks the service.

    Exit codes: 0 listed, 2 usage, or no service.
    """
    asked = service(state)
    picture, found = picture_of(asked), list(asked.pages("/jobs", limit, state=status, user=user))
    warn(picture)
    if as_json:
        print_json("jobs", 1, **header(picture), jobs=found)
        return 0
    if found:
        print_table(COLUMNS, map(_row, found), wide=wide)
        for line in _waits(found):
            print_line(line)
    else:
        print_line("No jobs." if status is None and user is None else "No such jobs.")
    return 0


def _row(job: dict[str, Any]) -> tuple[object, ...]:
    failure = job["failure"] or {"category": "", "decision": ""}
    return (
        job["job_id"],
        job["state"],
        job["user"],
        job["gpus"],
        clock(job["submit_s"]),
        failure["category"],
        failure["decision"],
        Shortened(job["name"], plain(job["name"], MAX_JOB_NAME)),
    )


def _waits(found: list[dict[str, Any]]) -> Iterator[str]:
    """What jobs wait for that wait for nodes out of service: a line for each reason, with the jobs' ids."""
    by_reason: dict[str, list[str]] = {}
    for job in found:
        if said := job.get("waits"):
            by_reason.setdefault(said, []).append(job["job_id"])
    for said, job_ids in by_reason.items():
        more = len(job_ids) - MOST_NAMED
        named = ", ".join(job_ids[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        yield f"{named} {said if len(job_ids) == 1 else said.replace('waits', 'wait', 1)}"


def submit(
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="The program and its arguments.")],
    name: Annotated[str, typer.Option(help="Name of the job; not given: the program's.")] = "",
    user: Annotated[str, typer.Option(help="Whose job it is; not given: yours.")] = "",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the gang; the program runs once on each.")] = 1,
    min_nodes: Annotated[int, typer.Option(min=0, help="Nodes that will do for a restart; 0: all of --nodes.")] = 0,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs on each node.")] = 0,
    time: Annotated[float | None, typer.Option(metavar="SECONDS", help="Walltime.")] = None,
    memory: Annotated[int | None, typer.Option(metavar="MIB", help="Memory of each process.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="NODE", help="Not on this node; repeatable.")] = None,
    no_requeue: Annotated[bool, typer.Option("--no-requeue", help="Never put it back into the queue.")] = False,
    signal: Annotated[
        str, typer.Option(metavar="SIG@SECONDS", help="Send SIG this many SECONDS before the walltime ends.")
    ] = "",
    policy: Annotated[
        Consent, typer.Option(help="What a scheduling policy may do: change its place, or also put it back.")
    ] = "none",
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Submit a job to the embedded cluster: perdure submit --gpus 1 -- python train.py. Prints its id.

    Exit codes: 0 submitted, 2 refused.
    """
    signal_name, before_s = _signal(signal)
    spec: dict[str, Any] = {
        "argv": command,
        "name": name,
        "user": user or user_name(),
        "node_count": nodes,
        "min_nodes": min_nodes,
        "gpus_per_node": gpus,
        "walltime_s": time,
        "memory_mib": memory,
        "exclude": exclude or [],
        "may_requeue": not no_requeue,
        "consent": policy,
        "signal": signal_name,
        "signal_before_s": before_s,
        "workdir": os.getcwd(),
    }
    answer = service(state).post("/jobs", spec)
    if as_json:
        print_json("submit", 1, **answer)
    else:
        print_line(answer["job_id"])
    return 0


def _signal(text: str) -> tuple[str, float]:
    if not text:
        return "", 0.0
    name, at, seconds = text.partition("@")
    if not (name and at and seconds.isdecimal()):
        raise InputError("--signal", f"{text!r} is not SIG@SECONDS", "Write it like USR1@60")
    return name, float(seconds)
