"""What the figures of a log say of a full disk, a quota or a time limit: that it was reached, or that it was not.

A message that says "full" and tells of room, in its own figures or in a table of df near it, is not explained by them;
nor is one that says "time limit" long before the limit. What needs more than there is in all fits on no node.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.triage.evidence.disk_space import DiskSpace, disk_of, disk_space, mounted_disks
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.evidence.time_used import TimeUsed, time_used
from perdure.triage.text.clean import scrub
from perdure.triage.text.patterns import capturing
from perdure.triage.verdict import Bound

_OF_DISKS, _OF_TIME = frozenset({"disk_quota", "node_disk"}), "time_limit"
_PATH = r"(/[\w.+@%=,~-]+(?:/[\w.+@%=,~-]+)*)"
_SIZE_OF_FILE = "file-size-limit"  # which is no limit of the disk
LASTING, OPEN = 0.04, 0.4
NEAR_BYTES, MOST_BYTES = 4096, 128 * 1024
"""A table of df tells of the moment of a failure where it begins this near before it, or follows."""


def reckoned(primary: Hit) -> Hit:
    """`primary`, with what the figures in its line, or in a table of the log, say of it."""
    cause, found = primary.cause, None
    if cause.force is Force.DECISIVE:
        return primary
    if cause.category == _OF_TIME and (used := time_used(primary.text.encode())) is not None:
        found = _of_time(cause, used)
    elif cause.category in _OF_DISKS and cause.name != _SIZE_OF_FILE:
        space = disk_space(primary.text.encode())
        found = _of_space(cause, space) if space is not None else _of_table(cause, primary)
    return primary if found is None else replace(primary, cause=found)


def _of_time(cause: Cause, used: TimeUsed) -> Cause:
    if used.has_left:
        return _open(cause, f"a time limit is named after {used.told}")
    return replace(cause, says=f"{cause.says} ({used.told})")


def _of_space(cause: Cause, space: DiskSpace) -> Cause:
    """What the message's own figures say."""
    if space.has_room:
        return _open(cause, f"it says that a disk or quota is full, and tells of room ({space.told})")
    if space.never_fits:
        return replace(
            cause,
            category="disk_quota",
            part_of="",
            bound=Bound.NOTHING,
            infrastructure=False,
            p_transient=LASTING,
            says=f"more is needed than there may be in all ({space.told})",
            advice="Write less, write elsewhere, or ask for a larger quota.",
        )
    return replace(cause, says=f"{cause.says} ({space.told})")


def _of_table(cause: Cause, primary: Hit) -> Cause | None:
    """What a table of df, near the message or after it, says of the disk that the message names."""
    line, block = primary.text.encode(), primary.block
    paths = [found[1].decode("utf-8", "replace") for found in capturing(_PATH).finditer(line)]
    start = max(0, block.start - NEAR_BYTES)
    disks = list(mounted_disks(scrub(block.window.data[start : start + MOST_BYTES])))
    if not paths or not disks:
        return None
    of_bytes = disk_of(paths[-1], [disk for disk in disks if not disk.of_files])
    of_files = disk_of(paths[-1], [disk for disk in disks if disk.of_files])
    if of_files is not None and of_files.is_full:
        return replace(
            cause,
            says=f"no more files may be made on {of_files.path}, by df",
            advice="Remove files, or keep many small ones in an archive; room for bytes does not help.",
        )
    if of_bytes is None:
        return None
    if of_bytes.is_full:
        return replace(cause, says=f"{cause.says} ({of_bytes.path} is at {of_bytes.percent} %, by df)")
    if not of_bytes.has_room or b"quota" in line.lower():
        return None
    shown = f"{of_bytes.path} at {of_bytes.percent} %"
    return _open(cause, f"a write was refused as if the disk were full, and df shows {shown}")


def _open(cause: Cause, says: str) -> Cause:
    """The cause, as one that its figures do not explain."""
    return replace(
        cause,
        p_transient=OPEN,
        says=says,
        advice="Look at quotas (bytes and files), at limits on single files, and at who else writes there."
        if cause.category in _OF_DISKS
        else "Look for another limit: of the partition, of a reservation, or of the program itself.",
        unproven=True,
    )
