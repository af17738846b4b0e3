"""The executor: carries planned actions out, each at most once, within caps, and never against the kill switch.

The intent is journalled before the resource manager is asked, the outcome after it answered. Where no answer came,
what became of the intent is looked up before anything is done again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from perdure.backends.protocol import Backend
from perdure.errors import ClusterBusy, PerdureError
from perdure.model.actions import Down, Drain, Hold, Outcome, OutcomeStatus, Release
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.model.value import replace
from perdure.service.caps import Caps as Caps
from perdure.service.caps import undoes_own
from perdure.service.journal import ActionRow, Journal
from perdure.service.journal import ActionState as ActionState  # its home is the journal; callers of both need one

HOUR_S = 3600.0
STOP_FILE = "STOP"


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """What the executor's rulings depend on."""

    armed: bool
    """False: actions are written down as `shadow` and not carried out."""
    stop_file: Path
    """The kill switch: while this file exists, nothing is begun."""
    caps: Caps = field(default_factory=Caps)
    back_off_s: float = 1.0
    """Wait before asking again what became of an action; doubled each time, up to `back_off_cap_s`."""
    back_off_cap_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Used:
    """Perdure's own actions of the last hour by kind, and how large the cluster is."""

    by_kind: Mapping[str, int] = field(default_factory=dict)
    live_jobs: int = 0
    nodes: int = 0

    def with_one_more(self, kind: str) -> Used:
        return Used(Counter(self.by_kind) + Counter([kind]), self.live_jobs, self.nodes)


class Ruling(StrEnum):
    """What is to be done now with a planned action."""

    GO = "go"
    WAIT = "wait"
    EXPIRE = "expire"
    SHADOW = "shadow"


def rule(row: ActionRow, now: float, armed: bool, stopped: bool, caps: Caps, used: Used) -> tuple[Ruling, str]:
    """Decide whether a planned action is begun now, with the reason where it is not."""
    if now >= row.expires_s and not lets_go(row):
        waited = f": it waited because {row.detail}" if row.detail else ""
        return Ruling.EXPIRE, f"not begun within {row.expires_s - row.created_s:.0f} s{waited}"
    if not armed:
        return Ruling.SHADOW, "shadow mode: not carried out"
    if stopped:
        return Ruling.WAIT, "the kill switch is on"
    if is_charged(row) and (full := _cap_reached(row, caps, used)):
        return Ruling.WAIT, full
    return Ruling.GO, ""


def lets_go(row: ActionRow) -> bool:
    """Whether it releases a job that Perdure held itself. That is done however late it is, and however much."""
    return row.automatic and undoes_own(row.action)


def is_charged(row: ActionRow) -> bool:
    """Whether it counts in the caps."""
    return row.automatic and not lets_go(row)


def taken_back(waiting: Sequence[ActionRow]) -> frozenset[str]:
    """Keys of Perdure's own holds that a later release takes back before they were begun."""
    released: set[AttemptId] = set()
    found: list[str] = []
    for row in reversed(waiting):
        match row.action:
            case Release(attempt=attempt) if lets_go(row):
                released.add(attempt)
            case Hold(attempt=attempt) if row.automatic and attempt in released:
                found.append(row.key)
    return frozenset(found)


def _cap_reached(row: ActionRow, caps: Caps, used: Used) -> str:
    """Name the cap that has no room left, or ""."""
    share = max(caps.floor_per_hour, int(caps.jobs_share_per_hour * used.live_jobs))
    total, most = sum(used.by_kind.values()), min(caps.actions_per_hour, share)
    if total >= most:
        return f"the hour's cap on actions is reached ({total} of {most})"
    if isinstance(row.action, Drain | Down):
        share = max(1, int(caps.nodes_share_per_hour * used.nodes))
        drains, most = used.by_kind.get("drain", 0) + used.by_kind.get("down", 0), min(caps.drains_per_hour, share)
        if drains >= most:
            return f"the hour's cap on drains is reached ({drains} of {most})"
    return ""


@dataclass(slots=True)
class _Patience:
    tries: int
    not_before_s: float


