"""PMIx's constants and notifications."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perdure.coordination.bridges.pmix import ACTIONS, OLDER_NAMES, RANGES, STATUSES, Range, answer_of, status_of
from perdure.coordination.bridges.registry import read
from perdure.coordination.record import FATAL, LEAST, AnswerKind, ExceptionRecord, Scope, Transient
from perdure.coordination.wire import type_of
from tests.conftest import require
from tests.coordination.bridges.samples import NOW, PMIX

HEADERS = Path("/usr/lib/x86_64-linux-gnu/pmix2/include")  # Debian's libpmix-dev


def one(**said: Any) -> ExceptionRecord:
    (record,) = read("pmix", json.dumps(said), "c", NOW, job_id="9").records
    return record


def test_names_and_numbers_are_those_of_the_header() -> None:
    require("pmix", (HEADERS / "pmix_common.h").exists(), "libpmix-dev is not installed")
    text = "".join((HEADERS / name).read_text() for name in ("pmix_common.h", "pmix_deprecated.h"))
    defined = {name: int(number) for name, number in re.findall(r"(?m)^#define\s+(PMIX_\w+)\s+(-?\d+)\b", text)}
    ours = {name: entry.number for table in (STATUSES, RANGES, ACTIONS) for name, entry in table.items()}
    assert {name: defined.get(name) for name in ours} == ours
    assert {old: defined[old] for old in OLDER_NAMES} == {old: ours[new] for old, new in OLDER_NAMES.items()}


def test_every_meaning_can_be_sent() -> None:
    assert len({status.number for status in STATUSES.values()}) == len(STATUSES)
    for status in STATUSES.values():
        assert type_of(status.meaning.type)
        assert FATAL <= status.meaning.severity <= LEAST
    assert {STATUSES[name].meaning.type for name in OLDER_NAMES.values()} == {"node.down"}


def test_a_notification_names_job_step_rank_and_node() -> None:
    (record,) = read("pmix", PMIX, "c", NOW).records
    subject = record.subject
    assert (record.type, record.severity, record.scope) == ("node.down", 0, Scope.LOCAL)
    assert (subject.job_id, subject.step, subject.ranks, subject.nodes) == ("4711", "0", (3,), ("n7",))
    assert (record.time_s, record.transient) == (1763710000.0, Transient.YES)


@pytest.mark.parametrize("status", [-231, "PMIX_EVENT_NODE_DOWN", "PMIX_ERR_NODE_DOWN"])
def test_a_status_goes_by_number_and_by_either_name(status: int | str) -> None:
    assert one(status=status).id == one(status="PMIX_EVENT_NODE_DOWN").id


@pytest.mark.parametrize("status", [-3007, 0, "PMIX_SUCCESS", True, None, "", [], -231.0])
def test_a_status_that_is_not_known_is_left_out(status: object) -> None:
    bridged = read("pmix", json.dumps({"status": status}), "c", NOW)
    assert (bridged.records, bridged.skipped) == ((), 1)


@pytest.mark.parametrize(("name", "reach"), RANGES.items())
def test_ranges_are_scopes(name: str, reach: Range) -> None:
    scope = Scope.GLOBAL if name == "PMIX_RANGE_GLOBAL" else Scope.LOCAL
    assert one(status=-231, range=name).scope is scope
    assert one(status=-231, range=reach.number).scope is scope


def test_an_exit_code_says_more_than_that_it_was_not_zero() -> None:
    assert one(status="PMIX_ERR_EXIT_NONZERO_TERM", info={"pmix.exit.code": 78}).transient is Transient.NO
    assert one(status="PMIX_ERR_EXIT_NONZERO_TERM", info={"pmix.exit.code": 139}).type == "process.signal"


def test_a_rank_that_stands_for_all_is_none() -> None:
    everyone = {"nspace": "slurm.pmix.4711.0", "rank": 2**32 - 2}
    assert one(status=-404, info={"pmix.evaffected": [everyone, {"rank": 5}]}).subject.ranks == (5,)


@pytest.mark.parametrize("verdict", AnswerKind)
def test_answers_go_to_pmix_and_back(verdict: AnswerKind) -> None:
    back = answer_of(status_of(verdict))
    assert back is (AnswerKind.DECLINED if verdict is AnswerKind.REJECTED else verdict)


def test_what_ends_a_chain_of_pmix_ends_ours() -> None:
    assert answer_of(-334) is AnswerKind.HANDLED
    assert answer_of(-231) is None
