"""What a program's end means: its exit code, its signal, and the last thing that it said.

These are hints for whoever handles the exception, no verdict: `perdure why` reads the whole log. Exit codes follow
sysexits(3), the shell's convention (128 + signal) and NVIDIA's resiliency extension (93: no progress, do not restart).
"""

from __future__ import annotations

from signal import Signals

import re2

from perdure.coordination.bridges.bridged import Meaning
from perdure.coordination.record import Transient

_AGAIN, _NEVER = frozenset({75}), frozenset({78, 93})
_NOT_RUNNABLE = frozenset({126, 127})
_SIGNALS = range(1, 65)

_SAID = tuple(
    (re2.compile(f"(?i){pattern}"), Meaning(kind, transient=transient))
    for pattern, kind, transient in (
        (r"nccl|ProcessGroup|watchdog (?:caught|got)", "process.nccl", Transient.YES),
        (r"out ?of ?memory|CUBLAS_STATUS_ALLOC_FAILED|MemoryError|std::bad_alloc", "app.oom", Transient.NO),
        (r"mesh[ -]*tangl|negative (?:jacobian|volume)|tangled mesh", "app.mesh", Transient.NO),
        (r"\bnan\b|\bnon-?finite\b|\bloss (?:is|was|became) inf", "app.nan", Transient.UNKNOWN),
        (
            r"shapes? .{0,80}(?:cannot be multiplied|mismatch|invalid)|size mismatch|"
            r"sizes? of tensors? |\bshape '.{0,80}' is invalid|mat1 and mat2",
            "app.shape",
            Transient.NO,
        ),
        (r"No space left on device|Disk quota exceeded", "storage.quota.over", Transient.UNKNOWN),
        (r"Stale file handle|Transport endpoint|Input/output error", "storage.degraded", Transient.YES),
        (r"Rendezvous(?:Timeout|Connection|Closed)|RendezvousError", "launcher.transient", Transient.YES),
        (
            r"(?:ModuleNotFound|Import|Syntax|Indentation|Name|Attribute|FileNotFound|NotADirectory|Permission)Error",
            "process.exit",
            Transient.NO,
        ),
    )
)


def of_message(text: str) -> Meaning | None:
    """What an error message names; None where it names nothing in particular."""
    return next((meaning for pattern, meaning in _SAID if pattern.search(text)), None)


def of_exit(code: int) -> Meaning | None:
    """What an exit code means, negative for a signal as Python has it; None for 0."""
    if code == 0:
        return None
    if signal_of(code):
        return Meaning("process.signal")
    if code in _NOT_RUNNABLE:
        return Meaning("launcher.permanent", transient=Transient.NO)
    told = Transient.YES if code in _AGAIN else Transient.NO if code in _NEVER else Transient.UNKNOWN
    return Meaning("process.exit", transient=told)


def signal_of(code: int) -> int:
    """The signal behind an exit code, -n or 128 + n; 0 for none."""
    number = -code if code < 0 else code - 128
    return number if number in _SIGNALS else 0


def signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def of_wait_status(status: int) -> int:
    """The exit code in a status of wait(2), negative for a signal."""
    return -(status & 0x7F) if status & 0x7F else status >> 8 & 0xFF
