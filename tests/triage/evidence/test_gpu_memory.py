"""Whose memory fills a card: read from the figures of the message."""

import pytest

from perdure.triage.evidence.gpu_memory import CONTEXT_BYTES, GIB, GpuMemory, gpu_memory
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label

NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of 40.00 GiB "
    "of which {free} is free. {others}Including non-PyTorch memory, this process has {own} memory in use. Of the "
    "allocated memory 2.00 GiB is allocated by PyTorch, and 30.00 MiB is reserved by PyTorch but unallocated."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate {wanted} (GPU 0; 40.00 GiB total capacity; {own} already "
    "allocated; {free} free; {own} {kept})"
)
OTHER = "Process 81 has {} memory in use. "


def new(own: str, free: str = "12.00 MiB", wanted: str = "64.00 MiB", others: str = "") -> str:
    return NEW.format(own=own, free=free, wanted=wanted, others=others)


def old(
    own: str, free: str = "12.00 MiB", wanted: str = "64.00 MiB", kept: str = "reserved in total by PyTorch"
) -> str:
    return OLD.format(own=own, free=free, wanted=wanted, kept=kept)


@pytest.mark.parametrize(
    "message",
    [
        new("3.00 GiB", others=OTHER.format("36.90 GiB")),
        new("3.00 GiB"),  # the others are not listed: a container hides them
        new("20.00 GiB", others=OTHER.format("19.90 GiB")),
        new("3.00 GiB").replace("capacity", "capacty"),
        new("812.00 MiB", free="0 bytes", others=OTHER.format("39.20 GiB")),
        old("3.00 GiB"),
        old("800.00 MiB", kept="cached"),
        old("3.00 GiB").replace("CUDA", "HIP"),
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 40.00 GiB of which 9.00 MiB is "
        "free. Process 7 has 31.00 GiB memory in use. Process 8 has 8.90 GiB memory in use. Of the allocated memory "
        "8.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
        "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; "
        "total memory reported: 42949672960",
    ],
)
def test_a_card_that_others_fill_is_busy(message: str) -> None:
    found = gpu_memory(message)
    assert found is not None
    assert found.is_held_by_others
    verdict = judge(f"step 7 loss 0.3\n{message}\n".encode())
    assert (verdict.label, verdict.category, verdict.bound) == (Label.TRANSIENT, "gpu_busy", Bound.NODE)
    assert "fit" not in verdict.summary


@pytest.mark.parametrize(
    "message",
    [
        new("39.80 GiB"),
        new("38.90 GiB", others=OTHER.format("516.00 MiB")),  # a display, a monitor
        new("3.00 GiB", free="30.00 GiB", wanted="100.00 GiB", others=OTHER.format("7.00 GiB")),  # nor alone
        new("30.00 GiB", free="1.00 GiB", wanted="12.00 GiB", others=OTHER.format("9.00 GiB")),
        old("38.50 GiB"),
        old("20.00 GiB", free="17.00 GiB", wanted="30.00 GiB"),
        new("9.90 GiB", free="30.00 GiB").replace("Of the allocated", "10.00 GiB allowed; Of the allocated"),
        "CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_a_program_that_fills_the_card_does_not_fit(message: str) -> None:
    assert (found := gpu_memory(message)) is None or not found.is_held_by_others
    verdict = judge(f"step 7 loss 0.3\n{message}\n".encode())
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "gpu_oom")


def test_the_jobs_own_processes_are_no_strangers() -> None:
    message = new("20.00 GiB", others=OTHER.format("19.90 GiB"))
    assert judge(f"{message}\n  exitcode  : 1 (pid: 82)\n".encode()).category == "gpu_busy"
    assert judge(f"{message}\n  exitcode  : 1 (pid: 81)\n".encode()).category == "gpu_oom"


def test_units_are_read() -> None:
    found = gpu_memory(old("1.00 GiB", free="0 bytes", wanted="1024 KiB"))
    assert found is not None
    assert (found.total, found.free, found.wanted) == (40 * GIB, 0, 1 << 20)
    assert found.others == 38 * GIB  # less its own context


def test_a_card_on_which_not_even_a_context_fits_is_all_others() -> None:
    said = "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (GPU 0; 40.00 GiB total capacity)"
    assert gpu_memory(said) == GpuMemory(40 * GIB, 0, 0, 0, 40 * GIB)


def test_what_is_not_said_to_be_unused_is_nothing() -> None:
    found = gpu_memory("CUDA out of memory. (GPU 0; 40.00 GiB total capacity; 1.00 GiB already allocated)")
    assert found is not None
    assert found.own == GIB + CONTEXT_BYTES


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_a_full_card_without_figures_is_probed(line: str) -> None:
    """The driver says it of a card that others hold as of one that the job itself fills."""
    log = f'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    net.cuda()\n{line}\n'
    verdict = judge(log.encode())
    assert (verdict.label, verdict.category) == (Label.UNSURE, "gpu_busy")


def test_where_to_look_a_code_up_is_no_sign() -> None:
    line = (
        "Search for `cudaErrorMemoryAllocation' in https://docs.nvidia.com/cuda/cuda-runtime-api/ for more information."
    )
    assert judge(f"step 1\n{line}\n".encode()).category == "unknown"
