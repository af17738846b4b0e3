"""``perdure why``: why it failed, with the lines that show it, and whether a retry would help."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from perdure.cli.options import AsJson, ConfigFile, StateDir, load_settings, service
from perdure.cli.text import plain
from perdure.errors import InputError

if TYPE_CHECKING:
    from perdure.service.settings import Settings

JOB_LETTERS = frozenset("0123456789_+.")


def why(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOG|JOBID", help="Log files, directories of one file a rank, -, or job ids."),
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", help='Judge each record {"id", "text"} of this file; - is standard input.'),
    ] = None,
    as_json: AsJson = False,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Say why a job failed, show the lines that tell, and advise: retry, stop, or one probing retry.

    A log needs no running service: a file, compressed or not, a directory with a file for each rank, or - for standard
    input. A job id (4711, 4711_3) asks the service.

    \b
    Exit codes:
      0  a retry is the answer to each failure; with --batch: all records were judged
      1  a finding: at least one failure needs a person (stop), or one retry to learn more (probe)
      2  usage or bad input
    """
    if (batch is None) == (not targets):
        raise InputError("why", "give log files or job ids, or --batch FILE", "See perdure why --help")
    settings = load_settings(config, {"service.state": state}).settings
    if batch is not None:
        _judge_batch(batch, settings, as_json)
        return 0
    findings = [_explain(target, settings, as_json) for target in targets or ()]
    return int(any(findings))


def _explain(target: str, settings: Settings, as_json: bool) -> bool:
    """Print one diagnosis; True where it is a finding."""
    if not _is_log(target):
        from perdure.cli.job import explain_job

        return explain_job(target, service(settings.service.state), as_json)
    from perdure.cli.diagnosis import diagnoser, record, rules_of
    from perdure.cli.logs import read_log

    given = read_log(target, rules_of(settings).matcher())
    if given.note:
        typer.echo(f"perdure: {plain(given.note)}.", err=True)
    found = diagnoser(settings)(target, given.text)
    if as_json:
        sys.stdout.write(json.dumps({**record(found), "schema": "perdure.why/1"}) + "\n")
    else:
        from perdure.cli.card import print_card

        print_card(found)
    return found.is_finding


def _is_log(target: str) -> bool:
    """What names a file is one; of the rest, what looks like a job's id is none."""
    return target == "-" or Path(target).exists() or not set(target) <= JOB_LETTERS


def _judge_batch(path: Path, settings: Settings, as_json: bool) -> None:
    from perdure.cli.batch import read_batch
    from perdure.cli.diagnosis import diagnoser, record
    from perdure.cli.output import print_line

    diagnose = diagnoser(settings)
    with _opened(path) as file:
        for name, text in read_batch(file, str(path)):
            found = diagnose(name, text)
            if as_json:
                sys.stdout.write(json.dumps(record(found)) + "\n")
            else:
                why = found.verdict
                print_line(f"{name}: {why.label}, p = {why.p_transient:.2f}, {why.category}: {why.summary}")
            sys.stdout.flush()


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    if str(path) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return path.open("rb")
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", "Name a file of JSON lines") from err
