"""The executor: carries planned actions out, each at most once, within caps, and never against the kill switch.

The intent is journalled before the resource manager is asked, the outcome after it answered. Where no answer came,
the result of the intent is looked up before anything is done again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from perdure.backends.protocol import Backend
from perdure.errors import ClusterBusy, JobBusy, PerdureError
from perdure.model.actions import (
    TAKE_NODES_OUT,
    Action,
    Hold,
    NodeAction,
    Outcome,
    OutcomeStatus,
    Release,
    Requeue,
    TakeNodeOut,
)
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.model.jobs import Job, JobState
from perdure.retry.budget import at, earliest
from perdure.service.core.recovery import is_not_as_left
from perdure.service.core.scope import ScopeSettings
from perdure.service.core.settings import Caps as Caps
from perdure.service.store.journal import ActionRow, Charge, Journal
from perdure.service.store.journal import (
    ActionState as ActionState,  # its home is the journal; callers of both need one
)
from perdure.service.workers.kill_switch import STOP_FILE as STOP_FILE

HOUR_S = 3600.0
FARTHEST_S = 24 * HOUR_S
"""A retry that a cap holds back is put back at once to start later, but not so much later."""
HELD_BACK_S = 900.0
"""What a cap held back may still be begun this long after there is room again."""


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """What the executor's rulings depend on."""

    armed: bool
    """False: actions are written down as `shadow` and not carried out."""
    stop_file: Path
    """The kill switch: while this file exists, nothing is begun."""
    caps: Caps = field(default_factory=Caps)
    scope: ScopeSettings = field(default_factory=ScopeSettings)
    back_off_s: float = 1.0
    """Wait before asking again for the result of an action; doubled each time, up to `back_off_cap_s`."""
    back_off_cap_s: float = 60.0

    @property
    def stopped(self) -> bool:
        """True while the kill switch is on. Any doubt about it is a yes."""
        try:
            self.stop_file.lstat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True


class Used(Struct, frozen=True):
    """Perdure's own actions of the last hour, and how large the cluster is."""

    charges: tuple[Charge, ...] = ()
    live_jobs: int = 0
    nodes: int = 0
    nodes_out: int = 0  # that take no new work now

    def times(self, *kinds: str, user: str | None = None) -> list[float]:
        """When those of these kinds (all without one) and of this user count, sorted."""
        return sorted(c.at_s for c in self.charges if c.kind in (kinds or (c.kind,)) and user in (None, c.user))


class GateRuling(StrEnum):
    """What is to be done now with a planned action."""

    GO = "go"
    WAIT = "wait"
    EXPIRE = "expire"
    SHADOW = "shadow"
    REFUSE = "refuse"


class Ruled(NamedTuple):
    """What is to be done with an action, why not, and until when it waits at least; None: nobody can tell."""

    ruling: GateRuling
    why: str = ""
    until_s: float | None = None


def rule(
    row: ActionRow,
    now: float,
    armed: bool,
    stopped: bool,
    caps: Caps,
    used: Used,
    user: str = "",
    outside: str = "",
    half_done: bool = False,
) -> Ruled:
    """Decide whether a planned action is begun now, with the reason where it is not.

    `user` is whose job it is about; `outside` says why it lies outside the scope in which Perdure acts; `half_done` is
    true of a retry whose job is put back and still held. That is finished however late it is: nobody else releases the
    job. Where Perdure may not act any more, a person has to, and is told. A retry or a drain that waits for a cap does
    not expire meanwhile.
    """
    full, until_s = "", None
    if is_charged(row) and armed and not stopped and not outside:
        full, until_s = _cap_reached(row, caps, used, user, now)
    if now >= row.expires_s and not (lets_go(row) or half_done or (full and row.action.keeps)):
        waited = f": it waited because {row.detail}" if row.detail else ""
        return Ruled(GateRuling.EXPIRE, f"not begun within {row.expires_s - row.created_s:.0f} s{waited}")
    if not armed or (outside and row.automatic and not lets_go(row)):
        why = outside if armed else "shadow mode: not carried out"
        if half_done and row.attempt is not None:
            return Ruled(GateRuling.REFUSE, f"{why}{_HELD_UNTIL} scontrol release {row.attempt.job_id}")
        return Ruled(GateRuling.SHADOW, why)
    if stopped:
        return Ruled(GateRuling.WAIT, f"the kill switch is on{_STAYS_HELD if half_done else ''}")
    return Ruled(GateRuling.WAIT, full, until_s) if full else Ruled(GateRuling.GO)


