"""What the page on exceptions says is what the code has."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from perdure.coordination.handlers.registry import HANDLERS
from perdure.coordination.playbook import PlanTable, site_playbook
from perdure.coordination.record import AnswerKind, Component, ExceptionOutcome, ExceptionState
from tests.finding import found_in

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "exceptions.md").read_text()


def rows(head: str) -> set[Any]:
    """First cells of the table whose head begins so, without their code marks."""
    table = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0]
    return {name for cell in re.findall(r"(?m)^\| (`[^|]+) \|", table) for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize(
    ("head", "known"),
    [
        ("handler", set(HANDLERS)),
        ("verdict", {kind.value for kind in AnswerKind}),
        ("state", {one.value for kind in (ExceptionState, ExceptionOutcome) for one in kind} - {""}),
        ("key of `failures`", {field.encode_name for field in structs.fields(PlanTable)}),
    ],
    ids=["handlers", "verdicts", "states", "keys"],
)
def test_a_table_is_complete(head: str, known: set[str]) -> None:
    assert rows(head) == known


def test_its_playbook_is_one() -> None:
    text = found_in(PAGE, r"```toml\n(.*?)```", re.DOTALL)
    plan = site_playbook(text, "site.toml").plan_for("gpu.ecc.double-bit")
    assert (plan.deadline_s, plan.levels) == (900.0, {Component.RESOURCE_MANAGER: "drain"})


def test_the_built_in_values_are_the_codes() -> None:
    plan = PlanTable()
    for key, value in (("deadline_s", plan.deadline_s), ("window_s", plan.window_s)):
        assert f"| `{key}` | {value:g} |" in PAGE
    assert f"| `fall_back` | `{plan.fall_back}` |" in PAGE
    assert f"| `scope` | `{plan.scope}` |" in PAGE
