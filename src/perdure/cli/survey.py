"""``perdure why report``: a site's failures counted by reason."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.progress import progress
from perdure.cli.table import word
from perdure.errors import InputError

if TYPE_CHECKING:
    from perdure.model.jobs import Attempt
    from perdure.survey.collect import Collected
    from perdure.survey.tally import Tally, TallyRow
    from perdure.triage.evidence.matching import RuleBook
    from perdure.triage.verdict import Verdict

COLUMNS = (
    word("REASON"), word("TRIALS"), word("JOBS", leave=7), word("USERS", leave=6), word("GPU-H LOST", leave=1),
    word("SHARE", leave=2), word("RTF 50", leave=8), word("90", leave=10), word("95", leave=9),
    word("AGAIN", leave=3), word("RETRIES", leave=5), word("SAVED", leave=4), word("WASTED GPU-H", leave=11),
)  # fmt: skip
MAX_FILES = 100_000
HOUR_S = 3600.0


def report(target: Path, rules: RuleBook, out: Path | None, as_json: bool, *, wide: bool = False) -> int:
    """Print the study of an accounting file, or of a directory of logs with or without one."""
    from perdure.survey.tally import tally

    with progress(what="judging logs"):
        found = _collected(target, rules)
    if not found.failed:
        raise InputError(str(target), "no failed attempt is in it", "Name sacct's output, or a directory of logs")
    counted = tally(found.failed)
    if as_json:
        print_json("report", 1, **_document(found, counted))
    else:
        _print(found, counted, wide=wide)
    if out is not None:
        _write_pictures(out, found, counted)
    return 0


def _collected(target: Path, rules: RuleBook) -> Collected:
    from perdure.survey.collect import of_accounting, of_logs
    from perdure.traces.sacct import sniff
    from perdure.traces.sacct_columns import Records
    from perdure.traces.source import open_source

    judge = _judge(rules)
    if not target.is_dir():
        source = open_source(target)
        if not sniff(source.head, target.name):
            fix = "Name the output of sacct --parsable2, or a directory; one log needs no --report"
            raise InputError(str(target), "not Slurm's accounting", fix)
        return of_accounting(Records.of(source), (), judge)
    files = _files(target)
    accounts = [file for file in files if sniff(_head(file), file.name)]
    logs = [str(file) for file in files if file not in accounts]
    if len(accounts) > 1:
        raise InputError(str(target), f"{len(accounts)} accounting files are in it", "Leave one")
    if accounts:
        return of_accounting(Records.of(open_source(accounts[0])), logs, judge)
    return of_logs(logs, _owner, judge)


def _judge(rules: RuleBook) -> Callable[[str | None, Attempt | None], Verdict]:
    from perdure.cli.logs import read_log
    from perdure.triage.judge import judge

    @lru_cache(maxsize=4096)
    def without_log(attempt: Attempt | None) -> Verdict:
        return judge(b"", attempt, rules=rules)

    def judged(log: str | None, attempt: Attempt | None) -> Verdict:
        if log is None:
            return without_log(attempt)
        try:
            return judge(read_log(log, rules.matcher()).text, attempt, rules=rules)
        except InputError as err:
            sys.stderr.write(f"perdure: {err}\n")
            return without_log(attempt)

    return judged


def _files(folder: Path) -> list[Path]:
    """The regular files of a directory and those below it, in order. Links are not followed."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        found += [path for name in sorted(names) if os.path.isfile(path := Path(place, name)) and not path.is_symlink()]
        if len(found) > MAX_FILES:
            raise InputError(str(folder), f"more than {MAX_FILES} files are in it", "Name a smaller directory")
    return found


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _owner(log: str) -> str:
    uid = Path(log).stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _document(found: Collected, counted: Tally) -> dict[str, object]:
    return {
        "attempts": found.attempts,
        "logs": found.logs,
        "logs_of_no_failure": found.strangers,
        "put_back": found.put_back,
        "reasons": [asdict(row) for row in counted.rows],
        "total": asdict(counted.total),
    }


def _print(found: Collected, counted: Tally, *, wide: bool) -> None:
    rows = (_cells(row, counted.total.lost_gpu_h) for row in (*counted.rows, counted.total))
    print_table(COLUMNS, rows, wide=wide)
    print_line(
        f"{counted.total.trials} of {found.attempts} attempts failed; {found.logs} logs were judged"
        + (f", {found.strangers} logs show no failure or belong to no failed job" if found.strangers else "")
    )
    if found.put_back:
        print_line(f"{found.put_back} attempts were put back into the queue; Slurm no longer knows how they ended")
    print_line("RTF: hours run until the failure, at its quantiles. AGAIN: trials that a retry would not get past.")


def _cells(row: TallyRow, whole_gpu_h: float | None) -> tuple[str, ...]:
    lost = "-" if row.lost_gpu_h is None else f"{row.lost_gpu_h:.1f}"
    share = "-" if row.lost_gpu_h is None or not whole_gpu_h else f"{100 * row.lost_gpu_h / whole_gpu_h:.1f} %"
    times = tuple(f"{seconds / HOUR_S:.2f}" for seconds in row.rtf_s) if row.rtf_s else ("-", "-", "-")
    retries = (str(row.retries), str(row.saved), f"{row.wasted_gpu_h:.1f}") if row.retries else ("-", "-", "-")
    again = str(row.labels["deterministic"])
    return (
        row.reason,
        str(row.trials),
        str(row.jobs),
        str(row.users),
        lost,
        share,
        *times,
        again,
        *retries,
    )


def _write_pictures(out: Path, found: Collected, counted: Tally) -> None:
    from perdure.survey.charts import draw

    pictures = draw(counted, found.failed)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, png in pictures.items():
            (out / f"{name}.png").write_bytes(png)
    except OSError as err:
        raise InputError(str(out), f"cannot be written ({err.strerror})", "Name a folder that you may write") from err
    print_line(f"pictures: {', '.join(str(out / f'{name}.png') for name in pictures)}")
