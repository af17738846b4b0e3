"""Which files a program's output goes into, and which logs it keeps itself, by the descriptors of its processes.

Output that goes through ``tee`` or ``cat`` is followed to their files: both write at once what they read. Other filters
hold lines back, so that their files tell nothing of when a line was written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from perdure.job.identity import Task

MAX_PROCESSES = 64
MAX_DESCRIPTORS = 64  # of a process, the first: a log is opened early
LOG_NAMES = (".log", ".out", ".err", ".txt", ".jsonl")
PASSES_ON = ("tee", "cat")
MAX_PIPES = 4  # one behind the other
_PROC = Path("/proc")


def files_of(members: Sequence[int], task: Task, *, is_exact: bool) -> Iterator[str]:
    """The files, if such they are, behind the output of these processes.

    Where somebody has set a limit and this is the first task of a step, also those of the step's srun, if it runs here.
    """
    pids = list(members[:MAX_PROCESSES])
    if is_exact and not task.rank and "SLURM_STEP_ID" in os.environ:
        pids += _srun(os.environ.get("SLURM_JOB_ID", ""))
    outputs = [f"/proc/{pid}/fd/{descriptor}" for pid in pids for descriptor in (1, 2)]
    yield from outputs
    for _ in range(MAX_PIPES):
        readers = _readers_of(outputs)
        outputs = [path for pid in readers for path in _written(pid)]
        yield from outputs


def _readers_of(outputs: Sequence[str]) -> list[int]:
    """The processes that pass on what they read from the pipes among these."""
    pipes = {link for path in outputs if (link := _link(path)).startswith("pipe:[")}
    numbers = (name for name in os.listdir(_PROC) if name.isdecimal()) if pipes else ()
    return [int(number) for number in numbers if _link(f"/proc/{number}/fd/0") in pipes and _passes_on(number)]


def _passes_on(number: str) -> bool:
    with suppress(OSError):
        return (_PROC / number / "comm").read_text().strip() in PASSES_ON
    return False


def _written(pid: int) -> Iterator[str]:
    """What a process has open to write, its output first."""
    with suppress(OSError, IndexError, ValueError):
        for descriptor in sorted(map(int, os.listdir(f"/proc/{pid}/fd")))[:MAX_DESCRIPTORS]:
            if descriptor != 2 and _is_written(pid, descriptor):
                yield f"/proc/{pid}/fd/{descriptor}"


def _link(path: str) -> str:
    with suppress(OSError):
        return os.readlink(path)
    return ""


def own_logs_of(members: Sequence[int]) -> Iterator[str]:
    """The files that these processes have open to write besides their output, and that are called as logs are."""
    for pid in members[:MAX_PROCESSES]:
        with suppress(OSError):
            descriptors = sorted(map(int, os.listdir(f"/proc/{pid}/fd")))
            for descriptor in descriptors[:MAX_DESCRIPTORS]:
                path = f"/proc/{pid}/fd/{descriptor}"
                if descriptor > 2 and os.readlink(path).endswith(LOG_NAMES) and _is_written(pid, descriptor):
                    yield path


def _is_written(pid: int, descriptor: int) -> bool:
    with open(f"/proc/{pid}/fdinfo/{descriptor}") as lines:
        flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)


def _srun(job_id: str) -> list[int]:
    """The only srun of this job here; of several nobody can tell which is whose."""
    found = []
    mark = f"SLURM_JOB_ID={job_id}".encode()
    for name in os.listdir(_PROC):
        with suppress(OSError):
            is_srun = name.isdecimal() and (_PROC / name / "comm").read_text().strip() == "srun"
            if is_srun and mark in (_PROC / name / "environ").read_bytes().split(b"\0"):
                found.append(int(name))
    leaders = [pid for pid in found if not _is_child_of(pid, found)]  # srun starts a helper of the same name
    return leaders if len(leaders) == 1 else []


def _is_child_of(pid: int, others: Sequence[int]) -> bool:
    with suppress(OSError, ValueError, IndexError):
        return int((_PROC / str(pid) / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[1]) in others
    return False
