"""What goes wrong with emulated GPUs, on which of them and when, as a plan that a user writes.

    xid79@30s        from 30 s on every call fails as after Xid 79 (the GPU has fallen off the bus)
    ecc@step100#2    an uncorrectable memory error in GPU 2's step 100
    slow2.5@10s+60s  from 10 s on for 60 s everything takes 2.5 times as long (a GPU that is too hot)
    link4@0s#1       copies and collectives of GPU 1 take four times as long
    hang600@20s      a call at 20 s takes 600 s longer

Times are of the program's clock. The words of errors are those of CUDA and NCCL; those of the kernel log are the
driver's, as NVIDIA's "Xid errors" documents them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path
from types import MappingProxyType

from perdure.errors import InputError


class FaultKind(StrEnum):
    """What happens."""

    XID = "xid"
    ECC = "ecc"
    BUS = "off-bus"
    SLOW = "slow"
    LINK = "link"
    HANG = "hang"


_XID_SAYS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        13: ("an illegal instruction was encountered", "Graphics Exception: ESR 0x504648=0x10e0009"),
        31: (
            "an illegal memory access was encountered",
            "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2c_8a000000. Fault is of type FAULT_PDE "
            "ACCESS_TYPE_VIRT_READ",
        ),
        48: ("uncorrectable ECC error encountered", "An uncorrectable double bit error (DBE) has been detected on GPU"),
        74: ("unspecified launch failure", "NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0)"),
        79: ("unknown error", "GPU has fallen off the bus."),
        94: ("uncorrectable ECC error encountered", "Contained: SM (0x1). RST: No, D-RST: No"),
        95: ("uncorrectable ECC error encountered", "Uncontained: FBHUB. RST: Yes, D-RST: No"),
        119: ("unspecified launch failure", "Timeout after 6s of waiting for RPC response from GPU0 GSP!"),
    }
)
"""By Xid: what CUDA tells the program, and what the driver writes to the kernel log."""

XIDS = tuple(_XID_SAYS)

_SPEC = re.compile(
    r"(?P<kind>off-bus|xid|ecc|slow|link|hang)(?P<value>\d{1,6}(?:\.\d{1,3})?)?"
    r"@(?:step(?P<step>\d{1,9})|(?P<at>\d{1,9}(?:\.\d{1,3})?)s?)(?:\+(?P<lasts>\d{1,9}(?:\.\d{1,3})?)s?)?(?:#(?P<gpu>\d{1,6}))?"
)


class DeviceError(Exception):
    """What a broken device answers; the framework's own error is made of it."""


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """One fault of a plan; `value` is a factor, a number of Xid, or the seconds of a hang."""

    kind: FaultKind
    value: float
    at_s: float | None
    step: int | None
    lasts_s: float | None
    gpu: int | None  # None: all

    def active(self, now: float, step: int, gpu: int) -> bool:
        """Whether it is there at an instant, in a step, on a device."""
        if self.gpu not in (None, gpu):
            return False
        if self.step is not None:
            return step == self.step or (step > self.step and self.breaks)
        begin = self.at_s or 0.0
        return begin <= now < (float("inf") if self.lasts_s is None else begin + self.lasts_s)

    @property
    def breaks(self) -> bool:
        """Whether calls fail, rather than take longer."""
        return self.kind in (FaultKind.XID, FaultKind.ECC, FaultKind.BUS)

    @property
    def xid(self) -> int | None:
        """What the driver writes to the kernel log."""
        if self.kind is FaultKind.XID:
            return int(self.value)
        return {FaultKind.ECC: 48, FaultKind.BUS: 79}.get(self.kind)

    def slows(self, link: bool) -> bool:
        return self.kind is FaultKind.SLOW or (link and self.kind is FaultKind.LINK)


def read_fault(spec: str) -> DeviceFault:
    """Read one fault as a user writes it. Raises `InputError`.

    >>> read_fault("slow2.5@10s+60s#3").value
    2.5
    """
    found = _SPEC.fullmatch(spec.strip())
    if found is None:
        raise InputError(
            "--fault", f"{spec[:80]!r} is no fault", "Write one as xid79@30s, slow2.5@10s+60s or link4@0s#1"
        )
    kind = FaultKind(found["kind"])
    value = float(found["value"] or {FaultKind.XID: 79, FaultKind.HANG: 1e6}.get(kind, 2.0))
    if kind is FaultKind.XID and value not in _XID_SAYS:
        raise InputError("--fault", f"Xid {value:g} is not known here", f"Use one of: {', '.join(map(str, XIDS))}")
    if kind in (FaultKind.SLOW, FaultKind.LINK) and value < 1:
        raise InputError("--fault", f"{kind} {value:g} makes it quicker", "Give a factor of 1 or more")
    at, step, lasts, gpu = (found[name] for name in ("at", "step", "lasts", "gpu"))
    return DeviceFault(
        kind, value, None if at is None else float(at), None if step is None else int(step),
        None if lasts is None else float(lasts), None if gpu is None else int(gpu),
    )  # fmt: skip


def read_faults(specs: Sequence[str], gpus: int) -> tuple[DeviceFault, ...]:
    """Read faults of so many devices. Raises `InputError`, also for one of a device that is not there."""
    found = tuple(read_fault(each) for each in specs)
    for spec, fault in zip(specs, found, strict=True):
        if fault.gpu is not None and fault.gpu >= gpus:
            raise InputError("--fault", f"{spec}: there is no GPU {fault.gpu}", f"Name one of 0 to {gpus - 1}")
    return found


def error_of(fault: DeviceFault) -> DeviceError:
    """What CUDA tells the program of it."""
    said = _XID_SAYS[fault.xid or 79][0]
    return DeviceError(
        f"CUDA error: {said}\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
        "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with "
        "`TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


def slowdown(faults: Sequence[DeviceFault], now: float, step: int, gpu: int, link: bool) -> float:
    """How many times as long work takes on a device; `link`: a copy or a collective."""
    return prod(each.value for each in faults if each.active(now, step, gpu) and each.slows(link))


def kernel_line(fault: DeviceFault, gpu: int, pid: int) -> str:
    """What the driver writes to the kernel log of it, and nothing for a fault without an Xid."""
    if fault.xid is None:
        return ""
    return f"NVRM: Xid (PCI:0000:{0x18 + gpu:02x}:00): {fault.xid}, pid={pid}, {_XID_SAYS[fault.xid][1]}"


def to_kernel_log(path: Path, fault: DeviceFault, gpu: int, pid: int) -> None:
    """Append that line to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{kernel_line(fault, gpu, pid)}\n")
