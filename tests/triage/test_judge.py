"""The verdict: who is believed, what is shown, and that nothing makes it fail."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.classifiers.protocol import Reading
from perdure.triage.evidence.gather import gathered
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import NoModel, judge
from perdure.triage.verdict import Bound, CauseRole, Label
from tests.copying import replace

FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 10.0, exit_code=1)
CALM = "".join(f"step {i} loss {3 / (i + 1):.3f}\n" for i in range(400))
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    run()\n'


@dataclass(frozen=True)
class Leaning:
    """A model that always leans alike."""

    z: float

    def log_odds(self, reading: Reading) -> float:
        return self.z


@pytest.mark.parametrize(
    ("log", "label", "category"),
    [
        ("ValueError: shapes (3,4) and (5,6) not aligned: 4 (dim 1) != 5 (dim 0)", "deterministic", "shape"),
        ("ValueError: matmul: Input operand 1 has a mismatch in its core dimension 0", "deterministic", "shape"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x.csv'", "deterministic", "missing_file"),
        ("SyntaxError: invalid syntax", "deterministic", "syntax"),
        ("ModuleNotFoundError: No module named 'einops'", "deterministic", "import"),
        ("DistBackendError: NCCL error: remote process exited or there was a network error", "transient", "nccl_comm"),
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711)", "transient", "nccl_timeout"),
        ("ERROR loss is nan at step 40, stopping", "deterministic", "numeric"),
        ("zipfile.BadZipFile: File is not a zip file", "deterministic", "ckpt"),
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "deterministic", "data"),
        ("ValueError: checkpoint step_40.npz is corrupt", "deterministic", "ckpt"),
        ("MemoryError", "deterministic", "host_oom"),
        ("OSError: [Errno 28] No space left on device", "deterministic", "disk_quota"),
        ("OSError: [Errno 122] Disk quota exceeded", "deterministic", "disk_quota"),
        ("OSError: [Errno 27] File too large", "deterministic", "disk_quota"),
        ("OSError: [Errno 98] Address already in use", "transient", "port_busy"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "transient", "net"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "transient", "net"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "transient", "net"),
        ("RuntimeError: Connection closed by peer [10.0.0.2]:3000", "transient", "net"),
        ("watchdog: no progress for 30 s, giving up", "transient", "hang"),
        ("received preemption notice, saving a checkpoint and leaving", "transient", "preempt"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "deterministic", "gpu_oom"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "transient", "gpu_hw"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT x DUE TO TIME LIMIT ***", "deterministic", "time_limit"),
    ],
)
@pytest.mark.parametrize("model", [None, NoModel()], ids=["own model", "rules alone"])
def test_common_failures_are_told_apart(log: str, label: str, category: str, model: NoModel | None) -> None:
    verdict = judge((CALM + TRACEBACK + log + "\n").encode(), FAILED, model=model)
    assert (verdict.label, verdict.category) == (label, category)
    assert verdict.evidence[-1].text == log
    assert verdict.evidence[-1].line == 404
    assert verdict.fingerprint


@pytest.mark.parametrize(
    ("state", "label"),
    [
        (AttemptState.NODE_FAIL, Label.TRANSIENT),
        (AttemptState.PREEMPTED, Label.TRANSIENT),
        (AttemptState.TIMEOUT, Label.DETERMINISTIC),
        (AttemptState.OUT_OF_MEMORY, Label.DETERMINISTIC),
    ],
)
@pytest.mark.parametrize("log", ["", CALM, "TypeError: x\n", "OSError: [Errno 98] Address already in use\n"])
def test_what_the_resource_manager_knows_outranks_the_text(state: AttemptState, label: Label, log: str) -> None:
    verdict = judge(log.encode(), replace(FAILED, state=state))
    assert verdict.label is label
    assert not verdict.hearsay
    assert any(evidence.line == 0 for evidence in verdict.evidence)


def test_text_outranks_a_mere_exit_code() -> None:
    assert judge(b"SyntaxError: invalid syntax\n", replace(FAILED, exit_code=143)).label is Label.DETERMINISTIC


def test_an_exit_code_speaks_where_the_text_is_silent() -> None:
    verdict = judge(CALM.encode(), replace(FAILED, exit_code=75))
    assert (verdict.label, verdict.evidence[0].rule) == (Label.TRANSIENT, "exit-75")


def test_the_first_root_wins_over_its_cascades() -> None:
    log = (
        "[rank1]: ConnectionResetError: [Errno 104] Connection reset by peer\n"
        "[rank0]: TypeError: 'NoneType' object is not callable\n"
        "[rank2]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)\n"
        "[rank3]: IndexError: list index out of range\n"
    )
    verdict = judge(log.encode())
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "api")
    assert {e.role for e in verdict.evidence} == {CauseRole.ROOT, CauseRole.CASCADE}


def test_a_failure_that_was_survived_is_not_the_cause() -> None:
    log = "OSError: [Errno 98] Address already in use\n" + CALM + "KeyError: 'labels'\n"
    assert judge(log.encode()).category == "index"


def test_what_scripts_print_and_survive_yields_to_a_cascade() -> None:
    log = "ls: cannot access 'old': No such file or directory\nRuntimeError: Connection closed by peer [10.0.0.1]:3\n"
    assert judge(log.encode()).label is Label.TRANSIENT


@pytest.mark.parametrize("log", [b"", b"\n\n", CALM.encode(), b"\x00" * 1000, b"\r 3%|# | 3/100 [00:01<00:09]" * 50])
def test_no_failure_seen_is_unsure(log: bytes) -> None:
    verdict = judge(log)
    assert verdict.label is Label.UNSURE
    assert verdict.summary == "nothing that looks like a failure"
    assert verdict.evidence == ()


@given(st.binary(max_size=600))
@settings(max_examples=150, deadline=None)
def test_no_bytes_make_it_fail(log: bytes) -> None:
    verdict = judge(log + b"\nTypeError: x\n")
    assert 0.0 <= verdict.p_transient <= 1.0
    assert len(verdict.evidence) <= 8
    assert not any(ord(c) < 32 and c != "\t" for evidence in verdict.evidence for c in evidence.text)


@pytest.mark.parametrize("line", ["Xid 79", "NVRM: Xid (PCI:0000:9b:00): 79, GPU is lost", "ncclRemoteError: x"])
def test_what_a_users_log_says_of_the_site_is_hearsay(line: str) -> None:
    verdict = judge(f"{line}\n".encode())
    assert verdict.hearsay
    assert "by the job's own log alone" in verdict.summary


def test_a_port_taken_is_bound_to_its_node_but_no_fault_of_the_site() -> None:
    verdict = judge(b"OSError: [Errno 98] Address already in use\n")
    assert (verdict.bound, verdict.infrastructure, verdict.hearsay) == (Bound.NODE, False, False)


def test_a_service_that_refuses_is_waited_for() -> None:
    verdict = judge(b"ConnectionRefusedError: [Errno 111] Connection refused\n")
    assert (verdict.bound, verdict.wait_s > 0) == (Bound.SERVICE, True)


def test_the_fingerprint_is_blind_to_numbers_and_paths_but_not_to_words() -> None:
    first = judge(b"KeyError: 'a'\n").fingerprint
    again = judge((CALM + "[rank7]: KeyError: 'a'\n").encode()).fingerprint
    other = judge(b"KeyError: 'b'\n").fingerprint
    there, elsewhere = (
        judge(f"FileNotFoundError: [Errno 2] No such file or directory: '{p}'\n".encode()).fingerprint
        for p in ("/scratch/u1/job17/x.csv", "/home/u2/y/z.csv")
    )
    assert (first == again, first == other, there == elsewhere) == (True, False, True)


def test_the_fingerprint_is_blind_to_which_node_of_one_kind_it_was() -> None:
    """A retry elsewhere that fails alike names another node, and is the same failure."""
    here, there, far, stranger = (
        judge(f"RuntimeError: [{name}]:29500: Connection reset by peer\n".encode(), replace(FAILED, nodes=(node,)))
        for name, node in (("gpu7", "gpu7"), ("gpu12", "gpu12"), ("gpu128", "gpu12"), ("store12", "gpu12"))
    )
    assert here.fingerprint == there.fingerprint == far.fingerprint
    assert stranger.fingerprint != here.fingerprint


def test_a_model_moves_a_verdict_within_its_cap() -> None:
    log = b"RuntimeError: something odd\n"
    low, middle, high = (judge(log, model=Leaning(z)).p_transient for z in (-100.0, 0.0, 100.0))
    assert low < middle < high < 0.5


def test_a_model_has_no_say_where_the_resource_manager_has_spoken() -> None:
    attempt = replace(FAILED, state=AttemptState.NODE_FAIL)
    assert judge(b"", attempt, model=Leaning(-100.0)) == judge(b"", attempt, model=Leaning(100.0))


@pytest.mark.parametrize("filler", [b"x" * 1_000_000, b"\x00" * 1_000_000, b"\xff\xfe" * 500_000, b"ab\n" * 300_000])
def test_a_large_log_is_judged_by_its_tail(filler: bytes) -> None:
    pieces = [filler] * 24 + [b"\nOSError: [Errno 28] No space left on device\n"]
    text = gathered(pieces, own_rules().matcher())
    assert text.skipped_bytes > 0
    verdict = judge(text)
    assert verdict.category == "disk_quota"
    assert verdict.evidence[-1].line == filler.count(b"\n") * 24 + 2


def test_escapes_cannot_hide_a_failure() -> None:
    assert judge(b"\x1b[1;31mType\x1b[0mError\x1b[0m: x\r\n").category == "api"
