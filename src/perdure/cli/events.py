"""``perdure events`` and ``perdure raise``: exceptions on their way, and one more of them."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from perdure.cli.default_command import DefaultCommand, OldValue
from perdure.cli.options import AsJson, Limit, StateDir, Wide, service
from perdure.cli.output import clock, instant, print_json, print_line, print_table
from perdure.cli.picture import header, picture_of, warn
from perdure.cli.table import word
from perdure.errors import InputError, NotFound
from perdure.installation import program

if TYPE_CHECKING:
    from perdure.cli.service_client import Client

COLUMNS = (
    word("RAISED", leave=3), word("SEV", leave=6), word("TYPE"), word("STATE", leave=1), word("OWNER", leave=4),
    word("ABOUT"), word("TIMES", leave=7), word("ID", leave=5),
)  # fmt: skip
MAX_CONTEXT = 64 * 1024


class EventCommands(DefaultCommand):
    """`list` is meant where no command is named."""

    default = "list"
    older: ClassVar[Mapping[str, tuple[str, OldValue]]] = {
        "--follow": ("follow", OldValue.NONE),
        "--close": ("close", OldValue.LAST),
        "--replay": ("replay", OldValue.FIRST),
    }


app = typer.Typer(cls=EventCommands)
Kind = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only of this type and below.")]


@app.callback()
def events() -> None:
    """Show exceptions: who raised them, who was asked, who owns the recovery.

    perdure events lists them, perdure events JOB shows each step of the way.

    Exit codes: 0 listed, 1 a replay shows differences, 2 usage, or no service.
    """


@app.command("list")
def list_(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB|ID", help="Only of this job, or this exception by its id; each step of the way."),
    ] = None,
    kind: Kind = None,
    only_open: Annotated[bool, typer.Option("--open", help="Only those that need an answer, or a person.")] = False,
    limit: Limit = 50,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """List exceptions, or show those of a job or of an id step by step.

    Exit codes: 0 listed, 2 usage, or no service.
    """
    asked = service(state)
    found = list(asked.pages("/exceptions", limit, job_id=job, type=kind, open="true" if only_open else None))
    if job is not None and not found:
        found = _by_id(asked, job)
    picture = picture_of(asked)
    warn(picture)
    if as_json:
        print_json("exceptions", 1, **header(picture), exceptions=found)
    elif job is not None:
        _journeys(found[::-1])
        if not found:
            print_line(f"No exceptions of job {job}.")
    elif found:
        _table(found, wide=wide)
    else:
        print_line("No exceptions are open." if only_open else "No exceptions.")
    return 0


@app.command("follow")
def follow(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only of this job.")] = None,
    kind: Kind = None,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Show exceptions as they happen, until interrupted.

    Exit codes: 0 interrupted, 2 usage, or no service.
    """
    return _follow(job or "", kind or "", state, as_json=as_json)


@app.command("close")
def close(
    name: Annotated[str, typer.Argument(metavar="ID", help="The exception's id.")],
    note: Annotated[str, typer.Argument(metavar="NOTE", help="What was done.")],
    state: StateDir = None,
) -> int:
    """Close an exception that a person has dealt with.

    Exit codes: 0 closed, 2 refused, or no service.
    """
    from perdure.cli.service_client import segment

    service(state).post(f"/closings/{segment(name)}", {"note": note})
    print_line(f"{name}: closed.")
    return 0


@app.command("replay")
def replay(
    past: Annotated[Path, typer.Argument(metavar="FILE", help="What perdure events --json has printed.")],
    playbook: Annotated[Path | None, typer.Option(metavar="TOML", help="The playbook to try.")] = None,
    as_json: AsJson = False,
) -> int:
    """Try exceptions of the past again under a playbook, and show what it would have decided otherwise.

    Exit codes: 0 the same, 1 differences, 2 usage or bad input.
    """
    from perdure.cli.replay import compare

    return compare(past, playbook, as_json=as_json)


def _by_id(asked: Client, name: str) -> list[dict[str, Any]]:
    """The exception of that id, if it is one. Raises `NotFound` where it is neither that nor a job."""
    from perdure.cli.service_client import segment

    try:
        return [asked.get(f"/exceptions/{segment(name)}")]
    except NotFound:
        if "/" in name:  # no job's id
            raise
        asked.get(f"/jobs/{segment(name)}")
        return []


def _table(found: Iterable[dict[str, Any]], *, wide: bool) -> None:
    rows = (
        (
            clock(r["time"]),
            r["severity"],
            r["type"],
            r["outcome"] or r["state"],
            _owner(r),
            _about(r["subject"]),
            r["repeats"] + 1,
            r["id"],
        )
        for r in found
    )
    print_table(COLUMNS, rows, wide=wide)


def _journeys(found: Iterable[dict[str, Any]]) -> None:
    """Each exception with all that was said of it, in the order of time."""
    for record in found:
        print_line(f"{instant(record['time'])}  {record['type']}  severity {record['severity']}  {record['id']}")
        for time_s, text in _steps(record):
            print_line(f"  +{_after_s(record, time_s):8.1f} s  {text}")
        print_line(f"  now: {_stands(record)}")


def _stands(record: dict[str, Any]) -> str:
    """Its state, in the word of the table; what waits for a person says how to end that."""
    from perdure.coordination.record import CLOSED

    standing = str(record["outcome"] or record["state"])
    needs_a_person = standing == "escalated"
    close = f'{program()} events close {shlex.quote(record["id"])} "what you did"'
    closing = next((said for said in record["annotations"] if said["key"] == CLOSED), None)
    if closing is not None and standing == CLOSED:
        return f"closed by {closing['component']}: {closing['value']}"
    return f"{standing}; a person is needed, then: {close}" if needs_a_person else standing


