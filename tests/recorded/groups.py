"""All kinds of answers that are written down; each gives the names of its files, and the lines of one.

A new kind is a module with `names` and `lines_of`, and a word here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.recorded import answers, commands, kept_chains, requests, runs, verdicts, visits, whole_runs
from tests.recorded.line import Line
from tests.recorded.stories import telling

PLACE = Path(__file__).parent / "answers"
GROUPS: dict[str, ModuleType] = {
    "modules": answers,
    "runs": runs,
    "verdicts": verdicts,
    "commands": commands,
    "kept_chains": kept_chains,
    "visits": visits,
    "requests": requests,
    "whole_runs": whole_runs,
    "stories": telling,
}


def names() -> list[str]:
    """As ``runs/17``."""
    return [f"{group}/{name}" for group, module in GROUPS.items() for name in module.names()]


def lines_of(name: str) -> Iterator[Line]:
    """What is answered now."""
    group, _, file = name.partition("/")
    found: Iterator[Line] = GROUPS[group].lines_of(file)
    return found
