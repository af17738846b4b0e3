"""A look at the processes of a program's ranks on this node, that none of them notices.

What is read: /proc, and with py-spy (where it is installed and may read the process) the Python stack. Only with a
signal that the user has named, and only to processes that have a handler for it, a stack is asked for otherwise.
Everything is bounded, as a process that hangs may hang who asks about it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from perdure.hangs.rank_state import MAX_WHERE, SHOWN_FRAMES, Frame, RankState, Seen, call_of, life_of
from perdure.job.fields import Fields
from perdure.job.gang import sights_of
from perdure.job.identity import RANK_VARIABLES, SLURM_JOB, Task, task_of
from perdure.job.native import waits_in
from perdure.job.processes import LAUNCHERS, catches, is_copy, name_of

SAMPLE_S = 1.0  # over which the use of a core is measured
STACKS_S = 4.0  # that reading all stacks may take
SRUN_S = 7.0  # that a look on other nodes may take
DUMP_S = 0.5  # that a process has to write its stack
MAX_RANKS = 64
MAX_JSON, MAX_DUMP = 4 << 20, 256 * 1024
_PROC = Path("/proc")
_TORCHRUN = "TORCHELASTIC_RUN_ID"  # its workers have it, its agent has not
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Ranked:
    """The processes of one rank, the one that is asked about first."""

    rank: int | None
    pids: tuple[int, ...]


class _Use(NamedTuple):
    """What one process has used: processor time and bytes, or both a second."""

    busy_frac: float
    bytes_s: float

    def since(self, before: _Use) -> _Use:
        return _Use((self.busy_frac - before.busy_frac) / SAMPLE_S, (self.bytes_s - before.bytes_s) / SAMPLE_S)


def look_at(members: Sequence[int], task: Task, dump_signal: int | None = None) -> list[RankState]:
    """Look at all ranks among these processes, parents before their children. Takes a second, and for stacks a few.

    Where they bear no rank of their own it is that of `task`.
    """
    own = [pid for pid in members if not _is_launcher(pid)]
    if not own and members:  # srun has started the ranks, on whatever nodes
        return _looked_by_srun(dump_signal)
    ranks = ranks_among(own)[:MAX_RANKS]
    pids = [pid for ranked in ranks for pid in ranked.pids]
    before = {pid: _so_far(pid) for pid in pids}
    time.sleep(SAMPLE_S)
    used = {pid: _so_far(pid).since(use) for pid, use in before.items()}
    spy, deadline_s = _py_spy(), time.monotonic() + STACKS_S
    sights = []
    for ranked in ranks:
        pid = ranked.pids[0]
        asked = dump_signal is not None and catches(pid, dump_signal)
        frames = _dumped(pid, dump_signal) if asked and dump_signal else ()
        if not frames and spy:
            frames = _spied(spy, pid, deadline_s - time.monotonic())
        sights.append(_sight(ranked, task, used, frames))
    return sights


def _is_launcher(pid: int) -> bool:
    with suppress(OSError):
        return name_of(pid) in LAUNCHERS
    return True


def _looked_by_srun(dump_signal: int | None) -> list[RankState]:
    """The same look by a process on each node of this Slurm job; [] where none can be started there."""
    environment = os.environ
    job, nodes = environment.get(SLURM_JOB, ""), environment.get("SLURM_JOB_NUM_NODES", "")
    if not job or not nodes or "PERDURE_JOB_ID" in environment:
        return []
    srun = [
        "srun", f"--jobid={job}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        "--cpus-per-task=1", "--mem=0", "--quiet", "--input=none", sys.executable, "-m", "perdure.job.inspection", job,
        *([str(dump_signal)] if dump_signal else []),
    ]  # fmt: skip
    plain = {name: value for name, value in environment.items() if not name.startswith(("SLURM_", "SRUN_"))}
    kept = {name: environment[name] for name in ("SLURM_CONF",) if name in environment}
    try:
        ran = subprocess.run(
            srun, env=plain | kept, stdin=subprocess.DEVNULL, capture_output=True, timeout=SRUN_S, check=False
        )
        found = [json.loads(line) for line in ran.stdout[:MAX_JSON].splitlines() if line.startswith(b"{")]
        return [sight for each in found for sight in sights_of(Fields("srun", each))]
    except (OSError, subprocess.TimeoutExpired, ValueError, RecursionError):
        return []


def members_of(job: str) -> list[int]:
    """This user's processes of a Slurm job's steps on this node, but for those of the step that asks."""
    here = os.environ.get("SLURMD_NODENAME", "")
    marks = {f"{SLURM_JOB}={job}".encode(), f"SLURMD_NODENAME={here}".encode()}
    own = f"SLURM_STEP_ID={os.environ.get('SLURM_STEP_ID')}".encode()
    found = []
    for name in os.listdir(_PROC):
        with suppress(OSError):
            if name.isdecimal() and (_PROC / name).stat().st_uid == os.geteuid():
                words = set((_PROC / name / "environ").read_bytes().split(b"\0"))
                if marks <= words and own not in words and any(word.startswith(b"SLURM_STEP_ID=") for word in words):
                    found.append(int(name))
    return sorted(found)


def _sight(ranked: Ranked, task: Task, used: dict[int, _Use], frames: tuple[Frame, ...]) -> RankState:
    pid = ranked.pids[0]
    call, target = _call(pid)
    seen = Seen(
        state=_state(pid),
        busy_frac=max(used[each].busy_frac for each in ranked.pids),
        bytes_s=max(used[each].bytes_s for each in ranked.pids),
        call=call,
        target=target,
        frames=frames,
        has_gpu=_has_gpu(pid),
        code="" if frames else waits_in(pid),
        below=_below(pid, ranked.pids[1:]),
    )
    life, where, collective = life_of(seen)
    if started := _started_program(ranked.pids):
        where = f"{started}{': ' if where else ''}{where}"[:MAX_WHERE]
    stack = tuple(str(frame) for frame in frames[:SHOWN_FRAMES])
    rank = task.rank if ranked.rank is None else ranked.rank
    return RankState(rank, task.node, life, where, pid, collective=collective, stack=stack)


def ranks_among(members: Sequence[int]) -> list[Ranked]:
    """The processes of each rank, by the variables that launchers set.

    The first of each is the highest that does not merely wait for its child, as a shell does.
    """
    environments = {pid: _environment(pid) for pid in members}
    if any(_TORCHRUN in found for found in environments.values()):  # its agent may have inherited a rank
        environments = {pid: found if _TORCHRUN in found else {} for pid, found in environments.items()}
    name = next((name for name in RANK_VARIABLES if any(name in found for found in environments.values())), "")
    of: dict[int | None, list[int]] = {}
    for pid in members:
        text = environments[pid].get(name, "")
        if text.isdecimal() or not name:
            of.setdefault(int(text) if text.isdecimal() else None, []).append(pid)
    return [Ranked(rank, _led(pids)) for rank, pids in sorted(of.items(), key=lambda item: item[0] or 0)]


def _led(pids: Sequence[int]) -> tuple[int, ...]:
    leader = next((pid for pid in pids if _call(pid)[0] != "child"), pids[0])
    return (leader, *(pid for pid in pids if pid != leader))


# ---------------------------------------------------------------- /proc


def _environment(pid: int) -> dict[str, str]:
    """The variables that tell ranks, as a process was started with them."""
    with suppress(OSError):
        pairs = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        words = (pair.decode("ascii", "replace").partition("=") for pair in pairs)
        return {name: value for name, _, value in words if name in (*RANK_VARIABLES, _TORCHRUN)}
    return {}


def _fields(pid: int) -> list[str]:
    with suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return []


def _state(pid: int) -> str:
    return next(iter(_fields(pid)), "Z")


def _used_s(pid: int) -> float:
    """Processor time so far, and the time in which its first thread waited for a core: all are busy on a full node."""
    waited_s = 0.0
    with suppress(OSError, IndexError, ValueError):
        waited_s = int((_PROC / str(pid) / "schedstat").read_text().split()[1]) / 1e9
    with suppress(IndexError, ValueError):
        fields = _fields(pid)
        return (int(fields[11]) + int(fields[12])) / _TICKS + waited_s
    return 0.0


def _so_far(pid: int) -> _Use:
    return _Use(_used_s(pid), _moved_bytes(pid))


def _moved_bytes(pid: int) -> float:
    """Bytes that a process has read and written so far, to files and pipes."""
    with suppress(OSError, ValueError, IndexError):
        lines = (_PROC / str(pid) / "io").read_text().splitlines()
        return float(sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:"))))
    return 0.0


def _call(pid: int) -> tuple[str, str]:
    """The system call of a process's first thread, and what it is about."""
    with suppress(OSError, ValueError, IndexError):
        words = (_PROC / str(pid) / "syscall").read_text().split()
        name = call_of(int(words[0]))
        return name, _target(pid, int(words[1], 16)) if name in ("read", "lock") else ""
    return "", ""


