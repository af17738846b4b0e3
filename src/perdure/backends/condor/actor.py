"""Actions carried out: look at what it is about, tell HTCondor what is left to do, look again where it says no."""

from __future__ import annotations

import time

from perdure.backends.condor import plans
from perdure.backends.condor.ads import ClassAd, job_id, literal, text, that_run
from perdure.backends.condor.picture import ACTIVE, JOB_FIELDS, NODE_FIELDS, nodes_of
from perdure.backends.condor.tools import ADVICE, CondorTools
from perdure.errors import ClusterBusy
from perdure.model.actions import Action, Drain, Hold, JobAction, NodeAction, Outcome, OutcomeStatus, Release

MAX_OUTCOMES = 10_000  # that are remembered
SHOWN_S, STEP_S = 6.0, 0.1  # how long the collector may take to show what a startd was told
MAX_SCANNED = 20_000  # records of the history that are read for a job that has left the queue
_ACTIVE = " || ".join(f"JobStatus == {status}" for status in ACTIVE)
_OF_SCHEDD = ("condor_qedit", "condor_hold", "condor_release", "condor_rm", "condor_vacate_job")


class CondorActor:
    """Changes the jobs of one schedd and the machines of its pool."""

    def __init__(self, tools: CondorTools) -> None:
        self._tools = tools
        self._done: dict[str, Outcome] = {}

    def perform(self, action: Action) -> Outcome:
        """Carry out an action, from wherever an earlier try left it."""
        if (known := self._done.get(action.key)) is not None:
            return known
        outcome = self._perform(action)
        if outcome.status is OutcomeStatus.DONE and not isinstance(action, NodeAction | Hold | Release):
            self._done[action.key] = outcome
            if len(self._done) > MAX_OUTCOMES:
                del self._done[next(iter(self._done))]
        return outcome

    def lookup(self, action: Action) -> Outcome | None:
        """What became of an action; None where something is left to do for it."""
        if (known := self._done.get(action.key)) is not None:
            return known
        step = self._next(action)
        return step if isinstance(step, Outcome) else None

    def _perform(self, action: Action) -> Outcome:
        step = self._next(action)
        if isinstance(step, Outcome):
            return step
        complaint = self._carry_out(step)
        if complaint:
            again = self._next(action)  # raises where nobody answers
            return again if isinstance(again, Outcome) else Outcome(OutcomeStatus.REFUSED, complaint)
        if isinstance(action, NodeAction):
            return self._await_shown(action)
        return Outcome(OutcomeStatus.DONE)

    def _next(self, action: Action) -> Outcome | plans.CondorCommands:
        if isinstance(action, NodeAction):
            slots = self._all_shown(action.node) if isinstance(action, Drain) else self._slots(action.node)
            return plans.for_node(action, slots)
        ad = self._job(action, "condor_q", "-allusers")
        left = (
            None
            if ad is not None
            else self._job(action, "condor_history", "-limit", "1", "-scanlimit", str(MAX_SCANNED))
        )
        return plans.for_job(action, ad, left, time.time())

    def _job(self, action: JobAction, tool: str, *options: str) -> ClassAd | None:
        run = that_run(action.attempt)
        if run is None:
            return None
        job = " && ".join(run.split(" && ")[:2])
        asked = (*options, "-json", "-attributes", JOB_FIELDS, "-constraint", job)
        found = self._tools.read(self._tools.ask_queue(tool, *asked), tool)
        return found[0] if found else None

    def _slots(self, node: str) -> list[ClassAd]:
        asked = ("-json", "-attributes", NODE_FIELDS, "-constraint", f"Machine == {literal(node)}")
        return self._tools.read(self._tools.ask_pool("condor_status", *asked), "condor_status")

    def _all_shown(self, node: str) -> list[ClassAd]:
        """The slots of a machine, once the collector shows all jobs that the schedd has there: one may have just begun.

        Raises `ClusterBusy` where it does not in time.
        """
        asked = ("-allusers", "-json", "-attributes", JOB_FIELDS, "-constraint", _ACTIVE)
        running = self._tools.read(self._tools.ask_queue("condor_q", *asked), "condor_q")
        there = {job_id(ad) for ad in running if node in nodes_of(ad)}
        end = time.monotonic() + SHOWN_S
        while True:
            slots = self._slots(node)
            missing = there - {text(slot, "JobId") for slot in slots}
            if not missing:
                return slots
            if time.monotonic() >= end:
                raise ClusterBusy("condor_status", f"does not show job {min(missing)} on {node} yet", ADVICE.silent)
            time.sleep(STEP_S)

    def _carry_out(self, step: plans.CondorCommands) -> str:
        """Put the commands in order, up to one that fails; what it complained of."""
        for tool, *rest in step.steps:
            ask = self._tools.ask_queue if tool in _OF_SCHEDD else self._tools.ask_pool
            answer = ask(tool, *rest)
            if answer.code != 0:
                return answer.complaint or f"{tool} ended with code {answer.code}"
        return ""

    def _await_shown(self, action: NodeAction) -> Outcome:
        """Wait until the collector shows what the startd has done: the next look rests on it."""
        end = time.monotonic() + SHOWN_S
        while time.monotonic() < end:
            step = self._next(action)
            if isinstance(step, Outcome):
                return step
            time.sleep(STEP_S)
        raise ClusterBusy("condor_status", f"does not show {action.key} yet", ADVICE.silent)
