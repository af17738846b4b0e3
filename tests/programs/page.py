"""The page of docs that the failing programs make: ``python -m tests.programs.page FILE`` reads what a run kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import re2

from tests.programs.program import ACCELERATE, RANKS_OF_SRUN, TORCHRUN, TWO_NODES, WITH_FILES, Program, programs
from tests.slurm.table.page import cell

PAGE = Path(__file__).parents[2] / "docs" / "failing-programs.md"
HEAD = """\
# Failing programs

Real PyTorch programs that fail for real, run as jobs of the embedded cluster and of a real Slurm (`make programs`,
which makes this page): what fails in them, what Perdure says and shows, and what it does after the first failure. They
stand in `tests/programs/failing`.
"""
LAUNCHES = {
    TORCHRUN: "torchrun",
    WITH_FILES: "torchrun with files of ranks",
    ACCELERATE: "Accelerate",
    TWO_NODES: "torchrun on two nodes",
    RANKS_OF_SRUN: "srun on two nodes",
}
Rows = Sequence[Mapping[str, Any]]
_INSTALLED = re2.compile(r"/[^\s\"']*/site-packages/")  # wherever the machine of the run has them


def page(kept: Rows, known: Sequence[Program]) -> str:
    """The whole page, from what was kept of each run."""
    places = sorted({row["place"] for row in kept})
    return "\n".join([HEAD, *(_count(place, kept) for place in places), "", *_table(kept, known)]) + "\n"


def _count(place: str, kept: Rows) -> str:
    runs = [row for row in kept if row["place"] == place]
    wrong = sorted({f"{row['program']} ({_launch(row)})" for row in runs if row["wrong"]})
    told = f"- {place}: {len(runs) - sum(bool(row['wrong']) for row in runs)} of {len(runs)} runs were judged rightly"
    return f"{told}; not so: {', '.join(wrong)}." if wrong else f"{told}."


def _launch(row: Mapping[str, Any]) -> str:
    return LAUNCHES.get(row["launch"], row["launch"].partition(" ")[0])


def _table(kept: Rows, known: Sequence[Program]) -> Iterator[str]:
    yield "| program | what fails | launched by | Perdure says | shows | does |"
    yield "|---|---|---|---|---|---|"
    for program in known:
        runs = [row for row in kept if row["program"] == program.name]
        if runs:
            root = next((line["text"] for line in runs[0]["evidence"] if line["role"] == "root"), "")
            by = ", ".join(dict.fromkeys(map(_launch, runs)))
            root = _INSTALLED.sub("site-packages/", root.replace(f"{program.path.parent}/", ""))
            cells = (program.name, program.says, by, runs[0]["summary"], root, runs[0]["decision"])
            yield f"| {' | '.join(map(cell, cells))} |"
        else:
            yield f"| {program.name} | {cell(program.says)} | not run: {program.missing()} | | | |"


if __name__ == "__main__":
    PAGE.write_text(page([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()], programs()))
