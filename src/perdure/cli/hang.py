"""``perdure why ranks DIR``: which rank of a hung program stopped first, from what the ranks left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure.cli.output import paint, print_json, print_line
from perdure.errors import InputError
from perdure.hangs.collectives import named
from perdure.hangs.folder import Folder, read_folder
from perdure.hangs.report import LOGS, HangReport, Word, report_of

if TYPE_CHECKING:
    from perdure.service.settings import Settings

MOST_NOTES = 5
HOW = (
    "Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 for dumps of the flight recorder, write "
    "ncclras -f json to ras.json, or py-spy dump --pid PID to rank0.txt"
)


def explain_hang(directory: Path, load_settings: Callable[[], Settings], as_json: bool) -> int:
    """Print who stopped first; 1 where a rank is named, else 3. Raises `InputError` where nothing can be read.

    Settings are loaded only where there are logs, which the site's own rules may tell.
    """
    folder = read_folder(directory)
    if not (folder.dumps or folder.stacks or folder.steps or folder.ras):
        what = "; ".join(folder.notes[:2]) or "holds no dump of a flight recorder, no stack and no answer of NCCL RAS"
        raise InputError(str(directory), what, HOW)
    report = report_of(folder, _of_logs(directory, load_settings()) if folder.logs else None)
    if as_json:
        said = msgspec.to_builtins(report)
        conflicts = [word.source for word in report.conflicts]
        print_json("ranks", 1, directory=str(directory), **said, conflicts=conflicts, notes=folder.notes)
    else:
        _print(report, folder)
    return 1 if report.ranks else 3


def _of_logs(directory: Path, settings: Settings) -> Word | None:
    """What the logs of the ranks say, where they name the one that failed first."""
    from perdure.cli.diagnosis import rules_of
    from perdure.cli.logs import read_log
    from perdure.triage.judge import judge

    rules = rules_of(settings)
    verdict = judge(read_log(str(directory), rules.matcher()).text, rules=rules)
    return Word(LOGS, (int(verdict.rank),), verdict.summary) if verdict.rank.isdecimal() else None


def _print(report: HangReport, folder: Folder) -> None:
    where = f" on {', '.join(report.nodes)}" if report.nodes else ""
    first = f"{named(report.ranks)}{where} stopped first" if report.ranks else "no rank stands out"
    print_line(paint(first[0].upper() + first[1:], "bold"))
    for word in report.words:
        other = f" (not believed: {report.words[0].source} names others)" if word in report.conflicts else ""
        print_line(f"  {word.source}: {word.says}{other}")
    for note in folder.notes[:MOST_NOTES]:
        print_line(f"  not read: {note}")
    if len(folder.notes) > MOST_NOTES:
        print_line(f"  not read: {len(folder.notes) - MOST_NOTES} more")
