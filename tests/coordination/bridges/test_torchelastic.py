"""torchrun's error files, events and summary.

Recorded with PyTorch 2.13 by ``torchrun --nproc-per-node 3 --event-log-handler console train.py``, where rank 1 raises
(``torchelastic-exception.log``, ``torchelastic-error.json``; with ``--max-restarts 1``) or rank 2 kills itself
(``torchelastic-segfault.txt``); host and paths are changed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.coordination.bridges.registry import read
from perdure.coordination.record import ExceptionRecord, Transient
from tests.coordination.bridges.samples import NOW, TORCHELASTIC

DATA = Path(__file__).parent / "data"
LATER = 1_800_000_000.0
SUMMARY = """\
E1121 08:00:09.000000 4242 api.py:874] failed (exitcode: -6) local_rank: 1 (pid: 4301) of binary: /usr/bin/python
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[0]:
  time      : 2025-11-21_08:00:07
  host      : n7.cluster.
  rank      : 8 (local_rank: 0)
  exitcode  : 1 (pid: 4300)
  error_file: /tmp/torchelastic_x/none_y/attempt_0/0/error.json
  traceback : Traceback (most recent call last):
    File "train.py", line 12, in main
      loss.backward()
  RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x4)

------------------------------------------------------------
Root Cause (first observed failure):
[1]:
  time      : 2025-11-21_08:00:05
  host      : n7.cluster.
  rank      : 9 (local_rank: 1)
  exitcode  : -11 (pid: 4301)
  error_file: <N/A>
  traceback : Signal 11 (SIGSEGV) received by PID 4301
