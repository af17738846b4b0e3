"""What to tell Slurm for an action, decided from what Slurm says of the job or node now.

A step is one question or command; the answer decides the next. So an action that was broken off is taken up where
it stands: a job that is found put back and held gets its exclusions and is released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import re2

from perdure.backends.slurm.dependants import is_singleton, repaired_dependency, word_on
from perdure.backends.slurm.node_records import OUR_REASON
from perdure.backends.slurm.picture import uid_of_name, user_name
from perdure.backends.slurm.records import JobRecord, ended_badly, waits_again
from perdure.errors import JobBusy
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
)
from perdure.model.job_comment import mark_of
from perdure.model.nodes import Node, NodeState
from perdure.slurm_words.reasons import CANNOT_RUN, HELD_BY_A_PERSON
from perdure.slurm_words.states import is_held, is_waiting


@dataclass(frozen=True, slots=True)
class Todo:
    """Commands to put, in order; then look again."""

    commands: tuple[str, ...]
    repairs: tuple[str, ...] = ()  # of other jobs, put first; where one is refused, that is said, and the rest goes on
    said: tuple[str, ...] = ()  # to be told with the outcome


class Accounted(NamedTuple):
    """What accounting is to write into a job's AdminComment; that ends the action."""

    job_id: str
    text: str
    in_comment: bool = False  # into its Comment, too, where our line about an earlier attempt stands


class Dependant(NamedTuple):
    """A job that waits for the one that is put back, or waited for it when it was last looked at."""

    before: str  # its dependencies then
    now: JobRecord
    tasks: tuple[int, ...] = ()  # of the array that the job is a task of


def done(detail: str) -> Outcome:
    return Outcome(OutcomeStatus.DONE, detail)


def refused(detail: str) -> Outcome:
    return Outcome(OutcomeStatus.REFUSED, detail)


def superseded(detail: str) -> Outcome:
    return Outcome(OutcomeStatus.SUPERSEDED, detail)


def for_job(
    action: JobAction,
    job: JobRecord | None,
    last_start: int | None,
    now: float,
    *,
    let_go: bool = False,
    dependants: Sequence[Dependant] = (),
) -> Outcome | Todo | Accounted:
    """Decide the next step. `last_start`: of the job's latest attempt, where `has_run` is false of its record.

    `let_go`: the step before was our own, `lets_go` was true of it, and Slurm took it: what has started since did so
    by our doing.

    `dependants`: what waits for the job, or waited at the last look. Their dependencies are repaired before the retry
    may start.

    A job that failed is put back while its nodes or EpilogSlurmctld still clear up, so that its dependants hear nothing
    of it. Raises `ClusterBusy` until they are through: what is changed before may be written over the failed attempt in
    accounting (22.05), and of any other end it is not known how it ended.
    """
    if job is None:
        return superseded("the job is gone")
    if (taken := _taken(action, job)) is not None:
        return taken
    if job.is_cron and not isinstance(action, Cancel):
        return _of_cron(action, job)
    if let_go and has_run(job, now):
        return done("started again")
    if isinstance(action, Preempt) and waits_again(job, now):
        return done("in the queue")
    at_once = isinstance(action, Cancel | Comment) or (isinstance(action, Requeue) and ended_badly(job, now))
    if job.state == "COMPLETING" and not at_once:
        raise JobBusy(f"job {job.job_id}", "still completing", "Ask again in a moment")
    wanted = action.attempt.incarnation
    latest = job.start_s if has_run(job, now) else last_start
    if let_go and latest is not None and latest > wanted:  # accounting, asked after the job, knows of it already
        return done("started again")
    tells_of_before = isinstance(action, Comment) and latest is not None and latest > wanted and not is_over(job)
    if latest is not None and latest != wanted and not tells_of_before:
        if latest < wanted and isinstance(action, Release) and not action.episode and _is_held_by_slurm(job):
            why = f"it is held ({job.reason}), and accounting does not show the start that failed"
            return refused(f"{why}: scontrol release {whole(job)}")
        return superseded(f"a {'newer' if latest > wanted else 'different'} attempt of the job exists")
    if isinstance(action, Requeue):
        return _requeue(action, job, now, dependants, let_go)
    return _simple(action, job, now, let_go)


