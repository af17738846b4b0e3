"""Examples in docstrings print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import perdure

SOURCES = Path(perdure.__file__).parent
MODULES = sorted(
    ".".join(("perdure", *path.relative_to(SOURCES).with_suffix("").parts))
    for path in SOURCES.rglob("*.py")
    if "programs" not in path.parts and ">>> " in path.read_text()
)


def test_there_are_examples() -> None:
    assert len(MODULES) > 30


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str) -> None:
    ran = doctest.testmod(import_module(name), report=True)
    assert ran.attempted > 0
    assert ran.failed == 0
