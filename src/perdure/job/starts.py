"""Which start of its job a launcher belongs to, where only Slurm's controller knows.

An older Slurm tells its tasks a restart count and nothing else, and that count repeats after a crash of the controller.
The job's start instant tells starts apart and is the same for all processes of one: steps side by side, ranks of an
mpirun, commands one after the other. The first launcher of a step, or of a batch script, asks for it and writes the
answer down, ``starts/<which>.json`` in the fence directory; the others read it. So a thousand ranks are one question,
and a script that was frozen finds its own start there, and not the newer one that the controller would name.

Where nobody can be asked (no Slurm tools in a container, a controller that is down) a start is known by its step or
batch script alone.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.errors import Fenced, InputError
from perdure.job.fields import Fields
from perdure.job.files import read_json, write_json
from perdure.job.identity import RESTART_COUNT, SLURM_JOB, Start, task_of
from perdure.job.processes import began_s, topmost

SCHEMA = "perdure.start/1"
KEPT_NOTES = 64
FIRST_RANK_S = 5.0  # that the other ranks wait for the first one's answer
POLL_S = 0.05
SKEW_S = 2.0  # of a node's clock behind the controller's; two starts of a job are further apart
_TIMEOUT_S = 15.0  # a controller that is down is given up by scontrol itself after 9 s


@dataclass(frozen=True, slots=True)
class StartAnswer:
    """What the controller says of a job's latest start."""

    state: str
    restarts: int
    start_s: int
    nodes: tuple[str, ...] = ()


Ask = Callable[[str], StartAnswer | None]


def learnt(start: Start, environment: Mapping[str, str], ask: Ask | None = None) -> Start:
    """The start with its instant, where that is not in the environment and can be learnt; waits for an answer.

    Raises `Fenced` where the controller runs a later start, or runs this job elsewhere.
    """
    if not start.name or start.token is not None or environment.get(SLURM_JOB) != start.job_id:
        return start
    note = _note(start)
    if noted := _read(note, start):
        return noted
    ask = ask or (asking(environment) if _has_scontrol(environment) else None)
    if ask is None:
        return start
    if task_of(environment).rank and (noted := _awaited(note, start)):
        return noted
    answer = ask(start.job_id)
    if answer is None or answer.state != "RUNNING" or not _is_ours(answer, start, environment):
        return start
    _write(note, answer)
    return replace(start, incarnation=answer.restarts, start_s=answer.start_s)


def _is_ours(answer: StartAnswer, start: Start, environment: Mapping[str, str]) -> bool:
    """Whether the controller speaks of this start; False where nobody can tell. Raises `Fenced` where it cannot be."""
    node, is_counted = environment.get("SLURMD_NODENAME", ""), RESTART_COUNT in environment
    if is_counted and answer.restarts > start.incarnation:
        what = f"Slurm has started this job again {answer.restarts} times, this is start {start.incarnation}"
    elif answer.restarts >= start.incarnation and node and answer.nodes and node not in answer.nodes:
        what = f"Slurm runs this job on {', '.join(answer.nodes[:4])} now, and not on {node}"
    else:
        begun_s = began_s(topmost(SLURM_JOB, start.job_id))
        return answer.restarts >= start.incarnation and begun_s is not None and begun_s >= answer.start_s - SKEW_S
    raise Fenced(str(start.directory), what, "A newer incarnation of this job runs: let this one end")


def asking(environment: Mapping[str, str]) -> Ask:
    """A question to the controller, by ``scontrol``; its answer is None where no controller answers."""
    own = {**environment, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}

    def ask(job_id: str) -> StartAnswer | None:
        try:
            ran = subprocess.run(
                ["scontrol", "-a", "-o", "show", "job", job_id],
                env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        return understood(ran.stdout.decode("utf-8", "replace"), job_id) if ran.returncode == 0 else None

    return ask


def understood(text: str, job_id: str) -> StartAnswer | None:
    """Read ``scontrol -o show job``, one line a job: an array's number brings its other tasks too, a heterogeneous
    job's all its components, whose nodes count together. None for anything else."""
    from perdure.slurm_words.hostlist import expand  # only where Slurm must be asked

    heads = [(line, _words(line.partition(" JobName=")[0])) for line in text.splitlines()]
    lines = [line for line, head in heads if head.get("JobId") == job_id]
    parts = [line for line, head in heads if head.get("HetJobId") == job_id]
    if not lines:
        return None
    own = _own_words(lines[0])
    try:
        nodes = [node for line in parts or lines for node in expand(_own_words(line).get("NodeList", ""))]
        return StartAnswer(own["JobState"], int(own["Restarts"]), int(own["StartTime"]), tuple(nodes))
    except (KeyError, ValueError, InputError):
        return None


def _own_words(line: str) -> dict[str, str]:
    """Slurm's own words: what is between the job's name and the first text that its user has chosen."""
    return _words(line.partition(" UserId=")[2].partition(" Features=")[0])


def _words(text: str) -> dict[str, str]:
    """``KEY=VALUE`` words, the first of each key."""
    pairs = (word.partition("=") for word in reversed(text.split(" ")))
    return {key: value for key, equals, value in pairs if equals}


def _has_scontrol(environment: Mapping[str, str]) -> bool:
    places = environment.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(Path(place, "scontrol"), os.X_OK) for place in places)


def _note(start: Start) -> Path:
    import hashlib  # only where Slurm must be asked

    which = f"{start.cluster}:{start.job_id}:{start.incarnation}:{start.name}"
    return start.directory / "starts" / f"{hashlib.sha256(which.encode()).hexdigest()[:32]}.json"


def _awaited(note: Path, start: Start) -> Start | None:
    """What the first rank learns, as soon as it has written it; None where it does not."""
    end_s = time.monotonic() + FIRST_RANK_S
    while time.monotonic() < end_s:
        if noted := _read(note, start):
            return noted
        time.sleep(POLL_S)
    return None


def _read(note: Path, start: Start) -> Start | None:
    """The start as noted; None where no note of this user's is there."""
    with suppress(OSError, InputError):
        fields = Fields(str(note), read_json(note, SCHEMA, (os.geteuid(),)))
        return replace(start, incarnation=fields.whole("restarts"), start_s=fields.whole("start_s"))
    return None


def _write(note: Path, answer: StartAnswer) -> None:
    """Leave the answer for others; without it they ask for themselves."""
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        write_json(note, {"schema": SCHEMA, "start_s": answer.start_s, "restarts": answer.restarts})
        for old in sorted(note.parent.glob("*.json"), key=_modified_s)[:-KEPT_NOTES]:
            old.unlink(missing_ok=True)


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
