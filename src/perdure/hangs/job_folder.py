"""What the launchers of a job share while it runs: ``.perdure/CLUSTER/JOBID/attempts/N``, read as one folder.

Each launcher has a folder with its heartbeat; the launchers of a step share one, with the dumps of the flight recorder
that they asked for, and whatever somebody put next to them, such as py-spy's stacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perdure.errors import InputError
from perdure.hangs.folder import Folder, read_folder

MAX_FOLDERS = 8192


def attempt_of(job_id: str, roots: Iterable[Path]) -> Path:
    """The folder of the job's newest attempt below the first of `roots` that has one. Raises `InputError`."""
    roots = list(roots)
    for root in roots:
        found = [path for path in root.glob(f".perdure/*/{job_id}/attempts/*") if path.name.isdecimal()]
        if found:
            return max(found, key=lambda path: (int(path.name), path.stat().st_mtime))
    where = ", ".join(map(str, roots))
    raise InputError(
        f"job {job_id}",
        f"no .perdure/CLUSTER/{job_id}/attempts below {where}",
        "Go to the directory that the job was submitted from, start its tasks by perdure exec, or name a folder",
    )


def read_attempt(attempt: Path) -> Folder:
    """All that its launchers left, in one."""
    found = Folder()
    folders = sorted(path for path in attempt.rglob("*") if path.is_dir() and not path.is_symlink())[:MAX_FOLDERS]
    for directory in [attempt, *folders]:
        found.take(read_folder(directory, frozenset(folders)))
    found.logs.clear()  # notes of launchers to each other: none of them is a rank's log
    return found
