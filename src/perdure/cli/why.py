"""``perdure why``: why it failed, with the lines that show it, and whether a retry would help."""

from __future__ import annotations

import json
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

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
Batch = Annotated[
    Path | None,
    typer.Option(metavar="FILE.jsonl", help='Judge each record {"id", "text"} of this file; - is standard input.'),
]
Good = Annotated[
    str | None,
    typer.Option(metavar="LOG", help="The log of the job's last good run: what it says as well is not a failure."),
]
Excerpt = Annotated[bool, typer.Option("--excerpt", help="Print the end of each log as it is judged; judge nothing.")]
Follow = Annotated[
    Path | None,
    typer.Option(metavar="LOG", help="Follow a running job's log; report hangs, NaN losses and storms of errors."),
]
Resume = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --follow: go on where FILE says, and write there where it stopped."),
]
ForSeconds = Annotated[
    float | None, typer.Option("--for", metavar="SECONDS", min=0, help="With --follow: stop after SECONDS.")
]
Ranks = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Name the rank that stopped first: flight recorder dumps, stacks, NCCL RAS."),
]
Report = Annotated[
    Path | None,
    typer.Option(metavar="SACCT|DIR", help="Count a site's failures: sacct's output, or a directory of logs."),
]
Pictures = Annotated[Path | None, typer.Option(metavar="DIR", help="With --report: draw pictures into this folder.")]
Correct = Annotated[
    Label | None, typer.Option("--correct", help="Say what the failure of the job was; none takes it back.")
]
AttemptNumber = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="With --correct: not the latest failure, but this attempt's.")
]


def why(
    targets: Targets = None,
    batch: Batch = None,
    good: Good = None,
    excerpt: Excerpt = False,
    follow: Follow = None,
    resume: Resume = None,
    for_s: ForSeconds = None,
    ranks: Ranks = None,
    report: Report = None,
    out: Pictures = None,
    correct: Correct = None,
    attempt: AttemptNumber = None,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Say why a job failed, show the lines that prove it, and advise: retry, stop, or one probing retry.

    A log needs no running service: a file, compressed or not, a directory with a file for each rank, or - for standard
    input. A job id (4711, 4711_3) asks the service, also by the name of a step
    (4711.0).

    \b
    Exit codes:
      0  a retry is advised for each, or nothing has failed
         with --batch: all records were judged; with --follow: no trouble
      1  stop: at least one would fail again, and needs a person
         with --follow: trouble; with --ranks: a rank stopped first
      2  usage or bad input, as what is empty or no text; of several logs the others are judged
      3  probe: none is to be stopped, and at least one gets one retry
    """
    if sum(map(bool, (targets, batch, follow, ranks, report))) != 1:
        what = "give log files or job ids, or one of --batch FILE, --follow LOG, --ranks DIR, --report PATH"
        raise InputError("why", what, "See perdure why --help")
    if ranks is not None:
        from perdure.cli.hang import explain_hang

        return explain_hang(ranks, lambda: load_settings(config, {"service.state": state}).settings, as_json)
    settings = load_settings(config, {"service.state": state}).settings
    targets = [_job_of(target) for target in targets or ()]
    if attempt is not None and correct is None:
        raise InputError("why --attempt", "it goes with --correct alone", "Leave it out: every attempt is shown")
    if correct is not None:
        return _correct(targets, correct, attempt, settings)
    if report is not None:
        from perdure.cli.diagnosis import rules_of
        from perdure.cli.survey import report as report_on

        return report_on(report, rules_of(settings), out, as_json, wide=wide)
    if batch is not None:
        _judge_batch(batch, settings, as_json)
        return 0
    if follow is not None:
        from perdure.cli.diagnosis import rules_of
        from perdure.cli.follow import follow as follow_log

        return follow_log(follow, rules_of(settings).matcher(), resume=resume, for_s=for_s, as_json=as_json)
    good_run = _good_run(good, settings)
    if excerpt:
        for target in targets:
            _print_excerpt(_read(target, settings).text, settings, good_run)
        return 0
    return _explain_all(targets, lambda target: _explain(target, settings, good_run, as_json, wide=wide))


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


def _correct(targets: list[str], label: Label, attempt: int | None, settings: Settings) -> int:
    from perdure.cli.job import correct_job

    if len(targets) != 1 or _is_log(targets[0]):
        raise InputError("why --correct", "it is about one job", "Write perdure why JOBID --correct transient")
    correct_job(targets[0], label, attempt, service(settings.service.state))
    return 0


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
    from perdure.triage.evidence.excerpt import excerpt, last_block
    from perdure.triage.evidence.ranks import merged

    hits = last_block(merged(rules_of(settings).hits(text)).hits)
    for line in excerpt(text, hits, good).lines:
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
    return step[1] if step is not None and not Path(target).exists() else target


def _is_log(target: str) -> bool:
    """What names a file is one; of the rest, what looks like a job's id is not."""
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
