"""Flux's eventlogs and journal. The logs in ``data/`` are written after events that Flux 0.88 was seen to log."""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.coordination.bridges.registry import read
from perdure.coordination.record import ExceptionRecord, Transient
from tests.coordination.bridges.samples import NOW

DATA = Path(__file__).parent / "data"


def records(name: str, **about: Any) -> tuple[ExceptionRecord, ...]:
    bridged = read("flux", (DATA / name).read_bytes(), "c", NOW, **about)
    assert bridged.skipped == 0
    return bridged.records


def raised(kind: str, note: str = "", severity: int = 0) -> ExceptionRecord:
    event = {"timestamp": 1.0, "name": "exception", "context": {"type": kind, "severity": severity, "note": note}}
    (record,) = read("flux", json.dumps(event), "c", NOW, job_id="9").records
    return record


def test_a_node_failure_is_the_cause_of_the_jobs_end() -> None:
    root, end = records("flux-node-failure.eventlog", job_id="f1", incarnation=4)
    assert (root.type, root.severity, root.subject.nodes, root.subject.ranks) == ("node.down", 0, ("vm",), (2,))
    assert (root.subject.job_id, root.incarnation, root.time_s) == ("f1", 4, 1763710008.75)
    assert (end.type, end.note, end.cause) == ("process.signal", "ended by SIGKILL", root.id)


def test_a_missing_program_can_only_fail_again() -> None:
    root, end = records("flux-no-program.eventlog")
    assert (root.type, root.transient, root.subject.nodes) == ("launcher.permanent", Transient.NO, ("vm",))
    assert (end.type, end.cause) == ("launcher.permanent", root.id)


def test_the_journal_names_the_jobs() -> None:
    raised_by_hand, timeout, cancel, end = records("flux-journal.jsonl", job_id="other")
    assert {r.subject.job_id for r in (timeout, cancel, end)} == {"4026531840"}
    assert [r.type for r in (timeout, cancel, end)] == ["job.timeout", "job.cancelled", "process.signal"]
    assert [r.cause for r in (timeout, cancel, end)] == ["", timeout.id, timeout.id]
    assert (raised_by_hand.type, raised_by_hand.severity, raised_by_hand.cause) == ("gpu.xid79", 1, "")
    assert (raised_by_hand.subject.job_id, raised_by_hand.subject.nodes) == ("4026531841", ())
    assert end.incarnation == 0


@pytest.mark.parametrize(
    ("kind", "note", "expected"),
    [
        ("node-failure", "node failure on elcap8767 (shell rank 1127)", "node.down"),
        ("exec", "lost contact with job shell on n7 (rank 3)", "node.unreachable"),
        ("exec", "rank 2 exited and exit-timeout=30s has expired", "process.exit"),
        ("exec", "task 1 (n7): start failed: train: Resource temporarily unavailable", "launcher.transient"),
        ("exec", "", "launcher.transient"),
        ("oom", "out of memory on foo42", "app.oom"),
        ("timelimit", "", "job.timeout"),
        ("alloc", "unsatisfiable request", "launcher.permanent"),
        ("alloc", "scheduler went away", "launcher.transient"),
        ("preempt", "", "job.preempted"),
        ("prolog", "prolog exited with exit code=1", "launcher.transient"),
        ("node.gpu.xid79", "", "node.gpu.xid79"),
        ("MyOwn", "", "job.my-own"),
        ("42", "", "job.42"),
        ("...", "", "job.exception"),
    ],
)
def test_types_and_notes(kind: str, note: str, expected: str) -> None:
    assert raised(kind, note).type == expected


def test_subjects_come_from_the_note() -> None:
    assert raised("oom", "out of memory on foo42").subject.nodes == ("foo42",)
    assert raised("exec", "rank 2 exited and exit-timeout=30s has expired").subject.ranks == (2,)
    assert raised("exec", "task 1 (n7): start failed").subject.nodes == ("n7",)
    assert raised("cancel", "on n7").subject.nodes == ()


def test_whose_rank_it_is_stands_beside_it() -> None:
    def rank_of(note: str) -> str | None:
        return {a.key: a.value for a in raised("node-failure", note).annotations}.get("flux.rank_of")

    assert rank_of("node failure on elcap8767 (shell rank 1127)") == "shell"
    assert rank_of("node failure on elcap8767 (rank 3)") == "broker"
    assert rank_of("rank 3 is gone") is None


def test_a_journal_of_too_many_jobs_is_read_of_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.coordination.bridges.flux.MAX_JOBS", 2)
    context = {"type": "oom", "severity": 0, "note": ""}
    told = [
        {"id": job_id, "events": [{"timestamp": float(at), "name": "exception", "context": context}]}
        for at, job_id in enumerate((1, 2, 3, 1))
    ]
    bridged = read("flux", "\n".join(map(json.dumps, told)), "c", NOW)
    assert sorted(record.subject.job_id for record in bridged.records) == ["1", "1", "2"]
    assert bridged.skipped == 1


@pytest.mark.parametrize("severity", range(8))
def test_a_severity_is_kept(severity: int) -> None:
    assert raised("oom", severity=severity).severity == severity


@pytest.mark.parametrize("severity", [8, -1, True, "1", None, 0.5])
def test_a_severity_that_is_none_is_left_out(severity: str | float | None) -> None:
    event = {"timestamp": 1.0, "name": "exception", "context": {"type": "oom", "severity": severity, "note": ""}}
    assert read("flux", json.dumps(event), "c", NOW) == read("flux", "{}", "c", NOW)
    assert read("flux", json.dumps(event), "c", NOW).skipped == 1


def test_warnings_lead_nothing() -> None:
    events = [
        {"timestamp": 1.0, "name": "exception", "context": {"type": "oom", "severity": 3, "note": ""}},
        {"timestamp": 2.0, "name": "finish", "context": {"status": 256}},
        {"timestamp": 3.0, "name": "finish", "context": {"status": 0}},
    ]
    warning, end = read("flux", "\n".join(map(json.dumps, events)), "c", NOW).records
    assert (warning.cause, end.cause, end.type, end.note) == ("", "", "process.exit", "ended with exit code 1")
