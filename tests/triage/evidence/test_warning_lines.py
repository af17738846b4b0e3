"""Warnings of PyTorch's start, and of tools, before what really ended the program."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.judge import judge
from perdure.triage.verdict import Label

FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1", "n2"), 0.0, 60.0, exit_code=1)
REFUSED = (
    "[W1125 10:00:00.123456789 socket.cpp:759] [c10d] The client socket has failed to connect to [n1]:29500"
    " (errno: 111 - Connection refused)."
)
WARNINGS = [
    REFUSED,
    REFUSED.replace("[W1125 10:00:00.123456789 socket.cpp:759]", "[W socket.cpp:601]"),
    "[rank1]:" + REFUSED,
    "[rank1]:" + REFUSED.replace("[W1125 ", "[W526 "),  # the 26th of May: c10 writes the month without a zero
    "[W1125 10:00:00.1 socket.cpp:759] [c10d] The IPv6 network addresses of (n1, 29500) cannot be retrieved"
    " (gai error: -2 - Name or service not known).",
    "W1125 10:00:00.1 123 torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py:200] [Errno 111]"
    " Connection refused",
    "Failed to connect to MLflow tracking server (Connection refused), logging locally",
    "cp: cannot stat '/scratch/a/old.ckpt': Stale file handle",
]
ERRORS = [
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 768x10)",
    "TypeError: forward() got an unexpected keyword argument 'mask'",
    'KeyError: "lr_schedule"',
]
OTHERS = [
    "ModuleNotFoundError: No module named 'einops'",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.npy'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
    " of which 1.00 GiB is free. Process 7 has 78.00 GiB memory in use.",
    "ValueError: learning rate must be positive",
    "NotImplementedError: no kernel for that",
    "AssertionError: f1 below threshold 0.8, refusing to publish",
    "recipe.BadRecipe: flour comes before water",
]
TRACE = '{0}Traceback (most recent call last):\n{0}  File "/home/a/train.py", line 30, in <module>\n{0}    main()\n{0}'
STEPS = "".join(f"iter {n} loss 1.{n}\n" for n in range(200))


@pytest.mark.parametrize("rank", ["", "[rank3]: "])
@pytest.mark.parametrize("steps", ["", STEPS], ids=["at its start", "after steps"])
@pytest.mark.parametrize(
    ("warning", "error"), [(one, two) for one in WARNINGS for two in ERRORS] + [(WARNINGS[0], two) for two in OTHERS]
)
def test_an_error_after_a_warning_is_the_cause(warning: str, error: str, steps: str, rank: str) -> None:
    for attempt in (None, FAILED):
        alone = judge((steps + TRACE.format(rank) + error).encode(), attempt)
        warned = judge((f"{warning}\n" + steps + TRACE.format(rank) + error).encode(), attempt)
        assert warned.category == alone.category
        assert warned.label is not Label.TRANSIENT or alone.label is Label.TRANSIENT
        assert warned.p_transient < alone.p_transient + 0.15


@pytest.mark.parametrize("warning", WARNINGS[:5])
def test_a_warning_that_nothing_follows_stays_the_cause(warning: str) -> None:
    assert judge(f"{warning}\n".encode(), FAILED).category in ("net", "rdzv_store")


def test_a_failed_rendezvous_is_explained_by_the_warning_before_it() -> None:
    ended = TRACE.format("") + "torch.distributed.DistNetworkError: The client socket has timed out after 60s"
    verdict = judge(f"{REFUSED}\n{ended} while trying to connect to (n1, 29500).\n".encode(), FAILED)
    assert verdict.label is Label.TRANSIENT


def test_a_file_that_a_tool_did_not_find_may_be_what_the_program_then_misses() -> None:
    log = "cp: cannot stat '/scratch/a/x': Stale file handle\n" + TRACE.format("")
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/x'\n"
    assert judge((log + missing).encode(), FAILED).label is Label.TRANSIENT


CUDA_INIT = (
    "/x/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did"
    " you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error {}"
    " (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:109.)\n  return torch._C._cuda_getDeviceCount() > 0\n"
)
NEEDS_GPUS = (
    'Traceback (most recent call last):\n  File "/home/a/train.py", line 30, in <module>\n    assert torch.cuda.{}\n'
    "AssertionError\n"
)


@pytest.mark.parametrize("asked", ["is_available()", "device_count() == 8"])
@pytest.mark.parametrize(
    ("error", "label"),
    [
        ("802: system not yet initialized", Label.TRANSIENT),
        ("46: all CUDA-capable devices are busy or unavailable", Label.UNSURE),
        ("999: unknown error", Label.UNSURE),
    ],
)
def test_a_node_whose_cuda_does_not_start_is_no_assertion_of_the_program(error: str, label: Label, asked: str) -> None:
    """PyTorch only warns of it; the program then finds no GPU."""
    assert judge((CUDA_INIT.format(error) + NEEDS_GPUS.format(asked)).encode()).label is label
    assert judge(NEEDS_GPUS.format(asked).encode()).category == "assertion"


@pytest.mark.parametrize("after", [*(TRACE.format("") + each for each in (*ERRORS, *OTHERS)), STEPS, "all done\n"])
def test_a_program_that_goes_on_without_a_gpu_does_not_fail_for_it(after: str) -> None:
    for attempt in (None, FAILED):
        alone = judge(after.encode(), attempt)
        warned = judge((CUDA_INIT.format("802: system not yet initialized") + after).encode(), attempt)
        assert (warned.category, warned.label) == (alone.category, alone.label)
