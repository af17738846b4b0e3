"""One seed is one run: a cluster, its users, programs and people, the service between them, and what befalls them all.

Everything happens in one thread, on a clock of its own, in an order that the seed alone decides.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from random import Random
from typing import Any
from unittest.mock import patch

from perdure.backends.simulated import EVERY, Script
from perdure.backends.simulated.backend import FaultPlan
from perdure.errors import StateError
from perdure.model.jobs import SAME_SUBMIT_S, JobState
from perdure.service.core.case import ControllerState
from perdure.service.store import rows
from perdure.service.store.queries.reader import Reader
from perdure.service.workers.gc_tuning import keep_pauses_short
from tests.dst.again import check_again
from tests.dst.apart import note_apart
from tests.dst.broken import Broken, must
from tests.dst.cluster import FAIR, HOSTILE, LOSSY, Line, Manager
from tests.dst.disk import Crash, Disk, journal_on
from tests.dst.laws import Auditor
from tests.dst.programs import Programs
from tests.dst.rival import Rival
from tests.dst.service import BROKEN, LIMITS, ODD, PASSING, WRONG, Life, Switch, act, catch_up, left_to, look

CLUSTER = "sim"
NODES = 5
LEAST_EVENTS, LEAST_FAULTS = 200, 10
REQUEUE_EXIT = 75
MOST_SKEW_S = 300.0  # that two machines' clocks may differ by for long: half of what the service looks back
STEADY = 0.7  # of the seeds with few retries: their clock is never set, and their budgets are kept to the second
RIVALLED = 0.2  # of the seeds in which the manager guards itself
PATIENCE = 60  # rounds until everything has ended once nothing new happens
MOST_STARTS = 5
ROUND_S = 150.0
AGAIN_EVERY = 4  # so many steps: a look there is taken in twice

SCRIPTS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"failures": EVERY, "error": WRONG.decode()},
    {"failures": 1, "error": PASSING.decode()},
    {"failures": 2, "error": PASSING.decode()},
    {"bad_nodes": ("n1",), "error": PASSING.decode()},
    {"failures": 1, "error": PASSING.decode(), "exit_code": REQUEUE_EXIT},
    {"failures": 1, "error": PASSING.decode(), "may_requeue": False},
    {"bad_nodes": ("n2",), "error": f"{BROKEN.decode()}: the GPU of n2"},
)
HOPELESS: tuple[dict[str, Any], ...] = (  # without budgets these never end
    {"failures": EVERY, "error": PASSING.decode()},
    {"failures": EVERY, "error": ODD.decode()},
)


def _nothing(_state: ControllerState) -> None:
    """Told what a service reads back, it compares nothing."""


@dataclass(slots=True)
class Told:
    """What came of a seed."""

    seed: int
    events: int = 0
    faults: int = 0
    crashes: int = 0
    refusals: int = 0
    kind: str = ""
    trace: list[tuple[float, str, str]] = field(default_factory=list)
    broken: str = ""

    def __str__(self) -> str:
        lines = [f"{at:12.3f}  {name:12}  {what}" for at, name, what in self.trace]
        head = f"seed {self.seed}: {self.broken or 'all laws hold'}"
        return "\n".join(
            (head, self.kind, f"{self.events} events, {self.faults} faults, {self.crashes} crashes", *lines)
        )


class Simulation:
    """Runs seeds one after the other on one disk, which is wiped between them."""

    def __init__(self) -> None:
        self.disk, self.other = Disk(), Disk()
        self.journal, self.others = journal_on(self.disk, CLUSTER), journal_on(self.other, CLUSTER)
        keep_pauses_short()  # as the service does

    def run(self, seed: int) -> Told:
        self.disk.wipe()
        told = Told(seed)
        gc.disable()
        try:
            with patch.object(rows, "pack", str.encode):  # as older versions wrote events: nobody here reads them
                _Run(self, seed, told).play()
        except Broken as err:
            told.broken = str(err)
        except Exception as err:
            told.broken = f"the service broke: {type(err).__name__}: {err}"
        finally:
            gc.collect(0)  # what a seed leaves is freed at once, while the processor has it at hand still
            gc.enable()
        return told

    def left_by(self, seed: int) -> _Run:
        """A seed as it stands when the clock begins to run out: much is not at its end yet."""
        self.disk.wipe()
        with patch.object(rows, "pack", str.encode):
            run = _Run(self, seed, Told(seed))
            run.play_first_part()
        self.disk.fuse.left, self.disk.full = 0, 0
        return run


class _Run:
    def __init__(self, simulation: Simulation, seed: int, told: Told) -> None:
        self.rng = rng = Random(seed)
        self.told, self.disk, self.journal = told, simulation.disk, simulation.journal
        self.guarded, self.limits = rng.random() < 0.5, rng.choice(LIMITS)
        told.kind = f"{'self-guarding' if self.guarded else 'blind'} manager, {self.limits.name}"
        self.skew_s = 0.0
        self.mended_at: int | None = None  # the event from which the clock is right again
        self.manager = Manager(
            seed, NODES, name=CLUSTER, gpus=4, requeue_exit=frozenset({REQUEUE_EXIT}), guarded=self.guarded
        )
        self.line = Line(self.manager, seed, self.disk.fuse.passed, self.clock)
        self.switch = Switch()
        rivalled = self.guarded and rng.random() < RIVALLED  # a blind manager would do what each of two says
        self.auditor = Auditor(
            self.disk, self.line, self.manager, self.switch, self.limits, self.clock, alone=not rivalled
        )
        self.line.watch, self.line.watch_comment = self.auditor.watch, self.auditor.watch_comment
        self.auditor.view = lambda: self.life.engine.view()
        self.rival = Rival(simulation.others, simulation.other, self.manager, self.limits, seed) if rivalled else None
        reader = Reader(self.disk.reader, CLUSTER)
        self.programs = Programs(rng, self.manager, self.auditor, self.clock, reader, guarded=self.guarded)
        is_steady = self.limits.bounds_retries and rng.random() < STEADY
        hours = 0.8 if self.limits.bounds_retries else 0.2
        self.steps = {
            self.look: 2.5, self.judge: 3, self.act: 3, self.tick: 9, self.advance: 17, self.submit: 5,
            self.say(self.programs.raise_one): 2.5, self.say(self.programs.annotate): 1.5,
            self.say(self.programs.claim): 0.7,
            self.say(self.programs.handle): 10, self.say(self.programs.lie): 1.5,
            self.say(self.programs.raise_stale): 1.5, self.say(self.programs.forge): 1,
            self.say(self.programs.order): 1, self.say(self.programs.read): 0.15,
            self.say(self.programs.tell_again): 1.5, self.say(self.programs.notice): 1,
            self.say(self.programs.outage): 1,
            self.fail_node: 1.5, self.return_node: 3, self.preempt: 1.5, self.hook: 1, self.linger: hours,
            self.requeue: 1.5 if self.guarded else 0.0, self.give_again: 0.7 if self.guarded else 0.0,
            self.jump: 0.0 if is_steady else 0.6,
            self.turn_switch: 0.8, self.mood: 1.5,
            self.crash: 0.5, self.arm: 0.8, self.fill_disk: 0.5, self.compete: 10 if self.rival else 0.0,
        }  # fmt: skip
        for step in self.steps:  # each seed has a temper of its own
            self.steps[step] *= rng.choice((0.3, 1.0, 1.0, 2.0))
        self.life = self._start()
        self.life.engine.look()  # from now on the cluster's failures are this service's
        self.line.faults = self._mood()

    def clock(self) -> float:
        return self.manager.now + self.skew_s

    # -- the run

    def play(self) -> None:
        told = self.told
        self.play_first_part()
        told.faults += self.line.faults_struck
        told.refusals = self.programs.refusals
        self._run_out()

    def play_first_part(self) -> None:
        """All that happens before everything comes to its end."""
        steps, weights = list(self.steps), list(self.steps.values())
        while self._is_short():
            self._step(self.look)  # now and then it gets to it
            for step in self.rng.choices(steps, weights, k=20):
                if self._is_short():
                    self._step(step)

    def _is_short(self) -> bool:
        told = self.told
        return told.events < LEAST_EVENTS or told.faults + self.line.faults_struck < LEAST_FAULTS

    def _step(self, step: Callable[[], str]) -> None:
        """One step, then the laws."""
        self._mend_clock()
        try:
            done = step()
        except Crash:
            done = self._die("in it")
        except StateError as err:
            done = f"failed, {err}"
        if done:
            self.told.events += 1
            self.told.trace.append((self.manager.now, step.__name__, done))
            self.auditor.check_all(self.life.engine, guarded=self.guarded, acted=step == self.act)

    def _start(self, restored: Callable[[ControllerState], None] = _nothing) -> Life:
        """`restored` is told what the service reads back at first: one that dies while it starts may have written."""
        said: object = "it dies"
        for first in (True, *repeat(False, MOST_STARTS - 1)):
            try:
                hears = restored if first else _nothing
                return Life(self.journal, self.line, self.switch, self.limits, self.clock, hears)
            except Crash:
                self.told.crashes += 1
            except StateError as err:
                self.told.faults += 1
                said = err
        raise Broken(f"a service starts: {said}")

    def _die(self, where: str, restored: Callable[[ControllerState], None] = _nothing) -> str:
        self.told.crashes += 1
        self.told.faults += 1
        self.life = self._start(restored)
        self.auditor.check_handlers(self.life.engine.state.chain)
        return f"died {where}; started anew"

    # -- the service's own steps

    def look(self) -> str:
        look(self.life.engine)
        if self.line.seen is not None and self.told.events % AGAIN_EVERY == 0:
            check_again(self.life.engine.state, self.line.seen)
        return "at the cluster"

    def judge(self) -> str:
        return "a failure" if self.life.engine.judge_next(0.0) else ""

    def act(self) -> str:
        before = self.auditor.orders
        act(self.life.engine)
        return f"{self.auditor.orders - before} orders"

    def tick(self) -> str:
        self.life.engine.tick()
        return "the chain"

    # -- the world

    def advance(self) -> str:
        seconds = self.rng.choice((1.0, 3.0, 7.0, 20.0))
        self.manager.advance(seconds)
        return f"{seconds:.0f} s"

    def linger(self) -> str:
        """Hours go by in which little happens; a clock that is far off is not so for hours."""
        if self.mended_at is not None:
            self.skew_s, self.mended_at = 0.0, None
        rounds, seconds = self.rng.randint(2, 6), self.rng.choice((100.0, 280.0, 900.0))
        for _ in range(rounds):
            self.manager.advance(seconds)
            catch_up(self.life.engine)
            self.auditor.check_all(self.life.engine, guarded=self.guarded)
        return f"{rounds} times {seconds:.0f} s"

    def submit(self) -> str:
        if len(self.manager.job_ids) >= 14:
            return ""
        script = self._script()
        return f"job {self.manager.submit(script)} of {script.user}: {script.error} {script.failures}"

    def give_again(self) -> str:
        """A manager that has lost its state gives the id of a job that is over to another, not in the same second."""
        knowing = [self.auditor, *([self.rival.auditor] if self.rival else [])]
        latest_s = self.manager.now - SAME_SUBMIT_S
        past = [name for name in self.manager.job_ids if self.manager.over_since(name) < latest_s]
        over = [name for name in past if all(each.knows_end_of(name) for each in knowing)]
        if not over or self.clock() != self.manager.now:
            return ""
        job_id, script = self.rng.choice(over), self._script()
        note_apart(self.auditor.store, self.manager, job_id)
        self.manager.give_again(job_id, script)
        return f"{job_id} to {script.user}: {script.error} {script.failures}"

    def _script(self) -> Script:
        traits = self.rng.choice(SCRIPTS + HOPELESS if self.limits.bounds_retries else SCRIPTS)
        user, width = self.rng.choice(("ada", "bob")), self.rng.choice((1, 1, 2, 3))
        run_s = self.rng.uniform(3.0, 60.0)
        return Script(run_s=run_s, user=user, node_count=width, min_nodes=width - 1, **traits)

    def say(self, step: Callable[[Any], str]) -> Callable[[], str]:
        def said() -> str:
            return step(self.life)

        said.__name__ = step.__name__
        return said

    # -- faults

    def fail_node(self) -> str:
        node = self.rng.choice(self.manager.node_names)
        self.manager.fail_node(node)
        self.told.faults += 1
        return node

    def return_node(self) -> str:
        node = self.rng.choice(self.manager.node_names)
        self.manager.return_node(node)
        return node

    def preempt(self) -> str:
        """A job gives its nodes to another."""
        running = [job_id for job_id in self.manager.job_ids if self.manager.job(job_id).state is JobState.RUNNING]
        if not running:
            return ""
        job_id, back = self.rng.choice(running), self.rng.random() < 0.5
        self.manager.preempt(job_id, back=back)
        return job_id

    def hook(self) -> str:
        """An epilog has one job looked at, before or after the next look at all."""
        if not self.manager.job_ids or self.line.silent:
            return ""
        job_id = self.rng.choice(self.manager.job_ids[-8:])
        self.life.engine.look_at(lambda: self.line.look_at(job_id))
        return f"tells of {job_id}"

    def requeue(self) -> str:
        """The resource manager thinks better of a job."""
        failed = [job_id for job_id in self.manager.job_ids if self.manager.requeue_by_itself(job_id)][:1]
        self.told.faults += len(failed)
        return "".join(failed)

    def jump(self) -> str:
        """The clock of the service's machine is set, wrongly; where it is far off, not for long."""
        self.skew_s = self.rng.choice((0.0, 40.0, 300.0, 4000.0, -40.0, -300.0, -4000.0))
        self.told.faults += 1
        retries = self.auditor.retries
        retries.set_by_s = max(retries.set_by_s, 2 * abs(self.skew_s))
        if abs(self.skew_s) > MOST_SKEW_S:
            self.mended_at = self.told.events + 8
        return f"the clock is {self.skew_s:+.0f} s off"

    def _mend_clock(self) -> None:
        if self.mended_at is not None and self.told.events >= self.mended_at:
            self.skew_s, self.mended_at = 0.0, None

    def turn_switch(self) -> str:
        self.switch.on = not self.switch.on
        return "the kill switch is " + ("on" if self.switch.on else "off")

    def _mood(self) -> FaultPlan:
        return self.rng.choice((FAIR, HOSTILE if self.guarded else LOSSY))

    def mood(self) -> str:
        self.line.faults = self._mood()
        self.line.silent, self.line.dumb = self.rng.random() < 0.1, self.rng.random() < 0.1
        return (
            "nothing gets through"
            if self.line.silent
            else "the line is " + ("good" if self.line.faults is FAIR else "bad")
        )

    def crash(self) -> str:
        return self._die("between two steps", partial(self.auditor.check_start, self.life.engine.state))

    def arm(self) -> str:
        """The service will die some points on: before, in or after a write or an order."""
        self.disk.fuse.left = self.rng.randint(1, 12)
        return f"in {self.disk.fuse.left} points"

    def fill_disk(self) -> str:
        self.disk.full = self.rng.choice((1, 1, 2, MOST_STARTS - 2))
        self.told.faults += 1
        return f"for {self.disk.full} writes"

    def compete(self) -> str:
        """A second service, of which nobody knows, works on the same manager."""
        return self.rival.work(self.rng)

    # -- the end

    def _run_out(self) -> None:
        """Nothing new happens and nothing fails any more: everything comes to its end."""
        self.told.trace.append((self.manager.now, "calm", "the clock runs out"))
        self.disk.fuse.left, self.disk.full = 0, 0
        self.line.faults, self.line.silent, self.line.dumb = FAIR, False, False
        self.switch.on, self.skew_s = False, 0.0
        if self.rng.random() < 0.5:
            self.life = self._start(partial(self.auditor.check_start, self.life.engine.state))
        self.programs.clear_all(self.life)
        for number in range(PATIENCE):
            self._round(ROUND_S if number < 10 else 10 * ROUND_S)
            if self._is_quiet():
                self._round(ROUND_S)  # what ended with the last look is settled by the next
                self.auditor.check_end()
                if self.rival:
                    self.rival.auditor.check_end()
                return
        must(False, "everything ends", self._left())

    def _round(self, seconds: float) -> None:
        self.manager.return_all()
        self.manager.advance(seconds)
        catch_up(self.life.engine)
        self.auditor.check_all(self.life.engine, guarded=self.guarded)
        if self.rival:
            self.rival.catch_up()

    def _is_quiet(self) -> bool:
        return not any(self._left().values())

    def _left(self) -> dict[str, object]:
        left = {**left_to(self.life.engine), "jobs": not self.manager.at_rest}
        return {**left, "of the rival": any(left_to(self.rival.life.engine).values())} if self.rival else left