def _taken(action: JobAction, job: JobRecord) -> Outcome | None:
    """See `OnJob.taken`. Of one user Slurm tells a name or the number alone, as names can be looked up or not."""
    owner = user_name(job.user, job.uid)
    told = {owner, str(job.uid)}
    if owner.isdecimal() and not action.user.isdecimal() and uid_of_name(action.user) in (None, job.uid):
        told.add(action.user)
    return None if action.user in told else action.taken(owner)


def _simple(action: JobAction, job: JobRecord, now: float, let_go: bool) -> Outcome | Todo | Accounted:
    match action:
        case Comment():
            return _comment(action, job)
        case Exclude():
            return _exclude(action, job, let_go)
        case Extend():
            return _extend(action, job)
        case Hold():
            return _hold(job)
        case Release():
            return _release(action, job)
        case Cancel():
            return _cancel(job, now)
        case Preempt():
            return _preempt(job)
        case _:
            return refused(f"Slurm cannot {action.kind} a job")


def _of_cron(action: JobAction, job: JobRecord) -> Outcome | Accounted:
    """Slurm itself starts a job of a scrontab at its times, and lets nobody change, hold or release it."""
    if isinstance(action, Comment):
        return to_account(action, job)
    return refused("Slurm starts a job of a scrontab by itself, and takes no changes to it")


def _is_held_by_slurm(job: JobRecord) -> bool:
    """True where Slurm itself gave up: nothing starts the job, and nobody else may know that it waits."""
    held = is_held(job.state, job.priority, job.reason)
    return held and job.reason not in HELD_BY_A_PERSON and job.state != "SPECIAL_EXIT"


def has_run(job: JobRecord, now: float) -> bool:
    """True where the record's own start is that of an attempt: it neither waits nor was cancelled while waiting."""
    has_nodes = bool(job.nodes) or job.state == "COMPLETING"  # they may be free before EpilogSlurmctld ends
    return not is_waiting(job.state) and not waits_again(job, now) and has_nodes


def lets_go(step: Todo) -> bool:
    """True of a step after which nothing of ours keeps a job that waits from starting."""
    last = step.commands[-1]
    return last.startswith(("release ", "update jobid=")) and " TimeLimit=" not in last


def puts_back(step: Todo) -> bool:
    return step.commands[-1].startswith("requeuehold ")


def takes_back(step: Todo) -> bool:
    """True of a step after which a job that was put back may start on the nodes that it was kept away from."""
    return any(_TAKEN_BACK in words for words in step.said)


def whole(job: JobRecord) -> str:
    """What to call the job: Slurm puts back, holds and cancels a heterogeneous job only as a whole."""
    return job.job_id.partition("+")[0]


def asks_for_admin(command: str) -> bool:
    """True of a command that writes what Slurm lets administrators write alone."""
    return _ADMIN_COMMENT.search(command) is not None


def without_admin(commands: Sequence[str]) -> tuple[str, ...]:
    """The commands without what administrators alone may write; those that are about nothing else are left out."""
    stripped = [_ADMIN_COMMENT.sub("", command) for command in commands]
    return tuple(command for command in stripped if not _BARE.fullmatch(command))


def refused_twice(action: JobAction | NodeAction, step: Todo, complaint: str) -> Outcome:
    """What has come of an action whose last step Slurm refuses again and again."""
    if any(command.startswith("release ") for command in step.commands):
        return refused(f"it is held, and Slurm does not release it: {complaint}")
    if isinstance(action, Requeue) and not puts_back(step):
        return done(f"in the queue, but as it was: {complaint}")
    return refused(complaint)


