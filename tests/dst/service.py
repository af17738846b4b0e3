"""One life of the service: the real engine, executor, journal and coordinator, without threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from perdure.coordination.playbook import own_playbook
from perdure.coordination.site import Resource
from perdure.model.jobs import Attempt
from perdure.model.output import Output
from perdure.retry.rules import RetryRules
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import unfinished
from perdure.service.core.settings import Caps, ControllerSettings
from perdure.service.exceptions.coordinator import Coordinator
from perdure.service.store.journal import Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.triage.evidence.context import Context
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace
from tests.dst.cluster import Line

MANY = 1_000_000
MARK = "0a1b2c"  # of the lines that decisions get in jobs' own records
RULES = RetryRules(  # budgets out of the way: what is due is due
    max_infrastructure_retries=MANY,
    max_user_retries=MANY,
    max_probes=MANY,
    per_user_per_hour=MANY,
    per_node_per_hour=MANY,
    per_cluster_per_hour=MANY,
    cluster_floor_per_hour=MANY,
    back_off_s=1.0,
    back_off_cap_s=30.0,
    repeat_odds=1.0,
)
DEFAULTS = RetryRules()
SCARCE = RetryRules(  # the same in small: a few jobs come to the end of budgets that are shared
    cluster_share_per_hour=0.0, cluster_floor_per_hour=6, per_node_per_hour=4, back_off_s=1.0, back_off_cap_s=30.0
)
TIGHT = Caps(actions_per_hour=6, floor_per_hour=6, drains_per_hour=1)
LOOSE = Caps(actions_per_hour=MANY, floor_per_hour=MANY, drains_per_hour=MANY)

SCRATCH, HOME = "pfs:/scratch", "pfs:/home"
PLAYBOOK = replace(  # every job uses the first, those that ask for it the second, as the site says
    own_playbook(), resources={SCRATCH: Resource(SCRATCH), HOME: Resource(HOME, licence="home")}
)

WRONG, PASSING, ODD = b"wrong", b"passing", b"odd"
BROKEN = b"broken"  # the hardware of a node, as the job's own log says


@dataclass(frozen=True)
class Limits:
    """How much may be done and retried."""

    name: str
    caps: Caps
    rules: RetryRules = RULES
    mark: str = ""

    @property
    def bounds_retries(self) -> bool:
        return self.rules is not RULES


LIMITS = (Limits("loose caps", LOOSE), Limits("tight caps", TIGHT), Limits("defaults", Caps(), DEFAULTS, MARK),
          Limits("scarce retries", Caps(), SCARCE))  # fmt: skip


class Switch:
    """The kill switch, as the executor looks at it."""

    on = False

    def lstat(self) -> None:
        if not self.on:
            raise FileNotFoundError


class _Done:
    """What a `Future` is that has ended."""

    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def add_done_callback(self, call: Callable[[Any], None]) -> None:
        call(self)


class _AtOnce(futures.Executor):
    """Reads logs in the caller's own thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        try:
            return _Done(fn(*args, **kwargs), None)
        except Exception as err:
            return _Done(None, err)


def judge(log: Output, attempt: Attempt, context: Context) -> Verdict:
    """What triage would say: the logs of the simulation name their fault."""
    if any(WRONG in file.text for file in log.files):
        return Verdict(Label.DETERMINISTIC, 0.02, "shape", "it is wrong", fingerprint="wrong")
    if any(ODD in file.text for file in log.files):
        return Verdict(Label.UNSURE, 0.5, "unknown", "nobody can tell")
    if not log.files:
        return Verdict(Label.UNSURE, 0.5, "unknown", "there is no log")
    if (said := next((file.text for file in log.files if BROKEN in file.text), None)) is not None:
        line = said[said.index(BROKEN) :].decode().strip()
        hearsay = Verdict(Label.TRANSIENT, 0.9, "gpu", "it passes", fingerprint="broken", infrastructure=True)
        return replace(hearsay, hearsay=True, hardware=line)
    infrastructure = bool(attempt.failed_nodes)
    return Verdict(Label.TRANSIENT, 0.9, "network", "it passes", fingerprint="passing", infrastructure=infrastructure)


class Life:
    """From a start, at which everything is read back from the journal, to a death."""

    def __init__(
        self,
        journal: Journal,
        line: Line,
        switch: Switch,
        limits: Limits,
        clock: Callable[[], float],
        restored: Callable[[ControllerState], None] = lambda _state: None,
    ) -> None:
        """`restored` is told what was read back, before anything is done with it."""
        executor = Executor(journal, line, ExecutorSettings(True, cast("Path", switch), limits.caps))
        settings = ControllerSettings(retry=limits.rules, playbook=PLAYBOOK, mark=limits.mark)
        self.engine = Engine(line, journal, executor, judge, settings, clock)
        restored(self.engine.state)
        self.engine.logs.pool = _AtOnce()
        charge = self.engine.logs.charge
        # whatever it took: a seed decides, and no clock
        self.engine.logs.charge = lambda user, seconds: charge(user, 1.0)  # type: ignore[method-assign]
        self.coordinator = Coordinator(self.engine.tell, self.engine.view, journal.recall, self.engine.look_now.set)
        self.engine.recover()


def look(engine: Engine) -> None:
    """Have it look once. Raises `StateError` where it cannot write down what it sees, and so does not know it."""
    engine.look()
    if not engine.state.known.unseen:
        assert isinstance(engine.backend, Line)
        engine.backend.known_s = engine.backend.shown_s


def catch_up(engine: Engine) -> None:
    """One round of all that a service does."""
    look(engine)
    while engine.judge_next(0.0):
        pass
    engine.tick()
    act(engine)


def act(engine: Engine) -> None:
    """What both threads that ask the resource manager for something do."""
    engine.act()
    engine.write_comments()


def left_to(engine: Engine) -> dict[str, object]:
    """What has not come to its end yet."""
    return {
        "failures": unfinished(engine.state),
        "exceptions": list(engine.state.chain.open),
        "running": list(engine.state.known.running),
        "actions": [row.key for row in (*engine.journal.planned(), *engine.journal.open_intents())],
    }