_HELD_UNTIL = "; the job is put back and held, and nothing starts it until somebody runs"
_STAYS_HELD = "; the job is already put back, and stays held until the switch is off"


def is_half_done(action: Action, job: Job | None) -> bool:
    """Whether a retry was broken off between putting the job back and releasing it."""
    return isinstance(action, Requeue) and job is not None and job.state is JobState.HELD and is_not_as_left(job)


def lets_go(row: ActionRow) -> bool:
    """Whether it releases a job that Perdure held itself. That is done however late it is, and however much."""
    return row.automatic and row.action.undoes_own


def is_charged(row: ActionRow) -> bool:
    """Whether it counts in the caps: what is written next to a job moves nothing."""
    return row.automatic and not lets_go(row) and row.action.moves


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


def _cap_reached(
    row: ActionRow, caps: Caps, used: Used, user: str, now: float, from_s: float | None = None
) -> tuple[str, float | None]:
    """Name the cap that has no room at `from_s` (unless told, when the action would count), and when it has; or ""."""
    starts_s = row.action.counts_at(now) if from_s is None else from_s
    share = max(caps.floor_per_hour, int(caps.jobs_share_per_hour * used.live_jobs))
    most = min(caps.actions_per_hour, share)
    asked = [("the hour's cap on actions", used.times(), most)]
    if user:
        asked.append((f"user {user}'s share of the hour's cap on actions", used.times(user=user), math.ceil(most / 2)))
    if row.action.takes_node_out:
        if used.nodes and used.nodes_out + 1 > int(caps.nodes_out_share * used.nodes):
            return f"{used.nodes_out} of {used.nodes} nodes take no work already; it waits until one returns", None
        share = max(caps.drains_floor_per_hour, int(caps.nodes_share_per_hour * used.nodes))
        asked.append(("the hour's cap on drains", used.times(*TAKE_NODES_OUT), min(caps.drains_per_hour, share)))
    for name, times, limit in asked:
        until_s = earliest(times, limit, starts_s)
        if until_s > starts_s:
            recent = sum(at_s > now - HOUR_S for at_s in times)
            until = f"; it waits until {at(until_s, now)}" if math.isfinite(until_s) else ""
            return f"{name} is reached ({recent} of {limit}){until}", until_s
    return "", None


def _moving(rows: Sequence[ActionRow]) -> list[ActionRow]:
    """All but what is only written next to a job, which is the `CommentWriter`'s."""
    return [row for row in rows if row.action.moves]


@dataclass(slots=True)
class _Patience:
    tries: int
    not_before_s: float


