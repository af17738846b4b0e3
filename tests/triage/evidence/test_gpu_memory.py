"""Whose memory fills a card: read from the figures of the message."""

import pytest

from perdure.triage.evidence.gpu_memory import CONTEXT_BYTES, GpuMemory, gpu_memory
from perdure.triage.judge import judge
from perdure.triage.text.quantities import GIB
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


AT_START = {
    "vLLM": "ValueError: Free memory on device cuda:0 (7.9/39.49 GiB) on startup is less than desired GPU memory "
    "utilization (0.9, 35.54 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    "vLLM, older": "ValueError: Free memory on device (11.02/23.65 GiB) on startup is less than desired GPU memory "
    "utilization (0.92, 21.76 GiB).",
    "SGLang": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
    "avail mem=3.4 GB of 47.5 GB before loading the model",
    "another": "RuntimeError: Only 2.1 GiB of 39.6 GiB GPU memory is free",
    "vLLM, measured": "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free "
    "memory 38.7 "
    "GiB. This happens when other processes sharing the same container release GPU memory.",
}


@pytest.mark.parametrize("server", AT_START)
def test_a_card_that_a_server_finds_full_before_it_loads_is_busy(server: str) -> None:
    verdict = judge(f"starting the engine\n{AT_START[server]}\n".encode())
    assert (verdict.label, verdict.category, verdict.bound) == (Label.TRANSIENT, "gpu_busy", Bound.NODE)


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: Free memory on device (77.61/79.15 GiB) on startup is less than desired GPU memory utilization "
        "(0.99, 78.36 GiB).",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
    ],
)
def test_a_server_that_asks_for_more_than_an_empty_card_has_stops(message: str) -> None:
    assert judge(f"starting the engine\n{message}\n".encode()).label is Label.DETERMINISTIC


CREATED = (
    "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1613] Created device "
    "/job:localhost/replica:0/task:0/device:GPU:0 with {} MB memory:  -> device: 0, name: NVIDIA A100"
)


@pytest.mark.parametrize(
    "failure",
    [
        "tensorflow.python.framework.errors_impl.InternalError: Blas GEMM launch failed : a.shape=(8, 4), m=8, "
        "n=4, k=4",
        "tensorflow.python.framework.errors_impl.InternalError: Blas xGEMMBatched launch failed : a.shape=[1,2,3]",
        "RuntimeError: CUDNN_STATUS_NOT_INITIALIZED",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
        "shape[256,128]",
    ],
)
def test_a_card_of_which_tensorflow_got_next_to_nothing_is_no_fault_of_the_program(failure: str) -> None:
    verdict = judge(f"{CREATED.format(211)}\n{failure}\n".encode())
    assert (verdict.label, verdict.category) == (Label.UNSURE, "gpu_busy")
    assert judge(f"{CREATED.format(38_124)}\n{failure}\n".encode()).category != "gpu_busy"


def test_what_others_have_is_what_they_are_told_to_have() -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of "
        "48.00 GiB of which 1.00 GiB is free. Process 7 has 20.00 GiB memory in use. Including non-PyTorch memory, "
        "this process has 6.00 GiB memory in use."
    )
    memory = gpu_memory(line)
    assert memory is not None
    assert (memory.others, memory.pids) == (20 << 30, ("7",))
