"""Policies that plan in rounds, above a resource manager: who is to have GPUs now, and how many.

The object of `scheduling/` plans with the GPUs that jobs outside the pass leave (`round_plans`). Its plan is made from
nothing at each look: what it has to remember is in when jobs came and ran. Where the resource manager puts a job is its
own choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor

from perdure.live_policy.ended_jobs import EndedJobs
from perdure.live_policy.queue_view import QueuePicture
from perdure.live_policy.settings import PolicySettings
from perdure.scheduling.protocol import RankingPolicy, StatelessPolicy
from perdure.scheduling.view import View
from perdure.waits.queue import QueuedJob


@dataclass(frozen=True, slots=True)
class FixedOrder(StatelessPolicy):
    """Rows in an order that somebody else has made. Those who run and come last make room."""

    name: str
    rows: tuple[int, ...]
    preemptive: bool = True

    def order(self, view: View) -> Sequence[int]:  # noqa: ARG002
        return self.rows


@dataclass(frozen=True, slots=True)
class RoundPolicy:
    """Themis or Sia, by its name. A job of one size is a gang; one that runs is, whatever sizes it allows."""

    name: str
    settings: PolicySettings
    past: EndedJobs = field(default_factory=EndedJobs)
    preemptive: bool = True

    def on(self, picture: QueuePicture) -> tuple[RankingPolicy, Mapping[str, int]]:
        """The order of the picture's rows, and the GPUs of waiting jobs that have a choice and are planned."""
        from perdure.live_policy.round_plans import planned_gpus  # which loads SciPy

        plan = planned_gpus(self.name, picture, self.settings, self.past)
        jobs = picture.jobs
        rows = range(len(jobs))
        kept = [row for row in rows if jobs[row].is_running and row in plan]
        begin = sorted((row for row in rows if jobs[row].is_waiting and row in plan), key=lambda row: -plan[row])
        others = sorted((row for row in rows if row not in plan), key=lambda row: jobs[row].is_waiting)
        sizes = {jobs[row].job_id: plan[row] for row in begin if jobs[row].sizes}
        return FixedOrder(self.name, (*kept, *begin, *others)), sizes

    def unfit(self, job: QueuedJob, nodes: Mapping[int, int]) -> str:
        """Why it cannot plan for a job of one size; "" mostly. `nodes`: how many are usable, by their GPUs."""
        if self.name != "sia" or (job.sizes and job.is_waiting):
            return ""
        if any(_is_configuration(job.gpus, size, count) for size, count in nodes.items()):
            return ""
        return f"it asks for {job.gpus} GPUs, and sia knows powers of two on a node, or whole nodes"

    def why_kept(self, job: QueuedJob, now_s: float) -> str:
        """Why a job that runs has its GPUs for longer; "" where they are on offer."""
        if self.name == "themis":
            left_s = self.lease_left_s(job, now_s)
            return f"its lease goes on for {left_s:.0f} s" if left_s > 0 else ""
        ran_s, round_s = now_s - (job.start_s if job.start_s is not None else now_s), self.settings.round_s
        return f"it has run {ran_s:.0f} s of a round of {round_s:.0f} s" if ran_s < round_s else ""

    def lease_left_s(self, job: QueuedJob, now_s: float) -> float:
        """How long a job that runs has its GPUs for sure; 0 where they are on offer in this round.

        A lease that ended in the round before is on offer until this one ends. It is another one where its job wins.
        """
        if job.start_s is None:
            return 0.0
        lease_s, round_s = self.settings.lease_s, self.settings.round_s
        begin_s = floor(now_s / round_s) * round_s
        ended = floor((begin_s - job.start_s) / lease_s)
        if ended >= 1 and job.start_s + ended * lease_s > begin_s - round_s:
            return 0.0
        return job.start_s + (floor((now_s - job.start_s) / lease_s) + 1) * lease_s - now_s


def _is_configuration(gpus: int, size: int, nodes: int) -> bool:
    """Whether Sia gives so many: a power of two of a node, or whole nodes; as `Configurations.of_cluster`."""
    return (gpus < size and gpus & (gpus - 1) == 0) or (gpus % size == 0 and gpus <= nodes * size)