class Executor:
    """Hands of the controller. Called from one thread; `now` comes from the caller."""

    def __init__(self, journal: Journal, backend: Backend, settings: ExecutorSettings) -> None:
        self._journal = journal
        self._backend = backend
        self.settings = settings
        self._unanswered: dict[str, _Patience] = {}  # by key, of actions begun and unknown
        self._held_back: list[tuple[str, str]] = []  # keys and words
        self._charges: dict[str, Charge] | None = None  # by key, of what counts in the caps; None: not read yet
        self._charged_s = -math.inf  # when these were last looked through
        self._taken_out: dict[str, None] = {}  # nodes that no look has shown since an action took them out
        self.asked = 0  # how often the resource manager was asked for something

    @property
    def stopped(self) -> bool:
        """True while the kill switch is on."""
        return self.settings.stopped

    @property
    def acts(self) -> bool:
        """Whether anything is carried out now: Perdure is armed, and the kill switch is off."""
        return self.settings.armed and not self.stopped

    def recover(self, now: float) -> list[ActionEnded]:
        """At the start: report ends that were never reported, and look up the result of every open intent."""
        return [*self._journal.unreported(), *self._settle(now)]

    def run_due(
        self, now: float, overtakes: Callable[[Action], str] = lambda _: "", goes_on: Callable[[], bool] = lambda: True
    ) -> list[ActionEnded]:
        """Carry out what may be carried out; return what came to its end.

        `overtakes` says what has taken the place of an action of Perdure's since it was planned, "" where nothing has.
        Once `goes_on` says no, the rest is left to the next round: others wait to ask the resource manager, too.
        One job's actions keep their order: none is begun while an earlier one is unknown. After a call without an
        answer the cluster is left in peace until the next round.
        """
        ended = self._settle(now)
        waiting = _moving(self._journal.planned())
        if not waiting:
            return ended
        busy_jobs = {row.attempt.job_id for row in _moving(self._journal.open_intents()) if row.attempt}
        used, needless = self._used(now), taken_back(waiting)
        for row in takewhile(lambda _: goes_on(), waiting):
            job_id = row.attempt.job_id if row.attempt else None
            if job_id in busy_jobs:
                continue
            if (outcome := self._moot(row, needless)) is not None:
                ended += self._end(row, ActionState.of(outcome.status), outcome.detail, now)
                continue
            job = self._journal.job_of(row.action)
            ruled, row = self._ruled(row, job, used, now)
            match ruled.ruling:
                case GateRuling.GO:
                    used = self._charged(used, row, job, now)
                    try:
                        ended += self._carry_out(row, now, overtakes)
                    except JobBusy:
                        busy_jobs |= {job_id} if job_id else set()
                    except ClusterBusy:
                        break
                case GateRuling.WAIT:
                    self._wait(row, ruled)
                    busy_jobs |= {job_id} if job_id else set()
                case GateRuling.EXPIRE:
                    ended += self._end(row, ActionState.EXPIRED, ruled.why, now)
                case GateRuling.SHADOW:
                    ended += self._end(row, ActionState.SHADOW, ruled.why, now)
                case GateRuling.REFUSE:
                    ended += self._end(row, ActionState.REFUSED, ruled.why, now)
        return ended

    def _moot(self, row: ActionRow, needless: Collection[str]) -> Outcome | None:
        """The result of an action that nothing is to be done for any more; None where it is to be done."""
        if row.key in needless:
            return Outcome(OutcomeStatus.SUPERSEDED, "released before it was held")
        if lets_go(row) and row.attempt is not None and not self._journal.holds(row.attempt):
            return Outcome(OutcomeStatus.SUPERSEDED, "nothing of ours holds it")  # a person may
        return self._already_out(row)

    def _already_out(self, row: ActionRow) -> Outcome | None:
        """What the resource manager says of a node that the last look saw out of service, where that is so still.

        To find nothing to do takes no room in a cap.
        """
        node = self._journal.node_of(row.action) if row.action.takes_node_out else None
        if node is None or node.is_usable or not self.settings.armed or self.stopped:
            return None
        try:
            return self._backend.lookup(row.action)
        except PerdureError:
            return None  # it is asked again when its turn comes

    def _ruled(self, row: ActionRow, job: Job | None, used: Used, now: float) -> tuple[Ruled, ActionRow]:
        """The ruling on an action, and the action as it is then carried out.

        Slurm forgets a job minutes after its end. So a retry that a cap holds back is put back at once, to start when
        the cap has room: that is the instant at which it counts.
        """
        settings, action = self.settings, row.action
        outside = settings.scope.refuses(action, job, self._journal.node_of(action))
        user = self._user_of(row, job)
        half_done = is_half_done(action, job)
        ruled = rule(row, now, settings.armed, self.stopped, settings.caps, used, user, outside, half_done)
        if not isinstance(action, Requeue) or ruled.until_s is None:
            return ruled, row
        free_s: float | None = ruled.until_s
        while free_s is not None and free_s < now + FARTHEST_S:  # room in one cap is not yet room in all
            until_s, (_, free_s) = free_s, _cap_reached(row, settings.caps, used, user, now, free_s)
        if free_s is not None:
            return ruled, row
        later = replace(row, action=replace(action, delay_s=until_s - now))
        return (Ruled(GateRuling.GO), later) if self._journal.change(later) else (ruled, row)

    def _user_of(self, row: ActionRow, job: Job | None) -> str:
        """Whose job it is about; of one that ended and was forgotten before anybody saw it, an attempt tells."""
        if job is not None or row.attempt is None:
            return job.user if job else ""
        attempt = self._journal.attempt(row.attempt)
        return attempt.user if attempt else ""

    def _used(self, now: float) -> Used:
        """What counts now: read from the journal once, and kept up from then on; again where a clock was set back.

        What a clock that was ahead took for older than an hour may count again.
        """
        is_first, found = self._charges is None, self._charges
        if found is None or now < self._charged_s:
            found = self._journal.charges(now - HOUR_S - FARTHEST_S)
        if is_first:  # also what a clock that was behind took for older than an hour
            self._taken_out |= {each.node: None for each in found.values() if each.kind in TAKE_NODES_OUT}
        self._charged_s = now
        self._charges = {key: charge for key, charge in found.items() if charge.at_s > now - HOUR_S}
        live_jobs, nodes, nodes_out = self._journal.extent()
        shown = map(self._journal.node, list(self._taken_out))
        nodes_out += sum(node is not None and node.is_usable for node in shown)
        return Used(tuple(self._charges.values()), live_jobs, nodes, nodes_out)

    def _charged(self, used: Used, row: ActionRow, job: Job | None, now: float) -> Used:
        """What counts once the action is begun. A node that it takes out counts before a look shows it."""
        node = row.action.node if isinstance(row.action, TakeNodeOut) else ""
        if node:
            self._taken_out[node] = None
        if is_charged(row) and self._charges is not None:
            self._charges[row.key] = Charge(row.action.counts_at(now), row.action.kind, self._user_of(row, job), node)
            used = replace(used, charges=tuple(self._charges.values()))
        return self._used(now) if node else used

    def taken_out(self) -> list[str]:
        """The nodes that no look has shown since an action took them out."""
        return list(self._taken_out)

    def saw(self, nodes: Iterable[str]) -> None:
        """A look has shown these since, as they are."""
        for node in nodes:
            self._taken_out.pop(node, None)

    def _uncharge(self, key: str) -> None:
        """What was surely not carried out takes no room in a cap."""
        if self._charges is not None:
            self._charges.pop(key, None)

    def held_back(self) -> list[tuple[str, str]]:
        """Actions on nodes that a cap holds back since the last call, and the words for it."""
        found, self._held_back = self._held_back, []
        return found

    def _wait(self, row: ActionRow, ruled: Ruled) -> None:
        """Write down why it waits; what a cap holds back expires that much later."""
        until_s = ruled.until_s
        if row.action.keeps and until_s is not None and row.expires_s <= until_s < math.inf:
            row = self._journal.postpone(row, until_s + HELD_BACK_S)
        if isinstance(row.action, NodeAction) and row.automatic and ruled.why != row.detail and not self.stopped:
            self._held_back.append((row.key, ruled.why))
        self._journal.note(row, ruled.why)

    def _carry_out(self, row: ActionRow, now: float, overtakes: Callable[[Action], str]) -> list[ActionEnded]:
        """Intent, deed, outcome. Raises `ClusterBusy` where it is not known whether the deed was done."""
        if row.automatic and (overtaken := overtakes(row.action)):
            self._uncharge(row.key)
            return self._end(row, ActionState.SUPERSEDED, overtaken, now)
        if not self._journal.begin(row.key, now):
            return []  # withheld by a person since the round began
        begun = row.begun()
        self._be_patient(row.key, now)
        self.asked += 1
        try:
            outcome = self._backend.perform(row.action)
        except ClusterBusy as err:
            self._journal.note(begun, f"no answer yet: {err}")
            raise
        except PerdureError as err:
            outcome = Outcome(OutcomeStatus.REFUSED, str(err))
        return self._end(begun, ActionState.of(outcome.status), outcome.detail, now)

    def _settle(self, now: float) -> list[ActionEnded]:
        """Look up the results of open intents. One that was surely not carried out is planned again."""
        ended: list[ActionEnded] = []
        for row in _moving(self._journal.open_intents()):
            patience = self._unanswered.get(row.key)
            if patience is not None and now < patience.not_before_s:
                continue
            self._be_patient(row.key, now)
            self.asked += 1
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
                self._uncharge(row.key)
            else:
                ended += self._end(row, ActionState.of(outcome.status), outcome.detail, now)
        return ended

    def _be_patient(self, key: str, now: float) -> None:
        """Set the instant before which this action is not asked about again, should no answer come."""
        tries = self._unanswered[key].tries + 1 if key in self._unanswered else 0
        wait_s = min(self.settings.back_off_cap_s, self.settings.back_off_s * 2.0 ** min(tries, 30))
        self._unanswered[key] = _Patience(tries, now + wait_s)

    def _end(self, row: ActionRow, state: ActionState, detail: str, now: float) -> list[ActionEnded]:
        self._unanswered.pop(row.key, None)
        end = self._journal.finish(row, state, detail, now)
        return [end] if end else []
