"""One word, one meaning: a class name is defined once in a part, and seldom in two."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import perdure

SOURCES = Path(perdure.__file__).parent
SHARED_BY_PARTS = 8  # Decision, Forecast, Lending, NodePlan, Planner, Promises, Source, View


def homes() -> dict[str, list[Path]]:
    """Of each class name the modules that define it; programs of the demonstration are users' own."""
    found = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES)
        if "programs" in place.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(place)
    return found


def test_no_part_has_two_classes_of_a_name() -> None:
    twice = {
        name: [str(place) for place in places]
        for name, places in homes().items()
        if len({place.parts[0] for place in places}) < len(places)
    }
    assert twice == {}


def test_few_names_are_shared_by_parts() -> None:
    assert sum(len(places) > 1 for places in homes().values()) <= SHARED_BY_PARTS