def _requeue(
    action: Requeue, job: JobRecord, now: float, dependants: Sequence[Dependant], let_go: bool
) -> Outcome | Todo:
    if job.state == "CANCELLED":
        return superseded("the job was cancelled")
    if not is_waiting(job.state):
        if job.state in _NOT_OVER and not ended_badly(job, now):
            return refused(f"the attempt is not over: {job.state}")
        if not job.is_batch:
            return refused("Slurm cannot put it back: it is not a batch job")
        if not job.requeue:
            return refused("Slurm may not put this job back (Requeue=0)")
        if not job.priority:  # requeuehold and release would undo it
            return refused(
                "a person holds the job, since while it ran: scontrol requeue, then scontrol release, bring it back"
            )
        return Todo((f"requeuehold {whole(job)}",))
    if job.state == "SPECIAL_EXIT":
        return refused("the site's rule holds the job (RequeueExitHold)")
    if job.reason in HELD_BY_A_PERSON:
        return refused(f"a person holds the job: {job.reason}")
    if job.reason == CANNOT_RUN:
        return done(_where(job)) if let_go and job.priority else _anywhere(action, job)
    changes = _placement(job, action) + _size(job, action.node_count) + _delay(job, action.delay_s, now)
    if not is_held(job.state, job.priority, job.reason):
        return Todo((_update(job, changes),)) if changes else done(_where(job))
    changes += _comments(job, action.comment) + _turn(job, dependants)
    commands: tuple[str, ...] = (_update(job, changes),) if changes else ()
    repairs = tuple(command for one in dependants if (command := _repair(one, job)))
    words = [word_on(one.before, one.now, job, action.attempt.incarnation) for one in dependants]
    replaced = ",".join(node for node in job.required if node in action.exclude)
    words.append(f"{replaced}, asked for by -w, is replaced" if replaced else "")
    return Todo((*commands, f"release {whole(job)}"), repairs, tuple(filter(None, words)))


def _anywhere(action: Requeue, job: JobRecord) -> Outcome | Todo:
    """Take back nodes that it was kept away from: no other has what it asks for (-C, a reservation, memory)."""
    left = [node for node in job.excluded if node not in action.exclude]
    if len(left) == len(job.excluded):
        return refused(f"it is in the queue, where no node has what it asks for: {job.reason}")
    words = f"{_TAKEN_BACK}, so not away from {','.join(action.exclude)} any more"
    where = f" on any node but {', '.join(left)}" if left else " on any node"
    comment = action.comment.replace(f" away from {', '.join(action.exclude)}", where)
    changes = (f"ExcNodeList={','.join(left)}", *_comments(job, comment))
    return Todo((_update(job, changes), f"release {whole(job)}"), said=(words,))


def _turn(job: JobRecord, dependants: Sequence[Dependant]) -> tuple[str, ...]:
    """Of two jobs of one name, one waits for the other: a singleton does not wait for a job that is completing.

    One that has run and waits again is put back, too: Slurm has forgotten that it was to run alone.
    """
    overtaken = any(is_singleton(one.before) and _has_begun(one.now) for one in dependants)
    return ("dependency=singleton",) if overtaken and not job.dependency else ()


def _has_begun(job: JobRecord) -> bool:
    """Whether it runs, or has run and is to run again."""
    return job.state in _NOT_OVER or (is_waiting(job.state) and job.restarts > 0)


def _repair(dependant: Dependant, job: JobRecord) -> str:
    """The command that lets a dependant wait for the retry; "" where it does already."""
    waits = is_waiting(dependant.now.state)
    text = repaired_dependency(dependant.now.dependency, job.job_id, dependant.tasks) if waits else None
    return "" if text is None else _update(dependant.now, (f"dependency={text}",))