def _after_s(record: dict[str, Any], time_s: float) -> float:
    """Seconds since the raising; not below 0, for the clock of who raised it may be ahead."""
    return max(0.0, float(time_s - record["time"]))


def _steps(record: dict[str, Any]) -> list[tuple[float, str]]:
    """What was said and when, the raising first."""
    raiser = record["detected_by"] or record["origin"]["component"]
    note = f": {record['note']}" if record["note"] else ""
    raised = (record["time"], f"raised by {raiser}{note}")
    steps = []
    for said in record["annotations"]:
        steps.append((said["time"], f"{said['component']} noted {said['key']}: {said['value']}"))
    for verdict in record["verdicts"]:
        who = f"{verdict['component']} ({verdict['handler']})" if verdict["handler"] else verdict["component"]
        does = f" -> {', '.join(verdict['actions'])}" if verdict["actions"] else ""
        steps.append((verdict["time"], f"{who} {verdict['verdict']}: {verdict['note']}{does}"))
    return [raised, *sorted(steps, key=lambda step: step[0])]


def _follow(job: str, kind: str, state: Path | None, *, as_json: bool) -> int:
    from perdure.client import Service, subscribe

    client = service(state)
    try:
        for event in subscribe(job=job, service=Service(client.url, client.token)):
            record = event["payload"]["record"]
            if kind and record["type"] != kind and not record["type"].startswith(f"{kind}."):
                continue
            if as_json:
                sys.stdout.write(json.dumps(record) + "\n")
            else:
                print_line(_one_line(event["time_s"], record))
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 0
    return 0


def _one_line(time_s: float, record: dict[str, Any]) -> str:
    owner = _owner(record)
    by = f" by {owner}" if owner else ""
    standing = record["outcome"] or record["state"]
    return f"{instant(time_s)}  {record['type']}  {_about(record['subject'])}  {standing}{by}  {record['id']}"


def _owner(record: dict[str, Any]) -> str:
    owning = (v for v in record["verdicts"] if v["verdict"] == "handled")
    verdict = next(owning, None)
    return "" if verdict is None else verdict["handler"] or verdict["component"]


def _about(subject: dict[str, Any]) -> str:
    parts = [f"job {subject['job']}" if subject["job"] else "", ",".join(subject["node"][:4]), subject["resource"]]
    return " ".join(filter(None, parts)) or f"cluster {subject['cluster']}"


def raise_(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="The job that it is about; not given: see --node, --resource.")
    ] = None,
    context: Annotated[
        list[str] | None, typer.Argument(metavar="[-- JSON]", help='More to know, such as {"rank": 262, "node": "n7"}.')
    ] = None,
    kind: Annotated[str, typer.Option("--type", metavar="TYPE", help="Dotted, like gpu.xid79 or app.nan.")] = "",
    severity: Annotated[int, typer.Option(help="0 is fatal, 7 the least.")] = 0,
    note: Annotated[str, typer.Option(help="In words.")] = "",
    node: Annotated[list[str] | None, typer.Option(metavar="NODE", help="A node that it is about; repeatable.")] = None,
    resource: Annotated[str, typer.Option(help="What jobs share, such as pfs:/scratch.")] = "",
    from_format: Annotated[
        str, typer.Option("--from", metavar="FORMAT", help="Read FILE (--file) as another program wrote it.")
    ] = "",
    file: Annotated[Path | None, typer.Option(help="With --from: the file; - is standard input.")] = None,
    exception_id: Annotated[
        str, typer.Option("--id", help="Exception id; raising it again under the same id is idempotent.")
    ] = "",
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Raise an exception: it is offered along the chain until one handler owns the recovery. Asks the service.

    Exit codes: 0 raised, 2 refused.
    """
    if from_format:
        from perdure.cli.bridge import raise_from

        return raise_from(from_format, file, job or "", state, as_json=as_json)
    from perdure.coordination.record import FATAL, LEAST

    if not FATAL <= severity <= LEAST:
        raise InputError("--severity", f"{severity} is not a severity", f"Use {FATAL} (fatal) to {LEAST} (lowest)")
    if not kind:
        raise InputError("--type", "is missing", "Name what it is, like --type gpu.xid79")
    if job is not None and job.startswith("{"):  # no job was given, so what follows -- took its place
        context = [job, *(context or [])]
        job = None
    more = _context(context or [])
    subject: dict[str, Any] = {"job": job or "", "node": node or [], "resource": resource}
    for name, many in (("node", True), ("rank", True), ("gpu", True), ("step", False), ("resource", False)):
        if name in more:
            value = more.pop(name)
            subject[name] = value if not many or isinstance(value, list) else [value]
    origin = {"component": "cli", "host": socket.gethostname(), "pid": os.getpid()}
    body = {"note": note, **more, "type": kind, "severity": severity, "subject": subject, "origin": origin}
    if exception_id:
        body["id"] = exception_id
    became = service(state).post("/exceptions", body)
    if as_json:
        print_json("raised", 1, **became)
    else:
        times = f", seen {became['repeats'] + 1} times" if became["repeats"] else ""
        reason = f": {became['reason']}" if became["reason"] else ""
        print_line(f"{became['id']}: {became['state']}{times}{reason}")
    return 0


def _context(words: list[str]) -> dict[str, Any]:
    """The JSON after ``--``."""
    if not words:
        return {}
    text = " ".join(words)
    try:
        found = json.loads(text[:MAX_CONTEXT])
    except (ValueError, RecursionError) as err:
        raise InputError("-- JSON", f"cannot be read: {err}", 'Write it like {"rank": 262}') from err
    if not isinstance(found, dict):
        raise InputError("-- JSON", "is not an object", 'Write it like {"rank": 262}')
    return found
