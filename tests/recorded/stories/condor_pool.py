"""A played HTCondor pool: its jobs look by look as the backend sees them, and the commands that come of actions.

It knows no rules of its own: what happens to a job is the story's choice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from perdure.backends.condor.backend import CondorBackend
from perdure.backends.condor.settings import CondorSettings
from perdure.backends.condor.tools import CondorTools
from perdure.backends.tool_process import ToolAnswer
from perdure.errors import PerdureError
from perdure.model.actions import Action, Comment
from tests.copying import replace
from tests.recorded.drawn import in_words
from tests.recorded.stories.actions import an_action
from tests.recorded.stories.played_slurm import PlayedReader

CASES, PARTS, STEPS = 80, 3, 17
START_S = 1_600_000_000
NODES = ("n1", "n2", "n3")
IDLE, RUNNING, REMOVED, COMPLETED, HELD, _, SUSPENDED = range(1, 8)
VACATES = (1002, 1003, 1005, 1006, 1006, 1006, 1007, 1008, 1012, 1019, 46, 6, 34, 0)
HOLDS = (1, 3, 3, 12, 15, 26, 34, 46, 6)
REQUIREMENTS = ("/Expr(TARGET.Cpus > 1)/", '/Expr(Machine == "n1")/', "/Expr(true)/", '/Expr(Machine == "n1" && true)/')


class PlayedPool:
    """What its tools know."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.now = rng, float(START_S)
        self.queue: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []  # the newest first
        self.runs: list[dict[str, Any]] = []  # the newest first
        self.slots = [self._slot(node, name) for node in NODES for name in ("slot1", "slot1_1")]
        self.told: list[str] = []
        self.past: list[Action] = []
        self.silent = False

    def _slot(self, node: str, name: str) -> dict[str, Any]:
        kind = "Partitionable" if name == "slot1" else "Dynamic"
        return {
            "Machine": node, "Name": f"{name}@{node}", "SlotType": kind, "State": "Unclaimed", "TotalGPUs": 4,
            "GPUs": 2, "LastHeardFrom": START_S, "EnteredCurrentState": START_S - 9, "RetirementTimeRemaining": 9999,
        }  # fmt: skip

    def submit(self) -> str:
        rng, number = self.rng, 7 + len(self.queue) + len(self.history)
        ad: dict[str, Any] = {
            "ClusterId": number, "ProcId": rng.choice((0, 0, 1)), "JobStatus": rng.choice((IDLE, IDLE, HELD)),
            "Owner": rng.choice(("ada", "bob")), "QDate": int(self.now), "Cmd": "/train.sh", "Iwd": "/home",
            "Out": rng.choice(("out", "/dev/null", "out.#pArAlLeLnOdE#")), "Err": rng.choice(("err", "out")),
            "Requirements": rng.choice(REQUIREMENTS), "RequestGPUs": rng.choice((0, 2)), "OnExitHold": "/Expr(true)/",
            "EnteredCurrentStatus": int(self.now), "JobUniverse": rng.choice((5, 5, 11)), "MaxHosts": 2, "NumHolds": 0,
        }  # fmt: skip
        if ad["JobStatus"] == HELD:
            ad |= {"HoldReasonCode": rng.choice((1, 15, 16)), "HoldReason": "submitted on hold"}
        maybe = {
            "Perdure": rng.choice(("retry=never", "min-nodes=1")), "AllowedJobDuration": rng.choice((60, 7200)),
            "JobBatchName": "train", "InteractiveJob": True, "CronMinute": "5", "AllowedExecuteDuration": 90,
        }  # fmt: skip
        self.queue.append(ad | {key: value for key, value in maybe.items() if rng.random() < 0.15})
        return str(number)

    def start(self, ad: dict[str, Any]) -> None:
        nodes = self.rng.sample(NODES, 2 if ad["JobUniverse"] == 11 else 1)
        hosts = [f"slot1_1@{node}" for node in nodes]
        ad |= {"JobStatus": RUNNING, "NumShadowStarts": ad.get("NumShadowStarts", 0) + 1, "RemoteHost": hosts[0]}
        ad |= {"JobCurrentStartDate": int(self.now), "ShadowBday": int(self.now), "AllRemoteHosts": ",".join(hosts)}
        ad |= {"EnteredCurrentStatus": int(self.now), "GPUsProvisioned": ad["RequestGPUs"]}
        for gone in ("ExitCode", "HoldReason", "HoldReasonCode", "VacateReasonCode", "LastVacateTime"):
            ad.pop(gone, None)
        for slot in self.slots:
            if slot["Name"] in hosts:
                slot["JobId"] = f"{ad['ClusterId']}.{ad['ProcId']}"

    def end(self, ad: dict[str, Any]) -> str:
        rng = self.rng
        said: dict[str, Any] = {"ExitBySignal": rng.random() < 0.3, "ExitSignal": 9, "ExitCode": rng.choice((0, 1, 3))}
        if rng.random() < 0.5:
            said |= {"LastVacateTime": int(self.now), "VacateReasonCode": rng.choice(VACATES)}
            said["VacateReason"] = rng.choice(("", "used too much memory", "preempted"))
        status = rng.choice((IDLE, HELD, HELD, HELD, COMPLETED, REMOVED))
        if status == HELD:
            said |= {
                "HoldReasonCode": rng.choice(HOLDS),
                "HoldReason": "held for memory",
                "NumHolds": ad["NumHolds"] + 1,
            }
        ad |= said | {"JobStatus": status, "EnteredCurrentStatus": int(self.now), "LastRemoteHost": ad["RemoteHost"]}
        if rng.random() < 0.85:
            self.runs.insert(0, ad | {"EpochWriteDate": int(self.now), "JobStatus": RUNNING})
        ad.pop("RemoteHost", None)
        for slot in self.slots:
            if slot.get("JobId") == f"{ad['ClusterId']}.{ad['ProcId']}":
                del slot["JobId"]
        return f"{status} {sorted(said.items())}"

    def leave(self, ad: dict[str, Any]) -> None:
        self.queue.remove(ad)
        self.history.insert(0, ad | {"CompletionDate": int(self.now)})

    # What its tools say

    def ask(self, tool: str, *argv: str) -> ToolAnswer:
        words = dict(pairwise(argv))
        if tool == "condor_status":
            only = words.get("-constraint", "")
            return self._ads(slot for slot in self.slots if f'"{slot["Machine"]}"' in only or not only)
        if tool == "condor_q":
            return self._ads(ad for ad in self.queue if self._is_meant(ad, words.get("-constraint", "")))
        if tool == "condor_history":
            if self.rng.random() < 0.03:
                return ToolAnswer(b"[{", b"", 0)
            told = self.runs if "-epochs" in argv else self.history
            return self._ads(ad for ad in told if self._is_meant(ad, words.get("-constraint", "")))
        self.told.append(f"{tool} {argv}")
        if self.rng.random() < 0.08:
            return ToolAnswer(b"", b"Permission denied\n", 1)
        self._change(tool, argv, words)
        return ToolAnswer(b"", b"", 0)

    def _is_meant(self, ad: dict[str, Any], only: str) -> bool:
        return "ClusterId" not in only or f"ClusterId == {ad['ClusterId']} && ProcId == {ad['ProcId']}" in only

    def _ads(self, some: Iterator[dict[str, Any]]) -> ToolAnswer:
        if self.silent:
            return ToolAnswer(b"", b"Failed to connect\n", 1)
        return ToolAnswer(json.dumps(list(some)).encode(), b"", 0)

    def _change(self, tool: str, argv: tuple[str, ...], words: dict[str, str]) -> None:
        if tool == "condor_drain":
            for slot in self.slots:
                if slot["Machine"] == argv[-1].partition("@")[2]:
                    slot |= {"Draining": "-cancel" not in argv, "DrainReason": words.get("-reason", "")}
            return
        for ad in [each for each in self.queue if self._is_meant(each, words["-constraint"])]:
            if tool == "condor_qedit":
                rest = argv[argv.index("-constraint") + 2 :]
                for name, value in zip(rest[::2], rest[1::2], strict=True):
                    ad[name] = f"/Expr({value})/" if name == "Requirements" else json.loads(value)
            elif tool == "condor_release":
                ad["JobStatus"] = IDLE
            elif tool == "condor_hold":
                why = f"{words['-reason']} (by user perdure)"
                ad |= {"JobStatus": HELD, "HoldReasonCode": 1, "HoldReason": why, "NumHolds": ad["NumHolds"] + 1}
            elif tool == "condor_rm":
                ad["JobStatus"] = REMOVED
            elif tool == "condor_vacate_job":
                self.end(ad)


