"""What to tell HTCondor for an action: commands of its tools, or the outcome where there is nothing to do. Pure.

Each command names the run that it is about in its constraint, so the schedd itself refuses what comes too late. What is
written into a job's ad before a second command says whose doing that was, should we not live to see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perdure.backends.condor.ads import ClassAd, is_true, literal, number, run_number, text, that_run, whole
from perdure.backends.condor.ends import HELD_BY_PERSONS
from perdure.backends.condor.picture import (
    ACTIVE,
    BY_PERDURE,
    COMPLETED,
    GIVEN_UP,
    HELD,
    IDLE,
    REMOVED,
    is_gang,
)
from perdure.backends.condor.requirements import StartPlace
from perdure.model.actions import (
    Cancel,
    Comment,
    Down,
    Drain,
    Exclude,
    Extend,
    Hold,
    JobAction,
    NodeAction,
    Outcome,
    OutcomeStatus,
    Preempt,
    Release,
    Requeue,
    Undrain,
)

DONE, REFUSED, SUPERSEDED = OutcomeStatus.DONE, OutcomeStatus.REFUSED, OutcomeStatus.SUPERSEDED
LEAST_RETIREMENT_S = 60.0
"""A node whose jobs would be evicted sooner is not drained: that would end what runs there."""
_MARK = "PerdureDone"


@dataclass(frozen=True, slots=True)
class CondorCommands:
    """Argument lists of tools, in order."""

    steps: tuple[tuple[str, ...], ...]


def for_job(action: JobAction, ad: ClassAd | None, left: ClassAd | None, now: float) -> Outcome | CondorCommands:
    """What to do for an action on a job; `ad` is the job's in the queue, `left` its last one where it is gone."""
    if ad is None:
        return _of_gone(action, left)
    if (taken := action.taken(text(ad, "Owner"))) is not None:
        return taken
    runs, status = run_number(ad), whole(ad, "JobStatus")
    if runs != action.attempt.incarnation:
        is_ours = runs > action.attempt.incarnation and _is_marked(ad, action)
        return Outcome(DONE, "it runs again") if is_ours else Outcome(SUPERSEDED, f"its latest run is number {runs}")
    match action:
        case Requeue():
            return _requeue(action, ad, now)
        case Exclude():
            return _exclude(action, ad)
        case Hold():
            return _hold(action, ad)
        case Release():
            return _release(action, ad)
        case Preempt():
            return _preempt(action, ad)
        case Cancel():
            words = f"{BY_PERDURE} {action.key}"
            is_removed = status == REMOVED
            return Outcome(DONE, "removed") if is_removed else _commands(("condor_rm", action, "", "-reason", words))
        case Extend():
            return _extend(action, ad)
        case Comment():
            is_there = text(ad, "PerdureComment") == action.comment
            return Outcome(DONE) if is_there else _commands(_edit(action, {"PerdureComment": literal(action.comment)}))


def _of_gone(action: JobAction, left: ClassAd | None) -> Outcome:
    if left is None:
        return Outcome(SUPERSEDED, "HTCondor does not know the job")
    if isinstance(action, Cancel) and whole(left, "JobStatus") == REMOVED:
        return Outcome(DONE, "removed")
    if isinstance(action, Requeue) and run_number(left) == action.attempt.incarnation:
        return Outcome(REFUSED, "it has left HTCondor's queue: only a job with on_exit_hold stays there when it fails")
    return Outcome(SUPERSEDED, "it has left HTCondor's queue")