def _comment(action: Comment, job: JobRecord) -> Outcome | Todo | Accounted:
    """Of a job that is over or completing the controller takes none; accounting does."""
    if job.state == "COMPLETING" or is_over(job):
        return to_account(action, job)
    if _failed_at(job.admin_comment) > _failed_at(action.comment):
        return superseded("the job's record names a newer failure")
    changes = _comments(job, action.comment)
    return Todo((_update(job, changes),)) if changes else done("written")


def _failed_at(line: str) -> str:
    """The part of our line that tells when the attempt failed: it sorts by time. "" for a line of others."""
    found = _FAILED_AT.match(line)
    return str(found[1]) if found else ""


def is_over(job: JobRecord) -> bool:
    """Whether the controller has done with it."""
    return not (is_waiting(job.state) or job.state in _NOT_OVER)


def to_account(action: Comment, job: JobRecord) -> Outcome | Accounted:
    """What accounting is to write, unless others wrote there."""
    ours = _is_ours(job.admin_comment)
    if not ours:
        return done("others wrote there")
    return Accounted(named(job), _one_line(action.comment), in_comment=bool(mark_of(job.comment)))


def _comments(job: JobRecord, comment: str) -> tuple[str, ...]:
    """AdminComment and Comment, each where nobody else has written. Slurm keeps the quotes of a command it reads."""
    text = f'"{_one_line(comment)}"'
    fields = (("AdminComment", job.admin_comment), ("Comment", job.comment))
    return tuple(f"{field}={text}" for field, now in fields if comment and now != text and _is_ours(now))


def _is_ours(text: str) -> bool:
    return not text or bool(mark_of(text))


def _extend(action: Extend, job: JobRecord) -> Outcome | Todo:
    if job.state != "RUNNING":
        return superseded(f"the job does not run: {job.state}")
    if job.walltime_s is None or job.walltime_s >= action.walltime_s:
        return done("it has that long already")
    return Todo((_update(job, (f"TimeLimit={math.ceil(action.walltime_s / 60)}",)),))


def _exclude(action: Exclude, job: JobRecord, let_go: bool) -> Outcome | Todo:
    """`let_go`: Slurm took the command before, hence the line, too."""
    if not is_waiting(job.state):
        return superseded(f"the job does not wait: {job.state}")
    changes = _placement(job, action) + _size(job, action.node_count)
    changes += () if let_go else _comments(job, action.comment)
    return Todo((_update(job, changes),)) if changes else done(_where(job))


def _hold(job: JobRecord) -> Outcome | Todo:
    if not is_waiting(job.state):
        return superseded(f"the job does not wait: {job.state}")
    if is_held(job.state, job.priority, job.reason):
        return done("held")
    return Todo((f"hold {whole(job)}",))


def _release(action: Release, job: JobRecord) -> Outcome | Todo:
    if not is_waiting(job.state):
        return superseded(f"the job does not wait: {job.state}")
    if not is_held(job.state, job.priority, job.reason):
        return done("released")
    changes = _comments(job, action.comment)
    return Todo((*([_update(job, changes)] if changes else []), f"release {whole(job)}"))


def _preempt(job: JobRecord) -> Outcome | Todo:
    if is_waiting(job.state):
        return done("in the queue")
    if job.state != "RUNNING":
        return superseded(f"the job does not run: {job.state}")
    if not job.is_batch:
        return refused("Slurm cannot put it back: it is not a batch job")
    if not job.requeue:
        return refused("Slurm may not put this job back (Requeue=0)")
    if not job.priority:  # it would be held then
        return refused("a person holds the job, since while it ran")
    return Todo((f"requeue {whole(job)}",))


def _cancel(job: JobRecord, now: float) -> Outcome | Todo:
    if job.state == "CANCELLED" or (job.state == "COMPLETING" and not waits_again(job, now)):
        return done("cancelled")
    if is_over(job):
        return superseded(f"the job is over: {job.state}")
    return Todo((f"scancel {whole(job)}",))