@dataclass(frozen=True)
class PlayedCondorTools(CondorTools):
    """HTCondor's tools, without processes."""

    pool: PlayedPool = field(kw_only=True)

    def find(self, name: str) -> str:
        return name

    def run(self, *argv: str) -> ToolAnswer:
        return self.pool.ask(*argv)


def story(_case: int, rng: Random) -> Iterator[str]:
    pool = PlayedPool(rng)
    settings = CondorSettings(constraint='Owner != "dag"') if rng.random() < 0.3 else CondorSettings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: pool.now)
        patch.setattr("time.monotonic", lambda: pool.now)
        patch.setattr("time.sleep", lambda seconds: pool.__setattr__("now", pool.now + seconds))
        patch.setattr("perdure.backends.condor.backend.OwnerReader", lambda: PlayedReader(rng, pool.told))
        patch.setattr("perdure.backends.condor.backend.uid_of", lambda user, known: 1000)
        backends = (CondorBackend("c", PlayedCondorTools(settings, pool=pool)) for _ in range(PARTS))  # restarted
        return iter([line for backend in backends for _ in range(STEPS) for line in _step(pool, backend, rng)])


def _step(pool: PlayedPool, backend: CondorBackend, rng: Random) -> Iterator[str]:
    pool.now += rng.choice((0.0, 0.0, 1.0, 5.0, 30.0, 300.0, 700.0))
    yield f"{pool.now - START_S:g} {_something(pool, rng)}"
    try:
        yield f" {_asked(pool, backend, rng)}"
    except PerdureError as err:
        yield f" {err}"
    yield from (f" told {command}" for command in pool.told)
    pool.told.clear()