def _requeue(action: Requeue, ad: ClassAd, now: float) -> Outcome | CondorCommands:
    status = whole(ad, "JobStatus")
    if status in ACTIVE:
        return Outcome(SUPERSEDED, "it still runs")
    if status in (REMOVED, COMPLETED):
        return Outcome(SUPERSEDED, "it is over for good")
    is_held_by_person = status == HELD and whole(ad, "HoldReasonCode") in HELD_BY_PERSONS
    if _is_marked(ad, action) and (status == IDLE or is_held_by_person):
        return Outcome(DONE, "it waits in the queue")
    if is_held_by_person:
        return Outcome(REFUSED, f"it is held: {text(ad, 'HoldReason')}")
    changed = _placed(action, ad, now + action.delay_s if action.delay_s > 0 else 0.0)
    if isinstance(changed, Outcome):
        return changed
    comment = {"PerdureComment": literal(action.comment)} if action.comment else {}
    edit = _edit(action, {**changed, **comment, **_mark(action)})
    release = ("condor_release", action, f" && JobStatus == {HELD}", "-reason", f"{BY_PERDURE} {action.key}")
    return _commands(edit, *([release] if status == HELD else []))


def _exclude(action: Exclude, ad: ClassAd) -> Outcome | CondorCommands:
    if _is_marked(ad, action):
        return Outcome(DONE, "kept off them")
    if whole(ad, "JobStatus") not in (IDLE, HELD):
        return Outcome(SUPERSEDED, "it does not wait")
    changed = _placed(action, ad, StartPlace.of(ad).not_before_s)
    if isinstance(changed, Outcome):
        return changed
    comment = {"PerdureComment": literal(action.comment)} if action.comment else {}
    return _commands(_edit(action, {**changed, **comment, **_mark(action)}))


def _placed(action: Requeue | Exclude, ad: ClassAd, not_before_s: float) -> dict[str, str] | Outcome:
    """The attributes that say where, when and on how many nodes a job starts."""
    before = StartPlace.of(ad)
    if before.required and set(before.required) <= set(action.exclude):
        return Outcome(REFUSED, f"its requirements name {', '.join(before.required)}")
    changed = {"Requirements": before.changed(action.exclude, action.lift, not_before_s).words}
    if action.node_count and is_gang(ad):
        return changed | dict.fromkeys(("MinHosts", "MaxHosts"), str(action.node_count))
    if action.node_count > 1:
        return Outcome(REFUSED, "only jobs of the parallel universe have several nodes")
    return changed


def _hold(action: Hold, ad: ClassAd) -> Outcome | CondorCommands:
    status, holds = whole(ad, "JobStatus"), whole(ad, "NumHolds")
    told, _, before = text(ad, f"{_MARK}Hold").rpartition(" ")
    if status == HELD and whole(ad, "HoldReasonCode") in HELD_BY_PERSONS:
        return Outcome(DONE, text(ad, "HoldReason"))
    if status != IDLE:
        return Outcome(SUPERSEDED, "it does not wait")
    if told == action.key and before.isdecimal() and holds > int(before):
        return Outcome(DONE, "it was held, and has been released since")
    mark = {f"{_MARK}Hold": literal(f"{action.key} {holds}")}
    hold = ("condor_hold", action, f" && JobStatus == {IDLE}", "-reason", f"{BY_PERDURE} {action.key}")
    return _commands(_edit(action, mark), hold)


def _release(action: Release, ad: ClassAd) -> Outcome | CondorCommands:
    if whole(ad, "JobStatus") == IDLE:
        return Outcome(DONE, "it waits in the queue")
    if whole(ad, "JobStatus") != HELD or whole(ad, "HoldReasonCode") not in HELD_BY_PERSONS:
        return Outcome(SUPERSEDED, "it is not held")
    own = action.undo()
    if action.episode and own is not None and f"{BY_PERDURE} {own.key} " not in text(ad, "HoldReason") + " ":
        return Outcome(SUPERSEDED, f"it is held by others: {text(ad, 'HoldReason')}")
    release = ("condor_release", action, f" && JobStatus == {HELD}", "-reason", f"{BY_PERDURE} {action.key}")
    edits = [_edit(action, {"PerdureComment": literal(action.comment)})] if action.comment else []
    return _commands(*edits, release)


def _preempt(action: Preempt, ad: ClassAd) -> Outcome | CondorCommands:
    if whole(ad, "JobStatus") in ACTIVE:
        return _commands(_edit(action, _mark(action)), ("condor_vacate_job", action, ""))
    return Outcome(DONE, "put back") if _is_marked(ad, action) else Outcome(SUPERSEDED, "it does not run")