def _target(pid: int, descriptor: int) -> str:
    with suppress(OSError):
        found = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        kind = found.partition(":[")[0]
        return kind if kind != found else _printable(found)
    return ""


def _started_program(pids: Sequence[int]) -> str:
    """The process that is looked at, where Python has started it as another program and waits for it."""
    with suppress(OSError):
        if not _runs_python(pids[0]) and any(_runs_python(pid) and _call(pid)[0] == "child" for pid in pids[1:]):
            return f"its process {pids[0]} ({_printable(name_of(pids[0]))})"
    return ""


def _runs_python(pid: int) -> bool:
    return os.readlink(f"/proc/{pid}/exe").rpartition("/")[2].startswith("python")


def _below(leader: int, pids: Sequence[int]) -> str:
    """What of a rank's other processes stands still elsewhere, such as a worker of its data loader."""
    for pid in pids[:MAX_RANKS]:
        call, target = _call(pid)
        if call == "open":
            return f"its process {pid} opens a file"
        if call == "read" and target.startswith("/"):
            return f"its process {pid} reads {target}"
        if call == "sleep" and is_copy(pid, leader):
            return f"its process {pid} sleeps"
        if _state(pid) in "DTt":
            return f"its process {pid} " + ("waits for a disk or a file system" if _state(pid) == "D" else "is stopped")
    return ""


