"""Plans of faults: what they say, when they hold, and what a kernel writes of them."""

from __future__ import annotations

import pytest

from perdure.emulation.faults import FaultKind, error_of, kernel_line, read_fault
from perdure.errors import InputError


def test_a_fault_holds_on_its_device_from_its_instant_on() -> None:
    fault = read_fault("slow2.5@10s+60s#3")
    assert (fault.kind, fault.value, fault.gpu) == (FaultKind.SLOW, 2.5, 3)
    assert [fault.active(now, 0, 3) for now in (9.9, 10.0, 69.9, 70.0)] == [False, True, True, False]
    assert not fault.active(20.0, 0, 2)
    assert fault.slows(link=False)
    assert not read_fault("link4@0").slows(link=False)


def test_what_breaks_stays_broken_and_what_slows_holds_for_its_step() -> None:
    broken, slow = read_fault("ecc@step5"), read_fault("slow@step5")
    assert [broken.active(0.0, step, 0) for step in (4, 5, 6)] == [False, True, True]
    assert [slow.active(0.0, step, 0) for step in (4, 5, 6)] == [False, True, False]


def test_the_kernel_writes_what_the_driver_does() -> None:
    line = kernel_line(read_fault("off-bus@3s"), 2, 4711)
    assert line == "NVRM: Xid (PCI:0000:1a:00): 79, pid=4711, GPU has fallen off the bus."
    assert kernel_line(read_fault("slow2@3s"), 0, 1) == ""
    assert str(error_of(read_fault("ecc@1"))).startswith("CUDA error: uncorrectable ECC error encountered\n")


@pytest.mark.parametrize(
    "spec", ["", "xid", "xid79", "melt@3", "slow2@-1", "xid79@3s#", "slow0.5@1", "xid80@1", "slow2@1e9"]
)
def test_what_is_no_fault_gets_one_line(spec: str) -> None:
    with pytest.raises(InputError, match="--fault: "):
        read_fault(spec)
