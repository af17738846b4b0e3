"""``perdure why``: why it failed, with the lines that show it, and whether a retry would help."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, ClassVar, Literal

import typer

from perdure.cli.default_command import DefaultCommand, OldValue
from perdure.cli.options import AsJson, ConfigFile, StateDir, Wide, load_settings, service
from perdure.cli.progress import progress
from perdure.cli.text import plain
from perdure.errors import InputError, LogRefused, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.cli.diagnosis import Diagnosis
    from perdure.cli.logs import GivenLog, Tell
    from perdure.service.settings import Settings
    from perdure.triage.evidence.goodrun import GoodRun
    from perdure.triage.text.logtext import LogText

Label = Literal["transient", "deterministic", "none"]
BAD_INPUT = 2
EXIT_CODES = {"stop": 1, "probe": 3}
JOB_LETTERS = frozenset("0123456789_+.")
_STEP = re.compile(r"(\d+(?:[_+]\d+)?)\.(?:\d+|batch|extern|interactive)")


Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="LOG|JOBID", help="Log files, directories of one file a rank, -, or job ids."),
]
Good = Annotated[
    str | None,
    typer.Option(metavar="LOG", help="The log of the job's last good run: what it says as well is not a failure."),
]


class WhyCommands(DefaultCommand):
    """`explain` is meant where no command is named."""

    default = "explain"
    older: ClassVar[Mapping[str, tuple[str, OldValue]]] = {
        "--batch": ("batch", OldValue.FIRST),
        "--follow": ("follow", OldValue.FIRST),
        "--ranks": ("ranks", OldValue.FIRST),
        "--report": ("report", OldValue.FIRST),
        "--excerpt": ("excerpt", OldValue.NONE),
        "--correct": ("correct", OldValue.LAST),
    }


app = typer.Typer(cls=WhyCommands)


@app.callback()
def why() -> None:
    """Say why a job failed, show the lines that prove it, and advise: retry, stop, or one probing retry.

    perdure why LOG and perdure why JOBID explain one failure; the commands below judge many, follow a log, or correct.

    Exit codes: 0 a retry is advised, 1 stop, 2 usage or bad input, 3 probe.
    """


@app.command("explain")
def explain(
    targets: Targets = None,
    good: Good = None,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Explain failures by their logs, or by what the service knows of their jobs.

    A log needs no running service: a file, compressed or not, a directory with a file for each rank, or - for standard
    input. A job id (4711, 4711_3) asks the service, also by the name of a step (4711.0).

    \b
    Exit codes:
      0  a retry is advised for each, or nothing has failed
      1  stop: at least one would fail again, and needs a person
      2  usage or bad input, as what is empty or no text; of several logs the others are judged
      3  probe: none is to be stopped, and at least one gets one retry
    """
    settings, good_run, targets = _given(targets, good, state, config)
    return _explain_all(targets, lambda target: _explain(target, settings, good_run, as_json, wide=wide))


@app.command("excerpt")
def excerpt(targets: Targets = None, good: Good = None, state: StateDir = None, config: ConfigFile = None) -> int:
    """Print the end of each log as it is judged, and judge nothing.

    Exit codes: 0 printed, 2 usage or bad input.
    """
    settings, good_run, targets = _given(targets, good, state, config)
    for target in targets:
        _print_excerpt(_read(target, settings).text, settings, good_run)
    return 0


@app.command("batch")
def batch(
    records: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help='Records {"id", "text"}; - is standard input.')],
    as_json: AsJson = False,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Judge each record of a file, a line each.

    Exit codes: 0 all records were judged, 2 usage or bad input.
    """
    _judge_batch(records, _settings(state, config), as_json)
    return 0


@app.command("follow")
def follow(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The log of a job that runs.")],
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on where FILE says, and write there where it stopped.")
    ] = None,
    for_s: Annotated[float | None, typer.Option("--for", metavar="SECONDS", min=0, help="Stop after SECONDS.")] = None,
    as_json: AsJson = False,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Follow a running job's log; report hangs, NaN losses and storms of errors.

    Exit codes: 0 no trouble, 1 trouble, 2 usage or bad input.
    """
    from perdure.cli.diagnosis import rules_of
    from perdure.cli.follow import follow as follow_log

    matcher = rules_of(_settings(state, config)).matcher()
    return follow_log(log, matcher, resume=resume, for_s=for_s, as_json=as_json)


@app.command("ranks")
def ranks(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[DIR|JOBID]", help="What ranks left: flight recorder dumps, stacks, NCCL RAS; or a running job."
        ),
    ] = "",
    ras: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Ask the NCCL RAS of a running program, mostly localhost:28028.")
    ] = "",
    as_json: AsJson = False,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Name the rank that stopped first, of a program that stands still.

    A job is looked for in .perdure below this directory, where perdure exec keeps heartbeats and dumps.

    Exit codes: 1 a rank stopped first, 2 usage or bad input, 3 none is named.
    """
    from perdure.cli.hang import explain_hang

    if not target and not ras:
        raise InputError("why ranks", "give a folder, a job id or --ras HOST:PORT", "See perdure why ranks --help")
    return explain_hang(target, ras, lambda: _settings(state, config), as_json)


@app.command("report")
def report(
    site: Annotated[Path, typer.Argument(metavar="SACCT|DIR", help="sacct's output, or a directory of logs.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw pictures into this folder.")] = None,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Count a site's failures by their reasons.

    Exit codes: 0 counted, 2 usage or bad input.
    """
    from perdure.cli.diagnosis import rules_of
    from perdure.cli.survey import report as report_on

    return report_on(site, rules_of(_settings(state, config)), out, as_json, wide=wide)