def _extend(action: Extend, ad: ClassAd) -> Outcome | CondorCommands:
    if whole(ad, "JobStatus") not in ACTIVE:
        return Outcome(SUPERSEDED, "it does not run")
    limits = {name: number(ad, name) for name in ("AllowedExecuteDuration", "AllowedJobDuration")}
    wanted = str(round(action.walltime_s))
    changed = {name: wanted for name, limit in limits.items() if limit is not None and limit < action.walltime_s}
    if not changed:
        return Outcome(DONE, "it has that time already")
    return _commands(("condor_qedit -forward", *_edit(action, changed)[1:]))  # to the shadow, which keeps the time


def _mark(action: JobAction) -> dict[str, str]:
    return {f"{_MARK}{action.kind.capitalize()}": literal(action.key)}


def _is_marked(ad: ClassAd, action: JobAction) -> bool:
    return text(ad, f"{_MARK}{action.kind.capitalize()}") == action.key


def _edit(action: JobAction, attributes: Mapping[str, str]) -> tuple[str | JobAction, ...]:
    return ("condor_qedit", action, "", *(word for pair in attributes.items() for word in pair))


def _commands(*steps: tuple[str | JobAction, ...]) -> CondorCommands:
    """Commands of the form tool with options, action, what else its constraint says, arguments."""
    done = []
    for tool, action, also, *rest in steps:
        assert not isinstance(action, str)
        done.append((*str(tool).split(), "-constraint", f"{that_run(action.attempt)}{also}", *map(str, rest)))
    return CondorCommands(tuple(done))


# -- nodes


def for_node(action: NodeAction, slots: Iterable[ClassAd]) -> Outcome | CondorCommands:
    """What to do for an action on a machine, by the ads of its slots."""
    mine = list(slots)
    if not mine:
        return Outcome(REFUSED, f"the collector knows no machine {action.node}")
    reason = next((told for slot in mine if is_true(slot, "Draining") and (told := text(slot, "DrainReason"))), "")
    is_draining = any(is_true(slot, "Draining") for slot in mine)
    is_ours = reason.startswith(f"{BY_PERDURE} ")
    startds = _startds(mine)
    match action:
        case Undrain() if not is_draining:
            return Outcome(DONE, "it is in service")
        case Undrain():
            if not is_ours:
                return Outcome(SUPERSEDED, f"others drain it: {reason}")
            return CondorCommands(tuple(("condor_drain", "-cancel", startd) for startd in startds))
        case Drain() if is_draining:
            return Outcome(DONE, reason)
        case Drain():
            left_s = [number(slot, "RetirementTimeRemaining") or 0.0 for slot in mine if text(slot, "JobId")]
            if min(left_s, default=LEAST_RETIREMENT_S) < LEAST_RETIREMENT_S:
                return Outcome(REFUSED, "it would end the jobs there: MAXJOBRETIREMENTTIME of its startd is too short")
            return _drained("-graceful", action, startds)
        case Down() if reason.startswith(GIVEN_UP):
            return Outcome(DONE, reason)
        case Down() if is_draining and not is_ours:
            return Outcome(REFUSED, f"others drain it: {reason}")
        case Down():
            stop = tuple(("condor_drain", "-cancel", startd) for startd in startds) if is_draining else ()
            return CondorCommands((*stop, *_drained("-fast", action, startds).steps))


def _startds(slots: Iterable[ClassAd]) -> tuple[str, ...]:
    """One slot's name for each startd of a machine: the tools take it for the startd's own."""
    found: dict[str, str] = {}
    for slot in slots:
        name = text(slot, "Name")
        if name and text(slot, "SlotType") != "Dynamic":
            found.setdefault(name.partition("@")[2], name)
    return tuple(found.values())


def _drained(how: str, action: Drain | Down, startds: Iterable[str]) -> CondorCommands:
    words = f"{BY_PERDURE} {action.key}: {action.reason}"
    return CondorCommands(tuple(("condor_drain", how, "-reason", words, startd) for startd in startds))