def _has_gpu(pid: int) -> bool:
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        return any(_is_gpu(entry.path) for entry in entries)
    return False


def _is_gpu(path: str) -> bool:
    with suppress(OSError):
        return os.readlink(path).startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri"))
    return False


def _text(data: bytes) -> str:
    return _printable(data.decode("utf-8", "replace"))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


# ---------------------------------------------------------------- stacks


def _py_spy() -> str:
    """Where py-spy is: next to this interpreter, or on the path; "" for nowhere."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy") or ""


def _spied(spy: str, pid: int, timeout_s: float) -> tuple[Frame, ...]:
    """The first thread's stack by py-spy, which reads the process and does not stop it; () where it cannot."""
    if timeout_s <= 0:
        return ()
    try:
        ran = subprocess.run(
            [spy, "dump", "--nonblocking", "--json", "--pid", str(pid)],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        threads = json.loads(ran.stdout) if ran.returncode == 0 and len(ran.stdout) < MAX_JSON else []
        return frames_of(threads, pid)
    except (OSError, subprocess.TimeoutExpired, ValueError, RecursionError):
        return ()


def frames_of(threads: Any, pid: int) -> tuple[Frame, ...]:
    """The frames of a process's first thread in what py-spy prints; () for anything else."""
    try:
        first = next(each for each in threads if each["os_thread_id"] == pid)
        return tuple(
            Frame(_printable(str(each["name"])), _printable(str(each["filename"])), int(each["line"]))
            for each in first["frames"][:64]
        )
    except (StopIteration, TypeError, KeyError, ValueError):
        return ()


def _dumped(pid: int, signum: int) -> tuple[Frame, ...]:
    """Ask a process for its stack by a signal that it has a handler for; read it where its error output is a file."""
    try:
        descriptor = os.open(f"/proc/{pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        descriptor = -1
    try:
        begin = os.fstat(descriptor).st_size if descriptor >= 0 else 0
        os.kill(pid, signum)
        deadline_s = time.monotonic() + DUMP_S
        while descriptor >= 0 and time.monotonic() < deadline_s:
            time.sleep(0.05)
            if frames := dump_of(os.pread(descriptor, MAX_DUMP, begin)):
                return frames
    except OSError:
        pass
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return ()


def dump_of(text: bytes) -> tuple[Frame, ...]:
    """The thread that got the signal in what faulthandler writes, which is the first; () while it is not whole."""
    _, found, rest = text.partition(b"Current thread 0x")
    if not found:
        _, found, rest = text.partition(b"Stack (most recent call first):")
    frames = []
    for line in rest.split(b"\n")[1:-1]:
        file, is_frame, place = line.strip().removeprefix(b'File "').partition(b'", line ')
        number, _, function = place.partition(b" in ")
        if not is_frame or not number.isdigit():
            break
        frames.append(Frame(_text(function), _text(file), int(number)))
    return tuple(frames)


if __name__ == "__main__":
    seen = look_at(members_of(sys.argv[1]), task_of(os.environ), *map(int, sys.argv[2:3]))
    sys.stdout.write(json.dumps({"sights": [asdict(sight) for sight in seen]}) + "\n")