============================================================
"""


def one(document: dict[Any, Any], **about: Any) -> ExceptionRecord:
    bridged = read("torchelastic", json.dumps(document), "c", NOW, **about)
    (record,) = bridged.records
    return record


def event(
    rank: int | None,
    state: str = "FAILED",
    source: str = "WORKER",
    raw: str | None = None,
    restarts: int = 1,
    milliseconds: int = 0,
) -> str:
    metadata = {"global_rank": rank, "hostname": "n7", "state": state, "raw_error": raw, "agent_restarts": restarts}
    name = f"torchelastic.worker.status.{state}"
    return json.dumps({"name": name, "source": source, "timestamp": milliseconds, "metadata": metadata})


def recorded(name: str) -> tuple[ExceptionRecord, ...]:
    bridged = read("torchelastic", (DATA / name).read_bytes(), "c", LATER)
    return bridged.records


def known(record: ExceptionRecord) -> dict[Any, Any]:
    return {annotation.key: annotation.value for annotation in record.annotations}


def test_the_long_shape_holds_message_traceback_time_and_code() -> None:
    record = one(json.loads(TORCHELASTIC), job_id="4711", incarnation=7)
    assert (record.type, record.transient, record.time_s) == ("process.nccl", Transient.YES, 1763710000.0)
    assert (record.subject.ranks, record.subject.nodes, record.subject.job_id) == ((3,), ("n7",), "4711")
    assert record.incarnation == 7
    assert known(record) == {"exit_code": "-6", "signal": "SIGABRT"}
    assert record.evidence == ("Traceback\n  train.py\nRuntimeError: NCCL error",)


def test_the_short_shape_holds_a_message() -> None:
    record = one({"message": "SignalException: got SIGTERM"})
    assert (record.type, record.note, record.time_s) == ("process.exit", "SignalException: got SIGTERM", NOW)
    assert record.subject.ranks == ()


@pytest.mark.parametrize(
    ("message", "kind", "transient"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "app.oom", Transient.NO),
        ("ValueError: loss is NaN at step 4", "app.nan", Transient.UNKNOWN),
        ("RuntimeError: shape '[4, 5]' is invalid for input of size 12", "app.shape", Transient.NO),
        ("RuntimeError: The size of tensor a (3) must match the size of tensor b (4)", "app.shape", Transient.NO),
        ("RuntimeError: mesh tangling in zone 9", "app.mesh", Transient.NO),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp", "process.nccl", Transient.YES),
        ("OSError: [Errno 122] Disk quota exceeded", "storage.quota.over", Transient.UNKNOWN),
        ("ModuleNotFoundError: No module named 'flash'", "process.exit", Transient.NO),
        ("RendezvousTimeoutError", "launcher.transient", Transient.YES),
        ("KeyError: 'financing'", "process.exit", Transient.UNKNOWN),
    ],
)
def test_messages(message: str, kind: str, transient: Transient) -> None:
    record = one({"message": message})
    assert (record.type, record.transient) == (kind, transient)


@pytest.mark.parametrize(
    ("code", "kind", "transient"),
    [
        (1, "process.exit", Transient.UNKNOWN),
        (75, "process.exit", Transient.YES),
        (78, "process.exit", Transient.NO),
        (93, "process.exit", Transient.NO),
        (127, "launcher.permanent", Transient.NO),
        (137, "process.signal", Transient.UNKNOWN),
        (-11, "process.signal", Transient.UNKNOWN),
    ],
)
def test_exit_codes(code: int, kind: str, transient: Transient) -> None:
    record = one({"message": "", "exitcode": code})
    assert (record.type, record.transient) == (kind, transient)


def test_the_summary_names_the_root_cause_ranks_codes_and_hosts() -> None:
    root, other = read("torchelastic", SUMMARY, "c", NOW).records
    assert (root.type, root.subject.ranks, root.origin.pid, root.cause) == ("process.signal", (9,), 4301, "")
    assert (root.note, root.subject.nodes) == ("Signal 11 (SIGSEGV) received by PID 4301", ("n7.cluster",))
    assert (other.type, other.subject.ranks, other.cause) == ("app.shape", (8,), root.id)
    assert other.note == "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x4)"
    assert root.time_s == 1763712005.0
    assert known(root)["signal"] == "SIGSEGV"


def test_a_summary_without_a_failure_is_left_out() -> None:
    bridged = read("torchelastic", "Root Cause (first observed failure):\n[0]:\n", "c", NOW)
    assert (bridged.records, bridged.skipped) == ((), 1)


def test_events_count_restarts_and_leave_out_what_the_agent_ended() -> None:
    raw = json.dumps({"message": {"message": "NCCL error", "extraInfo": {"timestamp": "1763710005"}}})
    first = json.dumps({"message": {"message": "CUDA out of memory", "extraInfo": {"timestamp": "1763710001"}}})
    lines = [
        "[INFO] 2025-11-21 events: " + event(2, raw=raw),
        event(3, raw=first),
        event(4, state="TERMINATED"),
        event(5, state="SUCCEEDED"),
    ]
    bridged = read("torchelastic", "\n".join(lines), "c", NOW)
    oom, nccl = bridged.records
    assert bridged.skipped == 0
    assert (oom.type, oom.subject.ranks, oom.cause, known(oom)["restarts"]) == ("app.oom", (3,), "", "1")
    assert oom.origin.component == "torchelastic worker"
    assert (nccl.type, nccl.subject.ranks, nccl.cause) == ("process.nccl", (2,), oom.id)


def test_failures_of_different_starts_do_not_cause_each_other() -> None:
    raw = '{"message": "NCCL error", "timestamp": %d}'
    lines = [event(2, raw=raw % 1763710001, restarts=0), event(2, raw=raw % 1763710101, restarts=1)]
    assert [record.cause for record in read("torchelastic", "\n".join(lines), "c", NOW).records] == ["", ""]


def test_an_agent_that_fails_is_a_launcher_that_failed() -> None:
    raw = "Traceback (most recent call last):\nRuntimeError: could not reach the store"
    (record,) = read("torchelastic", event(None, source="AGENT", raw=raw, milliseconds=1763710000500), "c", NOW).records
    assert (record.type, record.time_s) == ("launcher.transient", 1763710000.5)
    assert record.note == "RuntimeError: could not reach the store"
    assert record.origin.component == "torchelastic agent"


def test_a_recorded_summary_begins_with_the_segmentation_fault() -> None:
    root, *others = recorded("torchelastic-segfault.txt")
    assert (root.type, root.subject.ranks, known(root)["signal"]) == ("process.signal", (2,), "SIGSEGV")
    assert [(r.subject.ranks, known(r)["signal"], r.cause) for r in others] == [
        ((0,), "SIGTERM", root.id),
        ((1,), "SIGTERM", root.id),
    ]


def test_recorded_events_begin_with_what_was_raised() -> None:
    root, *others = recorded("torchelastic-exception.log")
    assert (root.type, root.subject.ranks, root.subject.nodes) == ("app.shape", (1,), ("n7",))
    assert (known(root)["exit_code"], known(root)["restarts"], root.time_s) == ("1", "1", 1795284268.0)
    assert {(r.subject.ranks, known(r)["signal"], r.cause) for r in others} == {
        ((0,), "SIGTERM", root.id),
        ((2,), "SIGTERM", root.id),
    }
    assert len({record.origin.pid for record in (root, *others)}) == 3


def test_a_recorded_error_file_holds_the_traceback() -> None:
    (record,) = recorded("torchelastic-error.json")
    assert (record.type, record.time_s) == ("app.shape", 1795284263.0)
    assert record.evidence[0].startswith("Traceback (most recent call last):")


def test_a_program_that_logs_messages_has_not_failed_at_each_of_them() -> None:
    log = '{"message": "epoch 1", "rank": 0}\n{\'loss\': 0.5}\nplain {text}\n' * 2000
    bridged = read("torchelastic", log, "c", NOW)
    assert bridged.records == ()
    (failure,) = read("torchelastic", f"{log}{TORCHELASTIC}\n{log}", "c", NOW).records
    assert failure.type == "process.nccl"


def test_a_log_without_any_document_is_left_out() -> None:
    bridged = read("torchelastic", "epoch 1\nepoch 2\n", "c", NOW)
    assert (bridged.records, bridged.skipped) == ((), 1)
