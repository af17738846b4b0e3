"""Whether the kernel has killed for lack of memory: the count of the control group that this process is in."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")


def oom_kills(membership: Path = Path("/proc/self/cgroup"), mount: Path = _MOUNT) -> int:
    """Processes of this control group that were killed so far; 0 where nobody counts."""
    return max((_count(path) for path in _counters(membership, mount)), default=0)


def _counters(membership: Path, mount: Path) -> list[Path]:
    """Version 2 counts in ``memory.events``, version 1 in ``memory.oom_control``."""
    found = []
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:
                found += [mount / group.lstrip("/") / "memory.events"]
            elif "memory" in controllers.split(","):
                found += [mount / "memory" / group.lstrip("/") / "memory.oom_control"]
    return found


def _count(path: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
