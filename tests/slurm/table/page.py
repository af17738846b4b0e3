"""The page of docs that the failure table makes: ``python -m tests.slurm.table.page`` reads what a run kept.

Each version of Slurm that the table ran on has its column of seconds; words are those of the newest run of the row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.slurm.table import GROUPS
from tests.slurm.table.row import Row

DOCS = Path(__file__).parents[3] / "docs"
KEPT, PAGE = DOCS / "failure-table.json", DOCS / "failure-table.md"
HEAD = """\
# The failure table

What an operator may rely on. Every row is a test on a real Slurm with the service armed (`make slurm-table`), and this
page is made by its run: what accounting says of each start of the job, what Perdure did and said, the seconds from the
end of the failed attempt to the decision, and how often one of Slurm's tools was run meanwhile, looks included. The
site looks every second, has the hooks installed, and gives a job that was put back 6 s later; budgets are wide, as one
user has all failures. Where nothing is said, nothing was wrong. Each row is shown as it was last right: the rows of one
version may be of several runs, and a row that failed on a loaded machine and was right when repeated counts as right.
`python -m tests.slurm.table.sources` prints the mark of the sources that are here.
"""
TITLES = {
    "logs": "Where output lies, and whose it is",
    "ends": "How programs end",
    "owners": "What owners ask for, and what their scripts do",
    "structure": "Arrays, heterogeneous jobs, gangs",
    "dependencies": "Jobs that wait for others",
    "nodes": "Nodes",
    "scheduling": "Preemption, suspension, holds, reservations, licences",
    "manager": "Slurm's daemons, accounting, the service itself",
    "shared": "What jobs share",
    "hostile": "Hostile names, paths and logs",
}
MOST = 240  # characters of a reason


def page(kept: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The whole page, from the accounts by version of Slurm and row."""
    versions = sorted(kept, key=lambda text: [int(part) for part in text.split("-")[0].split(".")])
    groups = (line for group in GROUPS for line in _group(group.title, group.rows, versions, kept))
    return "\n".join([HEAD, _which(versions, kept), *groups])


def _which(versions: list[str], kept: Mapping[str, Mapping[str, Any]]) -> str:
    """How many rows are right on each version, and which are not, or were not run."""
    told = []
    for version in versions:
        open_ = [row.name for group in GROUPS for row in group.rows if row.name not in kept[version]]
        count = sum(len(group.rows) for group in GROUPS)
        told.append(f"- Slurm {version}: {count - len(open_)} of {count} rows are right")
        told[-1] += f"; not right, or not run: {', '.join(open_)}" if open_ else ""
        told[-1] += f". {_sources(kept[version].values())}"
    return "\n".join(told) + "\n"


def _sources(accounts: Collection[Mapping[str, Any]]) -> str:
    """With which sources the rows ran, by their mark."""
    marks = Counter(each["sources"] for each in accounts)
    if len(marks) == 1:
        return f"All ran with the same sources ({next(iter(marks))})."
    told = ", ".join(f"{count} with {mark}" for mark, count in marks.most_common())
    return f"They ran with {len(marks)} states of the sources: {told}."


def _group(title: str, rows: list[Row], versions: list[str], kept: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {TITLES[title]}\n"
    yield "| situation | Slurm says | Perdure does | Perdure says | seconds | calls |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        found = {version: kept[version][row.name] for version in versions if row.name in kept[version]}
        if found:
            last = found[max(found, key=versions.index)]
            seconds = " / ".join(_seconds(each["seconds"]) for each in found.values())
            calls = " / ".join(str(each["calls"]) for each in found.values())
            cells = (row.situation, last["slurm"], last["does"], last["says"], seconds, calls)
            yield f"| {' | '.join(map(cell, cells))} |"
    yield ""


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def cell(text: str) -> str:
    """A text as a cell of a table, cut where it is long."""
    shown = " ".join(text.partition("; expected cost")[0].split()).replace("|", "\\|").replace("<", "&lt;")
    return shown if len(shown) <= MOST else f"{shown[: MOST - 3]}..."


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(KEPT.read_text())))
