"""Whose a record is, which of two is kept, and the zone of a time: what all bridges share, and words of Slurm."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from perdure.coordination.bridges import bridged, causes, fields
from perdure.coordination.bridges.bridged import (
    BridgeContext,
    Meaning,
    ReportedFailure,
    gather,
    led_by_first,
    record_of,
)
from perdure.coordination.bridges.registry import read
from perdure.coordination.bridges.slurm import of_node
from perdure.coordination.record import ExceptionRecord, Scope, Transient
from perdure.model.nodes import Node, NodeState
from tests.coordination.bridges.samples import NODE, NOW, POD
from tests.copying import replace

ABOUT = BridgeContext("flux", "c", NOW, "9", 5)


def reported(kind: str = "app.oom", severity: int = 0, **more: Any) -> ReportedFailure:
    return ReportedFailure(Meaning(kind, severity), ("x",), **more)


def first_of(name: str, said: Any) -> ExceptionRecord:
    text = said if isinstance(said, str) else json.dumps(said)
    return read(name, text, "c", NOW).records[0]


def test_a_text_tells_the_incarnation_of_its_own_job_alone() -> None:
    assert record_of(reported(), ABOUT).incarnation == 5
    assert record_of(reported(job_id="9"), ABOUT).incarnation == 5
    assert record_of(reported(job_id="8"), ABOUT).incarnation == 0
    assert record_of(reported(job_id="8", incarnation=3), ABOUT).incarnation == 3


def test_ids_differ_between_clusters() -> None:
    assert record_of(reported(), ABOUT).id != record_of(reported(), replace(ABOUT, cluster="d")).id


def test_of_records_of_one_id_the_first_is_kept_and_others_count_beyond_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridged, "MAX_RECORDS", 1)
    first, again = (record_of(reported(note=note), ABOUT) for note in ("one", "two"))
    other = record_of(reported("app.nan"), ABOUT)
    assert gather([first, again, other, None, again], "x") == bridged.Bridged((first,), 2)


def test_nothing_follows_from_what_came_before_it_or_is_not_fatal() -> None:
    kinds = (("a.first", 2), ("b.root", 0), ("c.later", 0), ("d.mild", 3))
    found = [record_of(reported(kind, severity), ABOUT) for kind, severity in kinds]
    assert [record.cause for record in led_by_first(found)] == ["", "", found[1].id, ""]


def test_an_exit_code_of_zero_is_told_and_nothing_is_left_out_for_what_is_unknown() -> None:
    record = record_of(reported(known={"exit_code": 0, "signal": "", "restarts": None}), ABOUT)
    assert {note.key: note.value for note in record.annotations} == {"exit_code": "0"}


def test_a_time_without_a_zone_is_utc_wherever_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert fields.instant("2025-11-21T08:00:00", NOW) == 1_763_712_000.0
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("code", "transient"), [
    (75, Transient.YES), (78, Transient.NO), (93, Transient.NO), (94, Transient.UNKNOWN), (1, Transient.UNKNOWN),
])  # fmt: skip
def test_exit_codes_that_say_whether_to_try_again(code: int, transient: Transient) -> None:
    meaning = causes.of_exit(code)
    assert meaning is not None
    assert (meaning.type, meaning.transient) == ("process.exit", transient)


# -- Slurm


def an_end(**said: Any) -> str:
    return "perdure-event 1 end\n" + "".join(f"{key}={value}\n" for key, value in said.items())


def test_the_exit_code_counts_only_where_the_state_says_that_the_program_failed() -> None:
    for state, is_failure in (("FAILED", True), ("SPECIAL_EXIT", True), ("COMPLETED", False), ("RESIZING", False)):
        text = an_end(JOBID=7, JOBSTATE=state, EXITCODE="1:0", START=100, END=110)
        assert bool(read("slurm", text, "c", NOW).records) is is_failure


def test_a_task_has_the_id_of_its_array_and_an_end_is_at_its_own_time() -> None:
    said = {
        "JOBID": 12,
        "ARRAYJOBID": 5,
        "ARRAYTASKID": 3,
        "JOBSTATE": "NODE_FAIL",
        "START": 100,
        "END": 110,
        "TIME": 120,
    }
    record = first_of("slurm", an_end(**said))
    assert (record.subject.job_id, record.incarnation, record.time_s) == ("5_3", 100, 110.0)
    alone = first_of("slurm", an_end(**(said | {"ARRAYTASKID": 4_294_967_294})))
    assert alone.subject.job_id == "12"


@pytest.mark.parametrize("reason", ["perdure: drained", "Perdure drained it: not responding", "PERDURE gpu"])
def test_a_node_that_perdure_itself_drained_is_no_failure(reason: str) -> None:
    line = f"NodeName=n7 State=DRAIN Reason={reason} [root@2025-11-21T08:00:00]"
    assert read("slurm", line, "c", NOW).records == ()


@pytest.mark.parametrize("state", [NodeState.DRAINING, NodeState.DRAINED])
def test_a_node_that_drains_for_a_fault_has_it_while_jobs_run_there_too(state: NodeState) -> None:
    early, late = (of_node(Node("n7", state, "gpu 3 lost"), replace(ABOUT, now=now)) for now in (NOW, NOW + 60))
    assert early is not None
    assert late is not None
    assert (early.type, early.id) == ("node.gpu", late.id)  # a second look is no second exception


def test_what_follows_a_reason_is_no_part_of_it() -> None:
    line = "NodeName=n7 State=IDLE+DRAIN Reason=gpu 3 lost [root@2025-11-21T08:00:00] Comment=perdure State=DOWN"
    record = first_of("slurm", line)
    assert (record.type, record.note, record.time_s) == ("node.gpu", "gpu 3 lost", 1_763_712_000.0)
    twice = first_of("slurm", "NodeName=n7 State=DOWN Extra=x NodeName=n8 State=IDLE")
    assert twice.subject.nodes == ("n7",)


def test_each_of_several_nodes_has_an_exception_of_its_own_and_is_cleared_alone() -> None:
    text = "perdure-event 1 node\nEVENT=up\nNODES=n[1-2]\nTIME=1763710000\n"
    records = read("slurm", text, "c", NOW).records
    assert [record.subject.nodes for record in records] == [("n1",), ("n2",)]
    clears = [note.value for record in records for note in record.annotations if note.key == "clears"]
    assert clears == ["node.down@n1", "node.down@n2"]


@pytest.mark.parametrize(("word", "kind", "scope"), [
    ("Licenses", "licence.short", Scope.GLOBAL), ("PowerNotAvail", "power.cap", Scope.GLOBAL),
    ("NonZeroExitCode", "process.exit", Scope.LOCAL),
])  # fmt: skip
def test_what_all_jobs_share_is_global(word: str, kind: str, scope: Scope) -> None:
    record = first_of("slurm", f"7|PENDING|{word}|")
    assert (record.type, record.scope) == (kind, scope)


def test_the_state_of_a_job_says_more_than_why_it_waits() -> None:
    assert first_of("slurm", "7|TIMEOUT|NonZeroExitCode|n1").type == "job.timeout"


# -- Kubernetes


def test_ends_of_one_container_at_different_times_or_in_different_pods_are_different() -> None:
    def ended(at: str, uid: str = "u1") -> ExceptionRecord:
        end = {"exitCode": 1, "reason": "Error", "finishedAt": at}
        status = {"containerStatuses": [{"name": "main", "state": {"terminated": end}}]}
        metadata = {"name": "p-0", "namespace": "ml", "uid": uid}
        return first_of("kubernetes", {**POD, "metadata": metadata, "status": status})

    early, late = "2025-11-21T07:00:00Z", "2025-11-21T07:30:00Z"
    assert len({ended(early).id, ended(late).id, ended(early, "u2").id}) == 3
    assert ended(early).id == ended(early).id


def test_of_a_container_only_its_last_end_is_told_and_a_signal_is_one() -> None:
    now, before = ({"terminated": {"exitCode": code, "reason": "Error"}} for code in (3, 4))
    status = {"containerStatuses": [{"name": "main", "state": now, "lastState": before}]}
    (record,) = read("kubernetes", json.dumps({**POD, "status": status}), "c", NOW).records
    assert "(3)" in record.note
    killed = {"terminated": {"exitCode": 1, "signal": 9, "reason": "Error"}}
    status = {"containerStatuses": [{"name": "main", "state": killed}]}
    assert first_of("kubernetes", {**POD, "status": status}).type == "process.signal"


def test_a_label_counts_more_than_an_annotation_of_its_name_and_an_owner_more_than_the_pods_name() -> None:
    end = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]}
    about = {"name": "p-0", "namespace": "ml", "uid": "u"}
    both = {**about, "labels": {"job-name": "own"}, "annotations": {"job-name": "other"}}
    owned = {**about, "ownerReferences": [{"kind": "Job", "name": "boss"}]}
    for metadata, job_id in ((both, "ml.own"), (owned, "ml.boss"), (about, "ml.p-0")):
        assert first_of("kubernetes", {**POD, "metadata": metadata, "status": end}).subject.job_id == job_id


def test_a_pod_that_no_node_had_room_for_may_be_tried_again() -> None:
    assert first_of("kubernetes", {**POD, "status": {"reason": "OutOfcpu"}}).type == "launcher.transient"


def test_events_of_one_object_differ_by_their_own_ids_and_are_seen_where_they_happen() -> None:
    def event(uid: str, kind: str = "Pod", **more: Any) -> ExceptionRecord:
        about = {"kind": kind, "name": "n7", "namespace": "ml"}
        said = {"kind": "Event", "type": "Warning", "reason": "FailedMount", "involvedObject": about,
                "metadata": {"uid": uid}, "source": {"host": "n9"}, **more}  # fmt: skip
        return first_of("kubernetes", said)

    assert event("a").id != event("b").id
    assert (event("a").subject.nodes, event("a", "Node").subject.nodes) == (("n9",), ("n7",))
    assert (event("a").repeats, event("a", count=4).repeats) == (0, 3)


def test_a_condition_that_is_good_when_true_is_bad_when_false() -> None:
    def found(kind: str, status: str) -> tuple[ExceptionRecord, ...]:
        document = {**NODE, "spec": {}, "status": {"conditions": [{"type": kind, "status": status}]}}
        return read("kubernetes", json.dumps(document), "c", NOW).records

    for kind, bad in (("GPUHealthy", "False"), ("FabricDegraded", "True")):
        good = "True" if bad == "False" else "False"
        assert (len(found(kind, bad)), len(found(kind, good)), len(found(kind, "Unknown"))) == (1, 0, 0)


# -- PMIx and torchrun


def test_an_exit_code_beside_a_node_that_is_down_changes_nothing() -> None:
    said = {"status": "PMIX_EVENT_NODE_DOWN", "info": {"pmix.hname": "n7", "pmix.exit.code": 1}}
    assert first_of("pmix", said).type == "node.down"


def test_a_worker_of_which_torchrun_knows_no_message_has_none() -> None:
    metadata = {"state": "FAILED", "raw_error": json.dumps({"message": "<NONE>"}), "global_rank": 2, "hostname": "n7"}
    record = first_of("torchelastic", {"name": "torchelastic.worker.status.FAILED", "metadata": metadata})
    assert (record.note, record.subject.ranks) == ("", (2,))