_ADMIN_COMMENT = re2.compile(r' AdminComment="[^"]*"')
_FAILED_AT = re2.compile(r'"?perdure: failed ([0-9: -]{19}): ')
_BARE = re2.compile(r"update jobid=\S+ ?")
_TAKEN_BACK = "no other node has what it asks for"
_NOT_OVER = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING",
     "POWER_UP_NODE", "EXPEDITING"}
)  # fmt: skip


def _placement(job: JobRecord, action: Requeue | Exclude) -> tuple[str, ...]:
    """Add to what the job excludes, or lift that; take out of what it requires, or it would wait for ever."""
    changes: tuple[str, ...] = ()
    excluded = [node for node in job.excluded if node not in action.lift]
    excluded += [node for node in action.exclude if node not in excluded]
    if set(excluded) != set(job.excluded):
        changes += (f"ExcNodeList={','.join(excluded)}",)
    if set(action.exclude) & set(job.required):
        changes += (f"ReqNodeList={','.join(node for node in job.required if node not in action.exclude)}",)
    return changes


def _size(job: JobRecord, node_count: int) -> tuple[str, ...]:
    """As many tasks and CPUs on other nodes in number; 0 stands for as many as it asks for.

    The tasks tell how many nodes it asks for: what 22.05 prints for nodes is what a job had that was put back.
    """
    tasks = job.tasks_per_node * node_count
    if tasks in (0, job.tasks):
        return ()
    return (f"NumNodes={node_count}", f"NumTasks={tasks}", f"NumCPUs={tasks * job.cpus_per_task}")


def _delay(job: JobRecord, delay_s: float, now: float) -> tuple[str, ...]:
    """Slurm's own delay after a requeue stays; ours counts from the instant at which the job was put back."""
    begin = job.submit_s + math.ceil(delay_s)
    if delay_s <= 0 or begin <= max(job.eligible_s or 0, now):
        return ()
    return (f"StartTime=now+{max(1, math.ceil(begin - now))}",)


def _update(job: JobRecord, changes: tuple[str, ...]) -> str:
    return f"update jobid={named(job)} {' '.join(changes)}"


def named(job: JobRecord) -> str:
    """What to call one job, or the first component of one, in a command."""
    return str(job.raw_id) if "+" in job.job_id else job.job_id


def _where(job: JobRecord) -> str:
    return f"in the queue, away from {','.join(job.excluded)}" if job.excluded else "in the queue"


def for_node(action: NodeAction, node: Node | None) -> Outcome | Todo:
    """Decide the next step. What we do to a node carries its episode in the reason; nobody else's is undone."""
    if node is None:
        return refused("there is no such node")
    mine = f"[perdure {_one_line(action.episode)}]"
    down = node.state is NodeState.DOWN
    drained = node.state in (NodeState.DRAINING, NodeState.DRAINED) or (down and OUR_REASON in node.reason)
    match action:
        case Drain() if drained:
            return done(f"drained: {node.reason}")
        case Drain():
            return Todo((f'update nodename={node.name} state=drain reason="{_one_line(action.reason)} {mine}"',))
        case Down() if down:
            return done(f"down: {node.reason}")
        case Down():
            return Todo((f'update nodename={node.name} state=down reason="{_one_line(action.reason)} {mine}"',))
    if not drained:
        return done("in service")
    if OUR_REASON not in node.reason:
        return refused(f"{node.by or 'somebody else'} drained it: {node.reason or 'no reason is given'}")
    return Todo((f"update nodename={node.name} state={'resume' if down else 'undrain'}",))


def _one_line(text: str) -> str:
    """Leave out what would end the quotes or the line; Slurm keeps the rest as it is.

    An apostrophe is written as a printer does: scontrol takes a plain one for a quote, sacctmgr stores it as another
    sign. In 22.05 what sacctmgr is told is stored in small letters.
    """
    printed = text.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")
    kept = "".join(char if char.isprintable() and char not in '"\\[]' else " " for char in printed)
    return " ".join(kept.split())[:200]
