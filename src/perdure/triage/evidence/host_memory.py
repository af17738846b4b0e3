"""What messages tell in numbers of a host's memory: how much was refused, and who used more than it had asked for."""

from __future__ import annotations

from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.quantities import MIB, SIZE, SIZE_WITH_UNIT, size_in, to_bytes

LITTLE_BYTES = 64 * MIB
"""So little memory any job is given: where it is refused, it is not the request that is too large."""

_REFUSED = (
    rf"(?i)(?:unable|failed|failure|fail(?:s|ed)?|cannot|can.t|could not|error|not enough memory|out of memory)"
    rf"\b.{{0,60}}?\b(?:alloc\w*|map|mmap|commit_memory|request for|vector of size"
    rf"|reserve)[^\d/'\"]{{0,40}}{SIZE_WITH_UNIT}"
    rf"|\btried to allocate {SIZE_WITH_UNIT}|os::commit_memory\(0x[0-9a-f]+, {SIZE}"
)
_AFTER_ITS_OWN = r"(?i)after a total of \d|\(limit[:= ]|memory limit|exceed"
_USED = rf"\bwas using {SIZE},? (?:which exceeds its request of {SIZE}|request is {SIZE})"


def refused_bytes(line: bytes) -> int | None:
    """How much memory of the host a message says was refused; None where it does not say, or tells of a limit.

    >>> refused_bytes(b"Unable to allocate 2.00 MiB for an array with shape (512, 512)") // MIB
    2
    """
    return None if compiled(_AFTER_ITS_OWN).search(line) else size_in(_REFUSED, line)


def keeps_to_its_request(line: bytes) -> bool:
    """Whether an eviction names what the pod used and had asked for, and it used no more."""
    found = capturing(_USED).search(line)
    if not found:
        return False
    asked, unit = found.group(3, 4) if found[3] is not None else found.group(5, 6)
    return to_bytes(found[1], found[2]) <= to_bytes(asked, unit)
