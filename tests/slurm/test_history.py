"""The checker of histories finds what is against the laws, and nothing else."""

from typing import Any

import pytest

from tests.copying import replace
from tests.slurm.history import Story, violations

REQUEUE = "requeue:slurm/7#100"


def record(
    name: str = "7#100:job.net", start: int = 100, *owners: str, actions: list[Any] | tuple[()] = ()
) -> dict[Any, Any]:
    verdicts = [{"verdict": "handled", "component": owner, "actions": list(actions)} for owner in owners]
    return {"id": name, "incarnation": start, "verdicts": verdicts}


def action(key: str = REQUEUE, state: str = "done") -> dict[Any, Any]:
    return {"key": key, "kind": key.partition(":")[0], "state": state}


def row(start: int, end: int | str, state: str = "FAILED", code: str = "1:0") -> dict[Any, Any]:
    return {"Start": str(start), "End": str(end), "State": state, "ExitCode": code}


GOOD = Story(
    (record("7#100:job.net", 100, "scheduler", actions=[REQUEUE]),),
    (action(),),
    (row(100, 110), row(120, 130, "COMPLETED", "0:0")),
)
OWNED = GOOD.records[0]


def test_a_failure_that_its_owner_put_back_once_is_lawful() -> None:
    assert violations(GOOD) == []


@pytest.mark.parametrize(("state", "code"), [("NODE_FAIL", "0:0"), ("PREEMPTED", "0:0"), ("FAILED", "75:0")])
def test_what_slurm_puts_back_needs_nobody_else(state: str, code: str) -> None:
    by_slurm = record("7#100:node.failure", 100, "resource_manager")
    assert violations(Story((by_slurm,), (), (row(100, 110, state, code), GOOD.starts[1]))) == []


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (replace(GOOD, records=(record("7#100:job.net", 100, "job", "scheduler", actions=[REQUEUE]),)), "2 owners"),
        (replace(GOOD, records=(OWNED, {**OWNED, "id": "another"})), "2 exceptions act"),
        (replace(GOOD, records=(record(),)), "owned by nobody"),
        (replace(GOOD, actions=(action(), action())), "put back 2 times"),
        (replace(GOOD, starts=(row(100, 110, "NODE_FAIL", "0:0"), GOOD.starts[1])), "by Slurm (NODE_FAIL) and by us"),
        (replace(GOOD, starts=(row(100, 125), GOOD.starts[1])), "began before 100 had ended"),
        (replace(GOOD, starts=(row(100, "Unknown"), GOOD.starts[1])), "began before 100 had ended"),
        (replace(GOOD, actions=(action(state="refused"),)), "put back by nobody"),
    ],
)
def test_what_is_against_the_laws_is_named(story: Story, words: str) -> None:
    assert any(words in said for said in violations(story)), violations(story)