@app.command("correct")
def correct(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="The job that failed.")],
    label: Annotated[Label, typer.Argument(metavar="transient|deterministic|none", help="none takes it back.")],
    attempt: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Not the latest failure, but this attempt's.")
    ] = None,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Say what the failure of a job was, where the verdict is wrong; the model learns from it.

    Exit codes: 0 noted, 2 usage, or no service.
    """
    from perdure.cli.job import correct_job

    job = _job_of(job)
    if _is_log(job):
        raise InputError("why correct", "it is about one job", "Write perdure why correct JOBID transient")
    correct_job(job, label, attempt, service(_settings(state, config).service.state))
    return 0


def _settings(state: Path | None, config: Path | None) -> Settings:
    return load_settings(config, {"service.state": state}).settings


def _given(
    targets: list[str] | None, good: str | None, state: Path | None, config: Path | None
) -> tuple[Settings, GoodRun | None, list[str]]:
    if not targets:
        raise InputError("why", "give log files or job ids", "See perdure why --help")
    settings = _settings(state, config)
    return settings, _good_run(good, settings), [_job_of(target) for target in targets]


def _explain_all(targets: Sequence[str], explain: Callable[[str], Diagnosis | None]) -> int:
    """Explain each; of several, one that is no log, or whose job is not known, is said and passed over."""
    if len(targets) == 1:
        return exit_code([explain(targets[0])])
    found: list[Diagnosis | None] = []
    for target in targets:
        try:
            found.append(explain(target))
        except (InputError, LogRefused, NotFound) as err:
            typer.echo(f"perdure: {plain(str(err))}", err=True)
    if passed_over := len(targets) - len(found):
        typer.echo(f"perdure: {passed_over} of {len(targets)} were not judged.", err=True)
    return BAD_INPUT if passed_over else exit_code(found)


def exit_code(diagnoses: list[Diagnosis | None]) -> int:
    """Of what was advised, the least hopeful."""
    kinds = {str(each.decision.kind) for each in diagnoses if each is not None and each.has_failed}
    return next((code for kind, code in EXIT_CODES.items() if kind in kinds), 0)


def _read(target: str, settings: Settings, tell: Tell | None = None) -> GivenLog:
    from perdure.cli.diagnosis import rules_of
    from perdure.cli.logs import read_log

    given = read_log(target, rules_of(settings).matcher(), tell=tell)
    if given.note:
        typer.echo(f"perdure: {plain(given.note)}.", err=True)
    return given


def _good_run(good: str | None, settings: Settings) -> GoodRun | None:
    from perdure.triage.evidence.goodrun import GoodRun

    return GoodRun.of(_read(good, settings).text) if good is not None else None


def _print_excerpt(text: LogText, settings: Settings, good: GoodRun | None) -> None:
    """Print the lines that are left of a log, each with its number, and how often and from which ranks it came."""
    from perdure.cli.diagnosis import rules_of
    from perdure.cli.output import print_line
    from perdure.triage.evidence.excerpt import excerpt as excerpt_of
    from perdure.triage.evidence.excerpt import last_block
    from perdure.triage.evidence.ranks import merged

    hits = last_block(merged(rules_of(settings).hits(text)).hits)
    for line in excerpt_of(text, hits, good).lines:
        print_line(f"{line.number:>9}  {line.told}", whole=True)


def _explain(target: str, settings: Settings, good: GoodRun | None, as_json: bool, *, wide: bool) -> Diagnosis | None:
    """Print one diagnosis; None where nothing has failed."""
    if not _is_log(target):
        from perdure.cli.job import explain_job

        return explain_job(target, service(settings.service.state), as_json, wide=wide)
    from perdure.cli.diagnosis import diagnoser, record

    with progress(what="reading the log", unit="MiB") as tell:
        given = _read(target, settings, tell)
        found = diagnoser(settings, good)(target, given.text)
    if given.odd and not found.verdict.evidence:
        from perdure.cli.logs import NAME_THE_LOG

        raise InputError(target, given.odd, NAME_THE_LOG)
    if as_json:
        said = {**record(found), "by_service": str(found.by_service or found.decision.kind), "schema": "perdure.why/1"}
        sys.stdout.write(json.dumps(said) + "\n")
    else:
        from perdure.cli.card import print_card

        print_card(found)
    return found


def _job_of(target: str) -> str:
    """Of a step that Slurm's words name (4711.0, 4711.batch) the job; else what was given."""
    step = _STEP.fullmatch(target)
    return step[1] if step is not None and not os.path.exists(target) else target


def _is_log(target: str) -> bool:
    """What names a file is one; of the rest, what looks like a job's id is not."""
    return target == "-" or os.path.exists(target) or not set(target) <= JOB_LETTERS


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
                print_line(
                    f"{name}: {why.label}, p = {why.p_transient:.2f}, {why.category}: {why.quoted or why.summary}"
                )
            sys.stdout.flush()


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    if str(path) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return path.open("rb")
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", "Name a file of JSON lines") from err
