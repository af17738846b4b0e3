"""Figures of messages decide who filled a node, a pod or a card."""

import pytest

from perdure.triage.evidence.host_memory import keeps_to_its_request, refused_bytes
from perdure.triage.judge import judge
from perdure.triage.text.quantities import MIB
from perdure.triage.verdict import Label

EVICTED = (
    "The node was low on resource: {what}. Threshold quantity: 100Mi, available: 31Mi. Container c was using "
    "{used}, {told}"
)
OLD, NEW = "which exceeds its request of {}.", "request is {}, has larger consumption of {}."


def evicted(used: str, asked: str, form: str, what: str = "memory") -> str:
    return EVICTED.format(what=what, used=used, told=form.format(asked, what))


@pytest.mark.parametrize("form", [OLD, NEW])
@pytest.mark.parametrize(
    ("used", "asked", "keeps"),
    [
        ("4100Mi", "32Gi", True),
        ("33554432Ki", "32Gi", True),
        ("33554433Ki", "32Gi", False),
        ("9Gi", "512Mi", False),
        ("9Gi", "0", False),
        ("5G", "5000M", False),  # 5,000 times 2^20 is less than 5 times 2^30
    ],
)
def test_a_pod_is_charged_with_what_it_used_beyond_its_request(form: str, used: str, asked: str, keeps: bool) -> None:
    for what in ("memory", "ephemeral-storage"):
        line = evicted(used, asked, form, what)
        assert keeps_to_its_request(line.encode()) is keeps
        verdict = judge(f"Status: Failed\n{line}\n".encode())
        assert verdict.category == ("k8s_evict" if keeps else "host_oom")
        assert (verdict.label is Label.TRANSIENT) is keeps


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError: Unable to allocate 512. KiB for an array with shape (256, 256) and data type float64",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: not enough memory: you tried to "
        "allocate "
        "8192 bytes.",
        "java.lang.OutOfMemoryError: Native memory allocation (mmap) failed to map 65536 bytes",
        "Error: cannot allocate vector of size 7.6 Mb",
        "Error allocating 4096 bytes",
    ],
)
def test_little_memory_that_is_refused_neither_stops_nor_passes_for_too_big_a_job(line: str) -> None:
    verdict = judge(f"step 7 loss 0.3\n{line}\n".encode())
    assert (verdict.label, verdict.category) == (Label.UNSURE, "host_oom")
    assert "little memory" in verdict.summary


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError: Unable to allocate 93.1 GiB for an array with shape (50000, 250000) and data type float64",
        "MemoryError: Unable to allocate 745. GiB for an array with shape (100000, 1000000) and data type float64",
        "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 137438953472 bytes.",
        "OSError: [Errno 12] Cannot allocate memory: '/data/p1/x'",  # the 1 of a path
        "cc1plus: out of memory allocating 65536 bytes after a total of 7340032 bytes: virtual memory exhausted",
        "MemoryError",
    ],
)
def test_a_large_request_and_one_without_a_figure_stop_as_before(line: str) -> None:
    size = refused_bytes(line.encode())
    assert size is None or size > 64 * MIB
    verdict = judge(f"step 7 loss 0.3\n{line}\n".encode())
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "host_oom")
