"""What a batch script says to Slurm itself: options of sbatch in its ``#SBATCH`` lines, and whether it submits jobs."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import NamedTuple

import re2

from perdure.backends.script import lines_of

_RESUBMITS = re2.compile(r"\b(?:sbatch|scontrol\s+requeue\w*)\b")
_APPENDS = re2.compile(r"--open-mode[=\s]+[\"']?a")
_SIGNAL = re2.compile(r"(--signal[=\s]+)[\"']?((?:[RB]{1,2}:)?(?:(?i:SIG)?([A-Za-z0-9]{1,7}))(?:@(\d{1,5}))?)")
_PARTITIONS = re2.compile(r"(?:^|\s)(?:-p\s*|--partition[=\s]\s*)[\"']?([\w.,\-]{1,512})")
_WARNS_BEFORE_S = 60.0  # where --signal does not say it


class WalltimeWarning(NamedTuple):
    """The signal that Slurm is asked to send before the walltime."""

    signal: int
    before_s: float
    option: str  # as it was written


@dataclass(frozen=True, slots=True)
class SbatchOptions:
    """What a script asks of Slurm."""

    appends: bool = False  # the job's own files are not cut at a start
    resubmits: bool = False  # it submits jobs, or puts itself back
    warning: WalltimeWarning | None = None
    partitions: str = ""  # "a,b", as it was written


def appends(text: str) -> bool:
    """Whether options of sbatch ask that files are not cut when the job starts."""
    return _APPENDS.search(text) is not None


def warning_of(text: str) -> WalltimeWarning | None:
    """The ``--signal=[B:]SIG[@TIME]`` among options of sbatch; the last one counts.

    >>> warning_of("sbatch --signal=B:USR1@80 train.sh")
    WalltimeWarning(signal=10, before_s=80.0, option='--signal=B:USR1@80')
    """
    told = None
    for found in _SIGNAL.finditer(text):
        known = signal.Signals.__members__.get(f"SIG{found[3].upper()}")
        number = int(found[3]) if found[3].isdecimal() else int(known or 0)
        told = WalltimeWarning(number, float(found[4] or _WARNS_BEFORE_S), f"--signal={found[2]}") if number else told
    return told


def partitions_of(text: str) -> str:
    """The ``--partition`` among options of sbatch; the last one counts; "" if it is not given.

    >>> partitions_of("sbatch -N 2 -p a,b train.sh")
    'a,b'
    """
    found = [match[1] for match in _PARTITIONS.finditer(text)]
    return found[-1] if found else ""


def asked_by(script: bytes) -> SbatchOptions:
    """Read a batch script."""
    lines = list(lines_of(script))
    options = [line for line in lines if line.startswith("#SBATCH")]
    commands = (line for line in lines if not line.startswith("#"))
    return SbatchOptions(
        any(map(appends, options)),
        any(_RESUBMITS.search(line) for line in commands),
        warning_of("\n".join(options)),
        partitions_of("\n".join(options)),
    )
