"""Ends of runs by records as HTCondor 23.9 wrote them, less what is not read."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.backends.condor.ends import end_of
from perdure.backends.condor.picture import ended_attempt
from perdure.model.jobs import AttemptState

RUN = {"jobcurrentstartdate": 100, "epochwritedate": 110, "jobstatus": 2, "remotehost": "slot1_1@node1"}
EVICTED = {"lastvacatetime": 110, "vacatereason": "", "exitbysignal": True, "exitsignal": 15}


@pytest.mark.parametrize(
    ("record", "job", "state", "code", "signal"),
    [
        ({"exitbysignal": False, "exitcode": 3}, {"jobstatus": 5, "holdreasoncode": 3}, AttemptState.FAILED, 3, 0),
        ({"exitbysignal": False, "exitcode": 0}, {"jobstatus": 4}, AttemptState.COMPLETED, 0, 0),
        ({"exitbysignal": True, "exitsignal": 11, "exitcode": 3}, None, AttemptState.FAILED, 0, 11),
        ({"exitcode": 3, "lastvacatetime": 90, "vacatereasoncode": 1005}, None, AttemptState.FAILED, 3, 0),
        (EVICTED | {"exitcode": 3, "vacatereasoncode": 1005}, {"jobstatus": 1}, AttemptState.REQUEUED, 0, 0),
        (EVICTED | {"vacatereasoncode": 1008}, {"jobstatus": 1}, AttemptState.NODE_FAIL, 0, 0),
        (EVICTED | {"vacatereasoncode": 1006}, {"jobstatus": 1}, AttemptState.LAUNCH_FAILED, 0, 0),
        (EVICTED | {"vacatereasoncode": 1019}, {"jobstatus": 1}, AttemptState.PREEMPTED, 0, 0),
        (EVICTED | {"vacatereasoncode": 1007}, {"jobstatus": 1}, AttemptState.LOST, 0, 0),
        (EVICTED | {"vacatereasoncode": 46}, {"jobstatus": 5, "holdreasoncode": 46}, AttemptState.TIMEOUT, 0, 0),
        (EVICTED | {"vacatereasoncode": 6, "exitcode": 255}, {"jobstatus": 5}, AttemptState.LAUNCH_FAILED, 0, 0),
        (EVICTED | {"vacatereasoncode": 0}, {"jobstatus": 3}, AttemptState.CANCELLED, 0, 0),
        (EVICTED | {"vacatereasoncode": 0}, {"jobstatus": 5, "holdreasoncode": 1}, AttemptState.REQUEUED, 0, 0),
        (
            EVICTED | {"vacatereasoncode": 0, "holdreasoncode": 34, "holdreason": "peak usage of memory"},
            {"jobstatus": 5},
            AttemptState.OUT_OF_MEMORY,
            0,
            0,
        ),
        ({"exitcode": 0}, {"jobstatus": 5, "holdreasoncode": 12, "holdreason": "disk full"}, AttemptState.FAILED, 0, 0),
    ],
)
def test_the_record_of_a_run_tells_its_end(
    record: dict[str, Any], job: dict[str, Any] | None, state: AttemptState, code: int, signal: int
) -> None:
    end = end_of(RUN | record, job, (), ("node1",))
    assert (end.state, end.exit_code, end.signal) == (state, code, signal)


def test_an_eviction_from_a_node_that_was_set_down_is_its_failure() -> None:
    record = RUN | EVICTED | {"vacatereasoncode": 1005, "clusterid": 7, "procid": 0, "numshadowstarts": 2}
    attempt = ended_attempt("c", record, None, frozenset({"node1"}))
    assert (attempt.state, attempt.failed_nodes, str(attempt.id)) == (AttemptState.NODE_FAIL, ("node1",), "c/7.0#2")
    removed = end_of(record, {"jobstatus": 3}, ("node1",), ("node1",))
    assert removed.state is AttemptState.CANCELLED


def test_a_gang_of_which_no_end_was_written_failed_with_a_node_that_is_down() -> None:
    ad: dict[str, Any] = {"jobstatus": 1, "jobuniverse": 11, "jobcurrentstartdate": 100, "enteredcurrentstatus": 110}
    ad |= {"clusterid": 7, "procid": 0, "numshadowstarts": 1, "allremotehosts": "slot1_1@node1,slot1_1@node3"}
    attempt = ended_attempt("c", ad, ad, frozenset({"node3"}))
    assert (attempt.state, attempt.nodes, attempt.failed_nodes) == (
        AttemptState.NODE_FAIL,
        ("node1", "node3"),
        ("node3",),
    )
    assert ended_attempt("c", ad, ad, frozenset()).state is AttemptState.LOST
    refused = RUN | EVICTED | {"vacatereasoncode": 1006}
    assert end_of(refused, None, ("node1",), ("node1", "node3")).state is AttemptState.NODE_FAIL
