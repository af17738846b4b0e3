"""How actions are carried out: each is planned from what Slurm says now, step by step, until nothing is left to do."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from perdure.backends.slurm import accounting, plans
from perdure.backends.slurm.accounts import Accounts
from perdure.backends.slurm.asking import ask_job, ask_node, job_record, tasks_of
from perdure.backends.slurm.dependants import Dependants, is_dependant, of_job
from perdure.backends.slurm.het import plain_id
from perdure.backends.slurm.outputs import has_failed
from perdure.backends.slurm.records import JobRecord, read_one_answer
from perdure.backends.slurm.tools import CallBatch, Dialog, Dialogs, Tools
from perdure.backends.tool_process import ToolAnswer
from perdure.errors import ClusterBusy
from perdure.model.actions import (
    Action,
    Comment,
    Exclude,
    Hold,
    JobAction,
    NodeAction,
    Outcome,
    OutcomeStatus,
    Release,
    Requeue,
)
from perdure.slurm_words.reasons import CANNOT_RUN, PUT_BACK_AND_HELD

log = logging.getLogger("perdure")

MAX_OUTCOMES = 10_000  # that are remembered
COMPLETED_S = 1.0  # that a job which was put back is waited for while its epilogs end
MAX_STEPS = 6  # of one action: put back, change, release, and a look after each
MAX_NEW_DEPENDANTS, UNKNOWN_NUMBERS = 50, 2
"""Before a job is released, up to 50 job numbers after the newest known one are asked about: it stops after two
in a row that name no job.
"""

_DENIED = "permission denied"


@dataclass(slots=True)
class LastLook:
    """What the last look saw, as far as actions need it."""

    records: dict[str, JobRecord] = field(default_factory=dict)  # by job id
    latest: dict[str, tuple[int, int]] = field(default_factory=dict)  # job -> (latest start, restarts when it had it)
    dependants: Dependants = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()  # their names


class Actor:
    """Carries out actions. `answer_epilog` lets the epilog of a failed attempt go on, where it waits for a decision."""

    def __init__(
        self,
        tools: Tools,
        dialogs: Dialogs,
        accounts: Accounts,
        look: LastLook,
        answer_epilog: Callable[[str], None],
    ) -> None:
        self._tools, self._dialogs, self._accounts, self._look = tools, dialogs, accounts, look
        self._answer_epilog = answer_epilog
        self._done: dict[str, Outcome] = {}
        self._is_administrator = True  # until Slurm denies what only an administrator may do

    def perform(self, action: Action) -> Outcome:
        """Carry out an action, from wherever an earlier try left it."""
        if (known := self._known(action)) is not None:
            return known
        outcome = self._perform(action)
        if outcome.status is OutcomeStatus.DONE and not isinstance(action, NodeAction | Hold | Release):
            self._done[action.key] = outcome
            if len(self._done) > MAX_OUTCOMES:
                del self._done[next(iter(self._done))]
        return outcome

    def _known(self, action: Action) -> Outcome | None:
        """What came of an action before; None where the job is not as it was left."""
        record = self._look.records.get(action.attempt.job_id) if isinstance(action, Requeue) else None
        if record is not None and isinstance(action, Requeue):
            stands_as_before = record.start_s == action.attempt.incarnation and has_failed(record)
            is_ended = has_failed(record) and plans.is_over(record) and not plans.has_run(record, time.time())
            if stands_as_before or is_ended or record.reason in (PUT_BACK_AND_HELD, CANNOT_RUN):
                return None
        return self._done.get(action.key)

    def _perform(self, action: Action) -> Outcome:
        with self._dialogs.dialog() as scontrol:
            complaint, let_go = "", False
            said: tuple[str, ...] = ()
            for _ in range(MAX_STEPS):
                step = self._next(scontrol, action, let_go)
                if isinstance(step, Outcome):
                    return replace(step, detail="; ".join([step.detail, *said]))
                if isinstance(step, plans.Accounted):
                    self._accounts.write((step,))
                    return plans.done("written to accounting")
                before = complaint
                said += self._repair(scontrol, step)
                complaint = self._carry_out(scontrol, step)
                if complaint and complaint == before:
                    return plans.refused_twice(action, step, complaint)
                let_go = not complaint and plans.lets_go(step)
                said += () if complaint else step.said
                if isinstance(action, Requeue) and plans.takes_back(step) and not complaint:
                    action = replace(action, exclude=())
                if plans.puts_back(step) and isinstance(action, Requeue):
                    self._await_completed(scontrol, action)
            raise ClusterBusy("scontrol", f"{action.key} does not come to rest: {complaint}", "Look at the job by hand")

    def lookup(self, action: Action) -> Outcome | None:
        """Say what became of an action. None: it was not, or not wholly, carried out; `perform` goes on with it.

        Whose doing a newer attempt is cannot be told after a restart of ours: then the action is superseded.
        """
        if (known := self._known(action)) is not None:
            return known
        with self._dialogs.dialog() as scontrol:
            step = self._next(scontrol, action)
            return step if isinstance(step, Outcome) else None

    def _next(self, scontrol: Dialog, action: Action, let_go: bool = False) -> Outcome | plans.Todo | plans.Accounted:
        step = self._planned(scontrol, action, let_go)
        if self._is_administrator or not isinstance(step, plans.Todo):
            return step
        commands = plans.without_admin(step.commands)
        if not commands:  # nothing else was left to do
            return plans.done("written" if isinstance(action, Comment) else "in the queue")
        return dataclasses.replace(step, commands=commands)

    def _planned(self, scontrol: Dialog, action: Action, let_go: bool) -> Outcome | plans.Todo | plans.Accounted:
        if isinstance(action, NodeAction):
            return plans.for_node(action, ask_node(scontrol, action.node))
        if (
            isinstance(action, Requeue | Exclude) and self._look.nodes
        ):  # Slurm refuses all names for one it does not know
            action = replace(action, exclude=tuple(name for name in action.exclude if name in self._look.nodes))
        job = _job(scontrol, action)
        now = time.time()
        wanted = action.attempt.incarnation
        last_start = self._last_start(job, wanted) if job is not None and not plans.has_run(job, now) else None
        waiting = self._waiting_for(scontrol, job) if isinstance(action, Requeue) and job is not None else ()
        return plans.for_job(action, job, last_start, now, let_go=let_go, dependants=waiting)

    def _waiting_for(self, scontrol: Dialog, job: JobRecord) -> tuple[plans.Dependant, ...]:
        """What waits for a job that is held after it was put back, as it is now."""
        if job.priority or not job.restarts:
            return ()
        known = {**of_job(job, self._look.dependants), **self._newcomers(scontrol, job)}
        if not known:
            return ()
        array, _, task = job.job_id.partition("_")
        tasks = tasks_of(scontrol, array) if task else ()
        records = ((before, job_record(scontrol, job_id)) for job_id, before in known.items())
        return tuple(plans.Dependant(before, now, tasks) for before, now in records if now is not None)

    def _newcomers(self, scontrol: Dialog, job: JobRecord) -> dict[str, str]:
        """Jobs that wait for this one and were submitted since the last look, or cancelled before it saw them wait.

        Slurm counts its numbers up.
        """
        ended = (each for each in self._look.records.values() if each.dependency and each.state == "CANCELLED")
        found = {each.job_id: each.dependency for each in ended if is_dependant(each.dependency, job.job_id)}
        newest, unknown = max((each.raw_id for each in self._look.records.values()), default=0), 0
        for number in range(newest + 1, newest + 1 + MAX_NEW_DEPENDANTS if newest else 0):
            records = read_one_answer(ask_job(scontrol, str(number)).out, scontrol.mark)
            found |= {each.job_id: each.dependency for each in records if is_dependant(each.dependency, job.job_id)}
            unknown += not records
            if unknown == UNKNOWN_NUMBERS:
                break
        return found

    def _await_completed(self, scontrol: Dialog, action: Requeue) -> None:
        """A job that was put back takes no changes before its epilogs end; one of them may wait for us."""
        begun = time.monotonic()
        end = begun + COMPLETED_S - self._dialogs.waited_s  # all of a round together
        try:
            while True:
                self._answer_epilog(action.attempt.job_id)
                job = _job(scontrol, action)
                if job is None or job.state != "COMPLETING" or time.monotonic() > end:
                    return
                time.sleep(COMPLETED_S / 20)
        finally:
            self._dialogs.note_wait(time.monotonic() - begun)

    def _repair(self, scontrol: Dialog, step: plans.Todo) -> tuple[str, ...]:
        """Put the commands about other jobs; what came of them."""
        words = []
        for command in step.repairs:
            job = command.split()[1].removeprefix("jobid=")
            complaint = scontrol.ask(command).complaint
            words.append(f"job {job} {f'waits without success: {complaint}' if complaint else 'depends on it again'}")
        return tuple(words)

    def write_comments(self, actions: Sequence[Comment]) -> list[Outcome]:
        """See `Commented`. Jobs that are over are told to accounting, which takes them in one process."""
        accounted: list[plans.Accounted] = []
        outcomes: list[Outcome] = []
        with CallBatch(self._tools) as batch:  # one of its own, as another thread may talk meanwhile
            for action in actions:
                step = self._comment(batch, action)
                if isinstance(step, plans.Accounted):
                    accounted.append(step)
                    step = plans.done("written to accounting")
                outcomes.append(step)
        self._accounts.write(accounted)
        return outcomes

    def _comment(self, batch: CallBatch, action: Comment) -> Outcome | plans.Accounted:
        """Write into a job's record, or leave it to accounting.

        The controller is asked each time: since the last look anybody may have put back a job that was over then, and
        who looks at a job in the queue does not see what accounting wrote. What the last look saw is enough where the
        controller has forgotten the job since.
        """
        seen = self._look.records.get(action.attempt.job_id)
        was_over = seen is not None and seen.start_s == action.attempt.incarnation and plans.is_over(seen)
        with batch.dialog() as scontrol:
            if seen is not None and was_over and _job(scontrol, action) is None:
                return plans.to_account(action, seen)
            step = self._next(scontrol, action)
            if not isinstance(step, plans.Todo):
                return step
            complaint = self._carry_out(scontrol, step)
            return plans.refused(complaint) if complaint else plans.done("written")

    def _carry_out(self, scontrol: Dialog, step: plans.Todo) -> str:
        """Put the commands in order; return what Slurm last complained of, "" where it did not."""
        complaint = ""
        for command in step.commands:
            alone = command.startswith("scancel ")
            answer = self._tools.run(*command.split(" ")) if alone else scontrol.ask(command)
            if _DENIED in answer.complaint and plans.asks_for_admin(command):
                answer = self._without_admin(scontrol, command)
            complaint = answer.complaint or complaint
        return complaint

    def _without_admin(self, scontrol: Dialog, command: str) -> ToolAnswer:
        """Put a command again that was denied, without what Slurm lets administrators write alone."""
        rest = plans.without_admin((command,))
        answer = scontrol.ask(rest[0]) if rest else ToolAnswer(b"", b"")
        if self._is_administrator and not answer.complaint:
            self._is_administrator = False
            log.warning(
                "Slurm lets administrators alone write AdminComment: decisions on jobs in the queue are written to"
                " Comment, where that is empty. To have both: sacctmgr modify user NAME set adminlevel=administrator"
            )
        return answer

    def _last_start(self, job: JobRecord, wanted: int) -> int:
        """The start instant of the latest attempt of a job that waits, 0 where it never ran.

        What the last look saw is good enough while the job has been put back exactly once since, and no action is about
        a later start: a controller that was killed starts again, uncounted, what it had not saved. Else accounting is
        asked, the one case in which an action takes a second process.
        """
        start_s, restarts = self._look.latest.get(job.job_id, (0, -1))
        if start_s and start_s >= wanted and job.restarts == restarts + 1:
            return start_s
        rows = self._accounts.ask("-j", job.job_id)
        return accounting.latest_start(rows, job.job_id, job.restarts)


def _job(scontrol: Dialog, action: JobAction) -> JobRecord | None:
    return job_record(scontrol, plain_id(action.attempt.job_id))