class Executor:
    """Hands of the controller. Called from one thread; `now` comes from the caller."""

    def __init__(self, journal: Journal, backend: Backend, settings: ExecutorSettings) -> None:
        self._journal = journal
        self._backend = backend
        self._settings = settings
        self._unanswered: dict[str, _Patience] = {}  # by key, of actions begun and unknown

    @property
    def stopped(self) -> bool:
        """True while the kill switch is on. Any doubt about it is a yes."""
        try:
            self._settings.stop_file.lstat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    @property
    def acts(self) -> bool:
        """Whether anything is carried out now: Perdure is armed, and the kill switch is off."""
        return self._settings.armed and not self.stopped

    def recover(self, now: float) -> list[ActionEnded]:
        """At the start: tell of ends that were never reported, and find out what became of every open intent."""
        return [*self._journal.unreported(), *self._settle(now)]

    def run_due(self, now: float) -> list[ActionEnded]:
        """Carry out what may be carried out; return what came to its end.

        One job's actions keep their order: none is begun while an earlier one is unknown. After a call without an
        answer the cluster is left in peace until the next round.
        """
        ended = self._settle(now)
        waiting = self._journal.planned()
        if not waiting:
            return ended
        busy_jobs = {row.attempt.job_id for row in self._journal.open_intents() if row.attempt}
        used = Used(self._journal.begun_since(now - HOUR_S), *self._journal.extent())
        settings, needless = self._settings, taken_back(waiting)
        for row in waiting:
            job_id = row.attempt.job_id if row.attempt else None
            if row.key in needless:
                ended += self._end(row, ActionState.SUPERSEDED, "let go before it was held", now)
                continue
            if job_id in busy_jobs:
                continue
            ruling, why = rule(row, now, settings.armed, self.stopped, settings.caps, used)
            match ruling:
                case Ruling.GO:
                    used = used.with_one_more(row.action.kind) if is_charged(row) else used
                    try:
                        ended += self._carry_out(row, now)
                    except ClusterBusy:
                        break
                case Ruling.WAIT:
                    self._journal.note(row, why)
                    busy_jobs |= {job_id} if job_id else set()
                case Ruling.EXPIRE:
                    ended += self._end(row, ActionState.EXPIRED, why, now)
                case Ruling.SHADOW:
                    ended += self._end(row, ActionState.SHADOW, why, now)
        return ended

    def _carry_out(self, row: ActionRow, now: float) -> list[ActionEnded]:
        """Intent, deed, outcome. Raises `ClusterBusy` where it is not known whether the deed was done."""
        if not self._journal.begin(row.key, now):
            return []  # withheld by a person since the round began
        begun = replace(row, state=ActionState.STARTED, detail="")
        self._be_patient(row.key, now)
        try:
            outcome = self._backend.perform(row.action)
        except ClusterBusy as err:
            self._journal.note(begun, f"no answer yet: {err}")
            raise
        except PerdureError as err:
            outcome = Outcome(OutcomeStatus.REFUSED, str(err))
        return self._end(begun, ActionState.of(outcome.status), outcome.detail, now)

    def _settle(self, now: float) -> list[ActionEnded]:
        """Find out what became of open intents. One that was surely not carried out is planned again."""
        ended: list[ActionEnded] = []
        for row in self._journal.open_intents():
            patience = self._unanswered.get(row.key)
            if patience is not None and now < patience.not_before_s:
                continue
            self._be_patient(row.key, now)
            try:
                outcome = self._backend.lookup(row.action)
            except ClusterBusy as err:
                self._journal.note(row, f"no answer yet: {err}")
                break
            except PerdureError as err:
                self._journal.note(row, f"cannot be looked up: {err}")
                continue
            if outcome is None:
                self._journal.hand_back(row.key, "the resource manager did not answer")
            else:
                ended += self._end(row, ActionState.of(outcome.status), outcome.detail, now)
        return ended

    def _be_patient(self, key: str, now: float) -> None:
        """Set the instant before which this action is not asked about again, should no answer come."""
        tries = self._unanswered[key].tries + 1 if key in self._unanswered else 0
        wait_s = min(self._settings.back_off_cap_s, self._settings.back_off_s * 2.0 ** min(tries, 30))
        self._unanswered[key] = _Patience(tries, now + wait_s)

    def _end(self, row: ActionRow, state: ActionState, detail: str, now: float) -> list[ActionEnded]:
        self._unanswered.pop(row.key, None)
        end = self._journal.finish(row, state, detail, now)
        return [end] if end else []
