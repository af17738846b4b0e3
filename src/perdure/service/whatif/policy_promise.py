"""What was promised of a policy: the latest what-if of this site's history that has it and the manager's own way."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.live_policy.outcome import PolicyPromise
from perdure.service.whatif.comparison import Comparison, Stage
from perdure.service.whatif.comparison_queue import ComparisonQueue

OWN_WAY = "slurm"


def latest_of(comparisons: Iterable[Comparison], policy: str) -> Comparison | None:
    """The latest one that is done, of the site's own history, with both."""
    wanted = {OWN_WAY, policy}
    fitting = (
        each
        for each in comparisons
        if each.stage is Stage.DONE and each.ask.upload is None and wanted <= set(each.ask.policies)
    )
    return max(fitting, key=lambda each: each.created_s, default=None)


def promise_of(whatif: ComparisonQueue, policy: str) -> PolicyPromise | None:
    """What the newest comparison said of a policy; None if there was no such comparison, or its answer was lost."""
    found = latest_of(whatif.store.all(), policy)
    summary = whatif.summary(found) if found is not None else None
    if found is None or summary is None:
        return None
    figures = {each.policy: each for each in summary.compared}
    own, wanted = figures.get(OWN_WAY), figures.get(policy)
    if own is None or wanted is None:
        return None
    return PolicyPromise(
        found.id, found.created_s, summary.jobs, wanted.wait_s.mean, wanted.jct_s.mean, own.wait_s.mean, own.jct_s.mean
    )
