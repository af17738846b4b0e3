"""A retry that waits in the queue: what became of its nodes since, and when it gets back some of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node
from perdure.retry.decide import Decision
from perdure.retry.history import Fleet
from perdure.service.core.case import Case

_CHANGED = "; its nodes were changed since, "  # no colon: behind one stands what was done
_TOO_LATE = "; it had started again before that, so "
_LIFTED = "; no other node is in service, so "


def after_change(decision: Decision | None, before: Job, now: Job) -> Decision | None:
    """The decision with where the job may go now, if somebody else changed that while it waited; else None."""
    if decision is None or not decision.retries or not (before.state.is_waiting and now.state.is_waiting):
        return None
    ours, lost = set(decision.exclude), set(before.excluded) - set(now.excluded)
    gained, asked = set(now.excluded) - set(before.excluded), set(now.required) - set(before.required)
    left = set(before.required) - set(now.required)
    if not (asked or gained - ours or left - ours or lost - set(decision.lift)):
        return None
    where = [f"it must run on {', '.join(now.required)}"] if now.required else []
    where += [f"it is kept off {', '.join(now.excluded)}"] if now.excluded else []
    return _with_words(decision, _CHANGED, ", and ".join(where) or "it may run on any node")


def given_back(case: Case, nodes: Mapping[str, Node], fleet: Fleet, after_s: float, now: float) -> tuple[str, ...]:
    """The nodes that we kept its retry off and that it gets back; () as long as others may do.

    That is where nobody else keeps it off them, too few others have been in service for `after_s` seconds, or it has
    waited for as long while the others are no longer of the cluster or reserved, and it had no log of broken hardware
    there.
    """
    failure, job = case.failure, case.job
    if failure is None or failure.decision is None or failure.verdict is None or case.moved_on:
        return ()
    ours = tuple(name for name in failure.decision.exclude if name in job.excluded)
    if not ours or job.state is not JobState.PENDING or job.required or failure.verdict.hardware:
        return ()
    usable = fleet.nodes_for(job.partition) - fleet.reserved
    others = usable - set(job.excluded)
    if len(others) >= job.node_count or len(others | (usable & set(ours))) < job.node_count:
        return ()
    out = [node for node in nodes.values() if _is_missing(node, job)]
    # Since when others have left the cluster, or are reserved, nobody says: then the wait counts.
    waits_s = now if job.eligible_s is None else job.eligible_s
    since_s = max((now if node.since_s is None else node.since_s for node in out), default=waits_s)
    return ours if now - max(since_s, job.eligible_s or 0.0) >= after_s else ()


def after_giving_back(decision: Decision, nodes: tuple[str, ...]) -> Decision:
    """The decision once the nodes are given back: that is done once."""
    kept = tuple(name for name in decision.exclude if name not in nodes)
    decision = replace(decision, exclude=kept, lift=(*decision.lift, *nodes))
    return _with_words(decision, _LIFTED, f"it may run on {', '.join(nodes)} again")


def after_too_late(decision: Decision) -> Decision:
    """The decision where the job had started again before it could be kept off nodes."""
    said = f"it was not kept off {', '.join(decision.exclude)}"
    return _with_words(replace(decision, exclude=()), _TOO_LATE, said)


def _is_missing(node: Node, job: Job) -> bool:
    """Whether it would do for the job, and is out of service."""
    is_there = not job.partition or not node.partitions or job.may_run_in(node.partitions)
    return is_there and not node.is_usable and node.name not in job.excluded


def _with_words(decision: Decision, begin: str, said: str) -> Decision:
    """With the words behind those of the decision, in place of earlier ones of their kind."""
    costs = decision.reason.removeprefix(decision.told)
    return replace(decision, reason=f"{decision.told.partition(begin)[0]}{begin}{said}{costs}")