def _something(pool: PlayedPool, rng: Random) -> str:
    waiting = [ad for ad in pool.queue if ad["JobStatus"] == IDLE]
    running = [ad for ad in pool.queue if ad["JobStatus"] in (RUNNING, SUSPENDED)]
    over = [ad for ad in pool.queue if ad["JobStatus"] in (HELD, COMPLETED, REMOVED)]
    what = rng.choice("nnsssseeeelrmhhgqu")
    if what == "n" or not pool.queue:
        return f"submitted {pool.submit()}"
    if what == "s" and waiting:
        pool.start(ad := rng.choice(waiting))
        return f"started {ad['ClusterId']}"
    if what == "e" and running:
        ad = rng.choice(running)
        return f"ended {ad['ClusterId']} {pool.end(ad)}"
    if what == "l" and over:
        pool.leave(ad := rng.choice(over))
        return f"left {ad['ClusterId']}"
    if what == "r" and over:
        ad = rng.choice(over)
        ad["JobStatus"] = IDLE
        return f"released {ad['ClusterId']}"
    if what == "u" and running:
        running[0]["JobStatus"] = SUSPENDED
        return "suspended"
    return _of_machines(pool, rng, what)


def _of_machines(pool: PlayedPool, rng: Random, what: str) -> str:
    match what:
        case "m":
            node = rng.choice(NODES)
            said: dict[str, Any] = rng.choice(
                ({"State": "Owner"}, {"State": "Claimed"}, {"Draining": True, "DrainReason": "theirs"})
            )
            said |= {"RetirementTimeRemaining": rng.choice((0, 9999)), "EnteredCurrentState": int(pool.now)}
            for slot in pool.slots:
                if slot["Machine"] == node and rng.random() < 0.7:
                    slot |= said
            return f"{node} {sorted(said.items())}"
        case "h":
            for slot in pool.slots:
                slot["LastHeardFrom"] = int(pool.now)
            return "heard"
        case "g":
            gone = rng.choice(NODES)
            had = [slot for slot in pool.slots if slot["Machine"] != gone]
            pool.slots = had if len(had) < len(pool.slots) else [*had, pool._slot(gone, "slot1")]
            return f"{gone} went or came"
        case "q":
            pool.silent = rng.random() < 0.3
    return "silent" if pool.silent else "nothing"


def _asked(pool: PlayedPool, backend: CondorBackend, rng: Random) -> str:
    match rng.choice("oooooopppplwf"):
        case "o":
            look = backend.observe(pool.now - rng.choice((60.0, 900.0, 1e5)))
            return in_words(replace(look, time_s=0.0))
        case "p" if pool.queue:
            action = _action(pool, rng)
            return f"{in_words(action)} {in_words(backend.perform(action))}"
        case "l" if pool.queue:
            action = _action(pool, rng)
            return f"{in_words(action)} looked up {in_words(backend.lookup(action))}"
        case "w" if pool.queue:
            return in_words(
                backend.write_comments([a for _ in range(9) if isinstance(a := _action(pool, rng), Comment)])
            )
        case "f":
            found = [attempt for attempt in backend.observe(pool.now - 1e5).attempts if attempt.state.is_over][-1:]
            return f"{in_words(found)} {in_words([backend.output(each, 999) for each in found])}"
    return "nothing is asked"


def _action(pool: PlayedPool, rng: Random) -> Action:
    if pool.past and rng.random() < 0.3:
        return rng.choice(pool.past)
    pool.past.append(_new_action(pool, rng))
    return pool.past[-1]


def _new_action(pool: PlayedPool, rng: Random) -> Action:
    held = [ad for ad in pool.queue if ad["JobStatus"] == HELD]
    runs = [ad for ad in pool.queue if ad["JobStatus"] == RUNNING]
    ad = rng.choice(rng.choice((held, runs, [*pool.queue, *pool.history[:1]])) or pool.queue)
    return an_action(rng, "c", f"{ad['ClusterId']}.{ad['ProcId']}", ad.get("NumShadowStarts", 0), NODES)
