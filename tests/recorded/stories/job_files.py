"""What a job's launchers tell each other, the agent and the next link of a chain, through files of theirs."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perdure.errors import ClusterBusy, NotFound, PerdureError, StateError
from perdure.hangs.rank_state import Life, RankState
from perdure.job import exit_report, heartbeat, link, probes, requested
from perdure.job.agent import Agent, Post, agents
from perdure.job.background import BackgroundRun
from perdure.job.chain_folder import ChainFolder
from perdure.job.exit_report import ExitReason, ExitReport
from perdure.job.files import JobFiles
from perdure.job.gang import Gang
from perdure.job.heartbeat import Heartbeat, HeartbeatSource
from perdure.job.identity import Start, Task
from perdure.job.link import LinkOptions, LinkRun
from perdure.job.link_marks import HandoverTold, LinkEnded
from perdure.job.listening import Listener
from perdure.job.probes import Probe, Probing
from tests.recorded.drawn import NOW, in_words
from tests.recorded.stories.exec_runs import at_once

CASES, STEPS = 120, 30
OURS = os.getuid()


class _World:
    """A clock, a directory, and what is written down of what happens."""

    def __init__(self, rng: Random, folder: Path) -> None:
        self.rng, self.folder, self.now = rng, folder, NOW
        self.told: list[str] = []

    def note(self, *words: object) -> None:
        self.told.append(" ".join(map(str, words)))


def story(case: int, rng: Random) -> Iterator[str]:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a disk takes its time
    with tempfile.TemporaryDirectory(dir=memory) as name, pytest.MonkeyPatch.context() as patch:
        world = _World(rng, Path(name))
        patch.setattr("time.time", lambda: world.now)
        patch.setattr("time.monotonic", lambda: world.now)
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr(BackgroundRun, "start", at_once)
        patch.setattr(link, "say", lambda text: world.note("said", text))
        _KINDS[case % len(_KINDS)](world, patch)
    return iter([line.replace(name, "/job") for line in world.told])


# -- launchers of one step


def _gang(world: _World, _: pytest.MonkeyPatch) -> None:
    rng, gangs = world.rng, []
    for rank in range(3):
        files = JobFiles(world.folder / "1" / f"r{rank}")
        files.directory.mkdir(parents=True)
        size = {
            "SLURM_STEP_NUM_TASKS": rng.choice(("3", "3", "3", "1")),
            "SLURM_STEP_ID": rng.choice(("0", "0", "batch")),
        }
        gangs.append((files, Gang(files, Task(f"n{rank}", f"n{rank}", 100 + rank, rank), size)))
        world.now += rng.choice((0.0, 1.0))
    for _step in range(STEPS):
        world.now += rng.choice((0.0, 1.0, 5.0))
        rank = rng.randrange(3)
        world.note(f"{world.now - NOW:g} rank {rank}", _of_gang(world, *gangs[rank], rank))


def _of_gang(world: _World, files: JobFiles, gang: Gang, rank: int) -> str:
    rng, since_s = world.rng, world.now - world.rng.choice((0.0, 3.0, 60.0))
    match rng.choice("cccaaeeoottddfffiiwr"):
        case "c":
            return f"calls {gang.call()}"
        case "a":
            return f"alarm {in_words(gang.alarm())}"
        case "e":
            return f"ends {gang.end()}"
        case "o":
            gang.call_off()
            return "calls off"
        case "t":
            gang.tell([RankState(rank, f"n{rank}", rng.choice(list(Life)), "all_reduce", step=rng.randrange(9))])
            return "tells"
        case "d":
            return f"told {in_words(gang.told(since_s))} {in_words(gang.dumps(since_s))}"
        case "f":
            gang.fail(rng.choice((0, 1, 75)), rng.choice((0, 9)))
            return "fails"
        case "i":
            return f"failed {in_words(gang.failed())}"
        case "w":
            return f"takes word {gang.takes_word()}"
    exit_report.write(files.exit_report, _report(world, rank))
    world.note("written and read", in_words(exit_report.read(files.exit_report)))
    return f"ended {in_words(gang.ended())}"


def _report(world: _World, rank: int) -> ExitReport:
    rng = world.rng
    told, codes = rng.choice(((), ("TERM",))), rng.choice((0, 0, 1))
    return ExitReport(
        "7", 1, 2, f"n{rank}", "host", 40 + rank, rng.choice(list(ExitReason)), codes, world.now - 9, world.now,
        "train", rng.choice((0, 9)), told, rank=rank, step_id=rng.choice(("0", "0", "1")), step=rng.choice((None, 7)),
        note="x" * rng.choice((1, 9)), is_final=rng.random() < 0.8, error=rng.choice((None, {"message": "no"})),
    )  # fmt: skip


# -- links of a chain


def _links(world: _World, patch: pytest.MonkeyPatch) -> None:
    rng, folder = world.rng, ChainFolder(world.folder)
    folder.links.mkdir()
    patch.setattr(link, "_stdout", lambda: "/out")
    patch.setattr("time.sleep", lambda seconds: _meanwhile(world, folder, seconds))
    patch.setattr(ChainFolder, "write", _sometimes_full(world, ChainFolder.write))
    patch.setattr(link, "run", lambda argv, environment, options, hear: _ran(world, argv, environment, options, hear))
    for number in range(1, 5):
        if rng.random() < 0.1:
            folder.over.touch()
        again = rng.choice((number, number, number, max(1, number - 1)))
        options = LinkOptions(
            folder, again, rng.choice(("", "USR1")), rng.random() < 0.3, rng.choice((1.0, 30.0)), "", "plain",
            rng.choice(("", "train-1")),
        )  # fmt: skip
        environment = {"SLURM_JOB_ID": str(number), "PERDURE_FENCE_DIR": "/other", "PERDURE_FENCE_TOKEN": "9"}
        code = LinkRun(options, environment, lambda *argv: _slurm(world, argv)).to_the_end(["train"])
        world.note(f"{world.now - NOW:g} link {again} of job {number} ends with", code)
        for each in folder.numbers():
            world.note(" marks", each, re.sub(r"host='[^']*', ", "", in_words(folder.marks(each))))
        if rng.random() < 0.5:  # a job that is killed leaves no last word
            folder.take_back(again, LinkEnded)


def _sometimes_full(world: _World, write: Callable[..., None]) -> Callable[..., None]:
    """A disk that fills up, mostly for a while."""
    full_until_s = NOW

    def written(folder: ChainFolder, number: int, mark: Any) -> None:
        nonlocal full_until_s
        if world.rng.random() < 0.06:
            full_until_s = world.now + world.rng.choice((0.1, 5.0))
        if world.now < full_until_s:
            raise OSError(28, "No space left on device")
        write(folder, number, mark)

    return written


def _meanwhile(world: _World, folder: ChainFolder, seconds: float) -> None:
    """Something happens while a link waits."""
    rng = world.rng
    world.now += max(seconds, 0.5)
    for number in folder.numbers():
        marks = folder.marks(number)
        if marks.asked and not marks.told and rng.random() < 0.3:
            _left(folder, number, HandoverTold(rng.choice((0, 1)), world.now))
        if marks.is_live and marks.begun and rng.random() < 0.2:
            signals = rng.choice(((), ("USR1",)))
            _left(folder, number, LinkEnded(marks.begun.job_id, world.now, rng.choice((0, 0, 1, 75)), signals))


def _left(folder: ChainFolder, number: int, mark: HandoverTold | LinkEnded) -> None:
    with contextlib.suppress(OSError):
        folder.write(number, mark)


def _ran(world: _World, argv: Any, environment: Any, options: Any, hear: Any) -> int:
    rng = world.rng
    shown = {name: text for name, text in environment.items() if name.startswith(("PERDURE", "SLURM"))}
    world.note("runs", argv, sorted(shown.items()), options.handover is not None, options.hang.after_s, options.look_s)
    if rng.random() < 0.15:
        raise StateError("/fence", "the fence cannot be used", "Make room") from OSError(28, "No space left on device")
    code = rng.choice((0, 0, 1, 75, 93))
    hear(_report(world, 0))
    return code


def _slurm(world: _World, argv: tuple[str, ...]) -> str | None:
    rng = world.rng
    world.note("asks", *(word for word in argv if word != f"{OURS}"))
    if rng.random() < 0.15:
        return None
    if argv[0] == "squeue":
        lines = (
            f"9|{OURS}|perdure-keep=train-1/2.1",
            f"1|{OURS}|perdure-keep=train-1/1.1",
            "8|77|perdure-keep=train-1/3.1",
        )
        return "".join(f"{line}\n" for line in lines if rng.random() < 0.4)
    if argv[0] == "scontrol":
        state = rng.choice(("RUNNING", "RUNNING", "COMPLETED", "PENDING", "COMPLETING"))
        return f"JobId=1 UserId=x({rng.choice((OURS, OURS, 77))}) JobState={state} x\n" if rng.random() < 0.9 else ""
    return ""


# -- the agent of a node


def _agent(world: _World, _: pytest.MonkeyPatch) -> None:
    rng = world.rng
    share, fence = world.folder / "share", world.folder / "fence"
    share.mkdir()
    wrong = ["", "", "disk: Input/output error"]
    table = world.folder / "meminfo"
    looked = [Probe("disk", lambda: rng.choice(wrong)), probes.memory(table), probes.disk(world.folder / "there")]
    agent = Agent(Post(share, Task("n1", "host1", 7), 3.0, (fence,)), Probing(looked, rng.choice((0.0, 10.0))))
    for _step in range(STEPS):
        world.now += rng.choice((0.0, 3.0, 20.0, 70.0))
        available = rng.choice((100, 5, 20, 1000))
        table.write_text(
            f"MemTotal: 1000 kB\nMemAvailable: {available} kB\n" if rng.random() < 0.9 else "MemTotal: x\n"
        )
        with contextlib.suppress(OSError):
            (world.folder / "there").mkdir() if rng.random() < 0.5 else (world.folder / "there").rmdir()
        _beat(world, fence)
        agent.look(world.now)
        world.note(f"{world.now - NOW:g}", *(in_words(agents(share)).splitlines()))
        if rng.random() < 0.1:
            beat = Heartbeat(HeartbeatSource.AGENT, "n2", "host2", 9, 1, world.now, 3.0)
            heartbeat.write(share / rng.choice(("n2.json", "n3.json")), beat)
    agent.end()
    world.note(in_words(agents(share)))


def _beat(world: _World, fence: Path) -> None:
    """Launchers write, or say that they end."""
    rng = world.rng
    for _each in range(rng.randrange(3)):
        number = rng.randrange(3)
        files = JobFiles(fence / "attempts" / str(rng.choice((1, 2))) / f"r{number}")
        files.directory.mkdir(parents=True, exist_ok=True)
        host, ended = rng.choice(("host1", "host1", "host2")), rng.random() < 0.2
        beat = Heartbeat(
            HeartbeatSource.JOB, "n1", host, 40 + number, rng.randrange(100), world.now, rng.choice((5.0, 60.0)),
            job_id=rng.choice(("7", "8")), is_over=ended,
        )  # fmt: skip
        heartbeat.write(files.heartbeat, beat)


# -- what the service asks of a job


class _Service:
    """Answers anything."""

    def __init__(self, world: _World) -> None:
        self._world = world

    def ask(self, verb: str, path: str) -> Any:
        rng = self._world.rng
        self._world.note("asks", verb, path)
        if rng.random() < 0.1:
            raise rng.choice((NotFound("x", "not found", "look"), ClusterBusy("x", "silent", "wait")))
        if not path.startswith("/exceptions?"):
            return {"outcome": rng.choice(("", "", "stopped"))}
        kinds = ("job.pause", "job.throttle", "job.move", "job.other")
        notes = [{"key": rng.choice(("bytes", "resource", "decision")), "value": "9"}]
        items = [
            {
                "id": f"x-{number}", "type": rng.choice(kinds), "incarnation": rng.choice((2, 2, 3)), "note": "because",
                "cause": rng.choice(("", "c-1", "c-1", "c 2")), "outcome": rng.choice(("", "", "over")),
                "annotations": notes,
            }
            for number in range(rng.randrange(5))
        ]  # fmt: skip
        return {"items": items}


def _listens(world: _World, _: pytest.MonkeyPatch) -> None:
    rng, path = world.rng, world.folder / "asked.json"
    start = Start("7", rng.choice((2, 2, 1_600_000_000)), "", world.folder)
    listener = Listener(_Service(world), "7", start, path)  # type: ignore[arg-type]
    reader = requested.Requests(path)
    listener._count = 0
    for _step in range(STEPS):
        world.now += rng.choice((0.5, 1.0, 30.0, 700.0))
        if rng.random() < 0.6:
            try:
                listener._look()
            except PerdureError as err:
                world.note(err)
        if rng.random() < 0.05:
            path.write_text("{")
        elif rng.random() < 0.05:
            path.unlink(missing_ok=True)
        if path.exists():
            os.utime(path, (world.now, world.now))
        world.note(f"{world.now - NOW:g}", in_words(reader.look(world.now)), sorted(reader.kinds()))


_KINDS = (_gang, _links, _agent, _listens)
