"""What may count against a node: the own words of kernel, driver or runtime that end a program, and nothing else."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label, Verdict

START_S = 1_795_000_000.0  # 18 November 2026
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
STEPS = "".join(f"step {n} loss 0.5\n" for n in range(1, 6))
FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 5, in <module>\n    y = net(x)\n'
LAUNCH = "RuntimeError: CUDA error: unspecified launch failure"


def judged(log: str, code: int = 1, ran_s: float = 600.0) -> Verdict:
    attempt = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n5",), START_S, START_S + ran_s, code)
    return judge(log.encode(), attempt)


PYTEST = """============================= test session starts ==============================
collected 3 items

tests/test_maps.py::test_maps[{words}] {first}                 [ 33%]
tests/test_maps.py::test_sum FAILED                                      [ 66%]

=================================== FAILURES ===================================
>       assert total(3) == 7
E       AssertionError: assert 6 == 7

tests/test_maps.py:12: AssertionError
=========================== short test summary info ============================
FAILED tests/test_maps.py::test_maps[{words}] - AssertionError: assert 6 == 7
FAILED tests/test_maps.py::test_sum - AssertionError: assert 6 == 7
"""


@pytest.mark.parametrize("first", ["PASSED", "FAILED", "XFAIL", "SKIPPED (no GPU)"])
@pytest.mark.parametrize("words", [ECC, XID, "CUDA_ERROR_ECC_UNCORRECTABLE", "Connection refused"])
@pytest.mark.parametrize("plain", [False, True])
def test_the_name_of_a_test_is_no_failure(words: str, first: str, plain: bool) -> None:
    log = PYTEST.format(words=words, first=first)
    verdict = judged(log.replace("AssertionError: ", "") if plain else log)
    assert (verdict.hardware, verdict.category, verdict.label) == ("", "assertion", Label.DETERMINISTIC)


@pytest.mark.parametrize(
    "line",
    [f"[ RUN      ] Maps.Fails/{ECC}", f"[       OK ] Maps.Fails/{ECC} (3 ms)", f"--- PASS: TestMaps/{ECC} (0.00s)"],
)
def test_nor_is_it_in_other_languages(line: str) -> None:
    assert judged(f"{line}\n", code=4).category == "unknown"


@pytest.mark.parametrize(
    "line", [ECC, XID, f"[  812.4411] {XID}", "EXT4-fs (nvme0n1p2): Remounting filesystem read-only"]
)
@pytest.mark.parametrize("after", [STEPS, "loading the data\nbuilding the model\nreading the settings\n" * 5])
def test_what_the_program_outlived_proves_nothing(line: str, after: str) -> None:
    assert not judged(f"preflight: for the record\n{line}\n{after}", code=4).hardware


def test_a_time_since_the_boot_says_nothing_of_when() -> None:
    old = f"preflight: last Xids on n5, for the record:\n[  812.4411] {XID}\n"
    assert not judged(old, code=4).hardware
    assert not judged(old + "ConnectionRefusedError: [Errno 111] Connection refused\n").hardware
    assert judged(f"[  812.4411] {XID}\n{FRAMES}{LAUNCH}\n").hardware


@pytest.mark.parametrize(
    "date", ["[Thu Jan  2 03:04:05 2025] ", "Oct  2 03:04:05 n5 kernel: ", "2026-11-01T03:04:05+0100 n5 kernel: "]
)
def test_a_line_that_is_older_than_the_attempt_is_no_cause_at_all(date: str) -> None:
    verdict = judged(f"{date}{XID}\n", code=4)
    assert (verdict.hardware, verdict.category) == ("", "unknown")
    assert judged(f"{date}{XID}\n{FRAMES}{LAUNCH}\n").category == "native_crash"


@pytest.mark.parametrize(
    "date", ["[Wed Nov 18 12:04:05 2026] ", "Nov 18 12:04:05 n5 kernel: ", "2026-11-18T12:04:05+0100 n5 kernel: "]
)
def test_one_of_the_attempts_own_time_is_proof(date: str) -> None:
    assert judged(f"{STEPS}{date}{XID}\n").hardware


@pytest.mark.parametrize("date", ["Nov 21 12:04:05", "Dec 31 23:04:05", "Jan  2 12:04:05"])
def test_a_time_without_a_year_may_lie_long_after_the_start(date: str) -> None:
    assert judged(f"{STEPS}{date} n5 kernel: {XID}\n", ran_s=46 * 86400.0).hardware  # until 3 January


@pytest.mark.parametrize(
    "before",
    [
        "",
        "torch.AcceleratorError: ",
        "  what():  ",
        "2026-11-18 10:00:00,123 ERROR trainer: ",
        "2026-11-18 10:00:00,123 - train - ERROR - RuntimeError: ",
        "E1118 10:00:00.1234 77 ProcessGroupNCCL.cpp:1153] [Rank 3] NCCL watchdog thread terminated with exception: ",
        "[rank3]:[E1118 10:00:00.1234 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0 Rank 3] Process group watchdog"
        " thread terminated with exception: ",
        "(train pid=77, ip=10.0.0.2) RuntimeError: ",
        "main.cu(12): ",
    ],
)
def test_runtimes_loggers_and_watchdogs_put_their_own_words_before_it(before: str) -> None:
    assert judged(f"{STEPS}{before}CUDA error: uncorrectable ECC error encountered\n").hardware


@pytest.mark.parametrize("before", ["assert 'x' == '", "see also: ", "[", 'msg = "', "the check looks for "])
def test_quoted_or_told_they_are_not_its_own(before: str) -> None:
    assert not judged(f"{before}{ECC}\n").hardware


def test_what_ends_a_program_is_proof_though_its_buffer_is_printed_after_it() -> None:
    verdict = judged(f"{FRAMES}{ECC}\n{STEPS}")
    assert (verdict.hardware, verdict.bound) == (ECC, Bound.NODE)


def test_its_launchers_words_and_those_of_other_ranks_follow() -> None:
    others = "".join(
        f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "t.py", line 1\n'
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
        for rank in range(40)
    )
    log = f"[rank3]: {ECC}\n{others}srun: error: n5: task 3: Exited with exit code 1\nwandb: Run summary:\n"
    assert judged(log).hardware == ECC


PATHS = [
    "/usr/local/lib/python3.10/site-packages/foo.cache",
    "/home/alice/tmp/x",
    "/opt/app/outputs/run1",
    "/data/local/x",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "form",
    ["OSError: [Errno 30] Read-only file system: '{}'", "mkdir: cannot create directory '{}': Read-only file system"],
)
def test_a_read_only_image_or_mount_is_no_nodes_fault(path: str, form: str) -> None:
    verdict = judged(form.format(path) + "\n")
    assert (verdict.label, verdict.hardware, verdict.infrastructure) == (Label.DETERMINISTIC, "", False)


def test_what_is_read_only_after_steps_had_worked_stops_no_job() -> None:
    steps = "".join(f"step {step} loss 0.{step}\n" for step in range(30))
    assert (
        judged(f"{steps}OSError: [Errno 30] Read-only file system: '/home/alice/run/step30.ckpt'\n").label
        is Label.UNSURE
    )


@pytest.mark.parametrize("path", ["/tmp/x", "/local/7/x", "/scratch/local/x"])
def test_a_read_only_disk_of_the_node_is_left_for_another_node(path: str) -> None:
    verdict = judged(f"touch: cannot touch '{path}/y': Read-only file system\n")
    assert (verdict.bound, verdict.label, verdict.hardware) == (Bound.NODE, Label.TRANSIENT, "")
