"""What the figures of a log say of a full disk, a quota or a time limit: that it was reached, or that it was not.

A message that says "full" and tells of room, in its own figures or in a table of quotas or of df near it, is not
explained by them; nor is one that says "time limit" long before the limit. What needs more than there is in all fits on
no node.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.triage.evidence.disk_space import DiskSpace, disk_of, disk_space, mounted_disks
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.quota_tables import QuotaRow, quota_rows, row_of
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.evidence.rules import own_rules
from perdure.triage.evidence.time_used import TimeUsed, time_used
from perdure.triage.text.clean import scrub
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.verdict import TRACEBACK, Bound

_OF_DISKS, _OF_TIME = frozenset({"disk_quota", "node_disk"}), "time_limit"
_PATH = r"(/[\w.+@%=,~-]+(?:/[\w.+@%=,~-]+)*)"
_SHORT_WRITE = r"\b\d+ requested and \d+ written\b"
_OWN_DISK = r"^/(?:tmp|var/tmp|dev/shm|local\w*|lscratch|nvme\w*|mnt/nvme\w*)/"
LINES_BEFORE = 10
_FULL = "disk-full"
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
    elif cause.category in _OF_DISKS and _writes_to_own_disk(primary):
        found = _of_own_disk(cause)
    elif cause.category in _OF_DISKS and cause.name != _SIZE_OF_FILE:
        space = disk_space(primary.text.encode())
        found = _of_space(cause, space) if space is not None else _of_tables(cause, primary)
    return primary if found is None else replace(primary, cause=found)


def _writes_to_own_disk(primary: Hit) -> bool:
    """Whether a short write names no file, and the last file that was named before its traceback is the node's own."""
    if not capturing(_SHORT_WRITE).search(primary.text.encode()):
        return False
    before = _before(primary).rpartition(TRACEBACK.encode())[0].split(b"\n")[-LINES_BEFORE:]
    paths = [found[1] for found in capturing(_PATH).finditer(b"\n".join(before))]
    return bool(paths) and capturing(_OWN_DISK).search(paths[-1]) is not None


def _before(primary: Hit) -> bytes:
    """What the log says shortly before a line."""
    block = primary.block
    lines = block.window.data[: block.end].split(b"\n")[: primary.line - block.window.first_line]
    return scrub(b"\n".join(lines)[-NEAR_BYTES:])


def _of_own_disk(cause: Cause) -> Cause:
    return replace(
        cause,
        category="node_disk",
        part_of="",
        bound=Bound.NODE,
        p_transient=OPEN,
        says="a file was written in part, as where a disk is full; the file before it was on the node's own disk",
        advice="Look at the node's own disk with df; if it is full for this job alone, write elsewhere.",
        unproven=True,
    )


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


def _of_tables(cause: Cause, primary: Hit) -> Cause | None:
    """What tables of quotas or of df, near the message or after it, say of the disk that the message names."""
    line, block = primary.text.encode(), primary.block
    paths = [found[1].decode("utf-8", "replace") for found in capturing(_PATH).finditer(line)]
    start = max(0, block.start - NEAR_BYTES)
    data = scrub(block.window.data[start : start + MOST_BYTES])
    path = paths[-1] if paths else ""
    of_quotas = _of_quotas(cause, path, list(quota_rows(data)))
    if of_quotas or path:
        return of_quotas or _of_df(cause, path, b"quota" in line.lower(), data)
    return _of_full_disk(cause, _before(primary)) or _of_disk_in_use(cause, _before(primary), data)


def _of_quotas(cause: Cause, path: str, rows: Sequence[QuotaRow]) -> Cause | None:
    """What tables of quotas say: which one is full, or that none is."""
    of_path = row_of(path, rows) if path else None
    row = of_path or next((row for row in rows if row.size.is_full or row.files.is_full), None)
    if row is None:
        return None
    if row.size.is_full or row.files.is_full:
        room = (
            "" if row.size.is_full else "Remove files, or keep many small ones in an archive; room for bytes is left."
        )
        says = f"{cause.says} ({row.told}, by the table of quotas)"
        return replace(cause, says=says, advice=room or cause.advice, p_transient=min(cause.p_transient, LASTING))
    if not row.has_room or row is not of_path:
        return None
    return _open(cause, f"a write was refused as if a quota were full, and the table of quotas shows {row.told}")


def _of_df(cause: Cause, path: str, names_quota: bool, data: bytes) -> Cause | None:
    """What tables of df say of the disk that a path is on; of a quota they say nothing."""
    disks = list(mounted_disks(data))
    of_bytes = disk_of(path, [disk for disk in disks if not disk.of_files])
    of_files = disk_of(path, [disk for disk in disks if disk.of_files])
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
    if not of_bytes.has_room or names_quota:
        return None
    shown = f"{of_bytes.path} at {of_bytes.percent} %"
    return _open(cause, f"a write was refused as if the disk were full, and df shows {shown}")


def _of_full_disk(cause: Cause, before: bytes) -> Cause | None:
    """What a table of df before the message says that names no file: the one disk that was full is the node's own."""
    full = {disk.path for disk in mounted_disks(before) if disk.is_full and not disk.of_files}
    if len(full) != 1 or not compiled(_OWN_DISK).search(f"{(path := full.pop())}/".encode()):
        return None
    return replace(
        cause,
        category="node_disk",
        part_of="",
        bound=Bound.NODE,
        p_transient=OPEN,
        says=f"the node's own disk {path} was full before the job wrote to it, by df",
        advice="Retry on another node; tell the operators whose files fill the disk.",
        unproven=True,
    )


def _of_disk_in_use(cause: Cause, before: bytes, data: bytes) -> Cause | None:
    """What a table of df says where the message names no file: the disk is full that the job wrote to before."""
    used = {found[1].decode("utf-8", "replace") for found in capturing(_PATH).finditer(before)}
    full = {disk.path: disk for disk in mounted_disks(data) if disk.is_full and not disk.of_files and disk.path != "/"}
    written = [disk for path, disk in full.items() if any(each.startswith(f"{path}/") for each in used)]
    if len(written) != 1 or compiled(_OWN_DISK).search(f"{written[0].path}/".encode()):
        return None
    rule, disk = own_rules().named(_FULL), written[0]
    told = rule.cause if rule is not None else cause
    return replace(told, says=f"{told.says or 'the disk is full'} ({disk.path} is at {disk.percent} %, by df)")


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
