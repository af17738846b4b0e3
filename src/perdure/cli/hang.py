"""``perdure why ranks DIR|JOBID``: which rank of a hung program stopped first, from what the ranks left or say."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure.cli.output import paint, print_json, print_line
from perdure.errors import InputError
from perdure.hangs.collectives import named
from perdure.hangs.folder import Folder, read_folder
from perdure.hangs.job_folder import attempt_of, read_attempt
from perdure.hangs.ras_client import ask_ras
from perdure.hangs.report import LOGS, HangReport, Word, report_of

if TYPE_CHECKING:
    from perdure.service.settings import Settings

_JOB = re.compile(r"\d+(?:[_+]\d+)?")
MOST_NOTES = 5
HOW = (
    "Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 for dumps of the flight recorder, write "
    "ncclras -f json to ras.json, or py-spy dump --pid PID to rank0.txt"
)


def explain_hang(target: str, ras: str, load_settings: Callable[[], Settings], as_json: bool) -> int:
    """Print who stopped first; 1 where a rank is named, else 3. Raises `InputError` where nothing can be read.

    `target` is a folder, or a job of which the launchers left one; "" where only the RAS at the address `ras` is asked.
    Settings are loaded only where there are logs, which the site's own rules may tell.
    """
    folder, where = _left(target) if target else (Folder(), ras)
    if ras and not folder.take_ras(ask_ras(ras)):
        raise InputError(ras, "its answer is not that of NCCL RAS", "Name the address in NCCL_RAS_ADDR")
    if not (folder.dumps or folder.stacks or folder.steps or folder.ras):
        what = "; ".join(folder.notes[:2]) or "holds no dump of a flight recorder, no stack and no answer of NCCL RAS"
        raise InputError(where, what, HOW)
    report = report_of(folder, _of_logs(where, load_settings()) if folder.logs else None)
    if as_json:
        said = msgspec.to_builtins(report)
        conflicts = [word.source for word in report.conflicts]
        print_json("ranks", 1, directory=where, **said, conflicts=conflicts, notes=folder.notes)
    else:
        _print(report, folder)
    return 1 if report.ranks else 3


def _left(target: str) -> tuple[Folder, str]:
    """What ranks left in a folder, or in that of a job's newest attempt, and where that is."""
    if os.path.exists(target) or not _JOB.fullmatch(target):
        return read_folder(Path(target)), target
    attempt = attempt_of(target, _roots())
    return read_attempt(attempt), str(attempt)


def _roots() -> list[Path]:
    """The directory that a job was submitted from is mostly the one that its owner is in."""
    return [Path.cwd(), *([Path(os.environ["SLURM_SUBMIT_DIR"])] if os.environ.get("SLURM_SUBMIT_DIR") else [])]


def _of_logs(directory: str, settings: Settings) -> Word | None:
    """What the logs of the ranks say, where they name the one that failed first."""
    from perdure.cli.diagnosis import rules_of
    from perdure.cli.logs import read_log
    from perdure.triage.judge import judge

    rules = rules_of(settings)
    verdict = judge(read_log(directory, rules.matcher()).text, rules=rules)
    return Word(LOGS, (int(verdict.rank),), verdict.summary) if verdict.rank.isdecimal() else None


def _not_believed(word: Word, report: HangReport, accuser: str) -> str:
    if word not in report.conflicts:
        return ""
    whom = "others" if word.ranks else named(report.ranks)
    return f" (not believed: {accuser} {'name' if accuser.endswith('s') else 'names'} {whom})"


def _print(report: HangReport, folder: Folder) -> None:
    where = f" on {', '.join(report.nodes)}" if report.nodes else ""
    first = f"{named(report.ranks)}{where} stopped first" if report.ranks else "no rank stands out"
    print_line(paint(first[0].upper() + first[1:], "bold"))
    accuser = next((word.source for word in report.words if word.ranks), "")
    for word in report.words:
        print_line(f"  {word.source}: {word.says}{_not_believed(word, report, accuser)}")
    for note in folder.notes[:MOST_NOTES]:
        print_line(f"  not read: {note}")
    if len(folder.notes) > MOST_NOTES:
        print_line(f"  not read: {len(folder.notes) - MOST_NOTES} more")
