"""Retry elsewhere, stop, or one probing retry: decided by expected cost, within budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from perdure.model.exits import ExitWish, wish_of
from perdure.model.jobs import Attempt, AttemptState, Job, Wish
from perdure.model.value import quick
from perdure.retry.history import HOUR_S, Fleet, PastFailure
from perdure.retry.rules import RetryRules
from perdure.retry.size import restart_range, restart_size
from perdure.triage.verdict import Bound, Label, Role, Verdict


class DecisionKind(StrEnum):
    """What is to become of a job after a failure."""

    RETRY = "retry"
    PROBE = "probe"  # one retry to learn whether it is worth more
    STOP = "stop"


@quick
@dataclass(frozen=True, slots=True)
class Decision:
    """What to do after a failure, and why, with the numbers that weighed."""

    kind: DecisionKind
    reason: str
    exclude: tuple[str, ...] = ()  # nodes that the retry must avoid
    delay_s: float = 0.0
    node_count: int = 0  # for the retry; 0: as many as the job asks for already
    p_transient: float = 0.0  # after the history had its say
    retry_cost_gpu_h: float = 0.0  # expected, of retrying
    stop_cost_gpu_h: float = 0.0  # expected, of stopping

    @property
    def retries(self) -> bool:
        return self.kind is not DecisionKind.STOP


def decide(
    job: Job,
    attempt: Attempt,
    verdict: Verdict,
    past: Sequence[PastFailure],
    fleet: Fleet,
    rules: RetryRules,
    now: float,
) -> Decision:
    """Decide what follows on the failure of `attempt`, the latest of `job`.

    `past` holds the job's earlier failures, oldest first, without this one. A deterministic failure is
    stopped. Blame of the site that stands in the job's own log alone buys one probing retry. Otherwise, with p
    the chance that a retry passes, t the hours this attempt ran and g its GPUs:

        retrying costs (1 - p) * g * (t + nuisance_h),   stopping costs p * g * person_delay_h   [GPU-hours]

    and the cheaper is taken, unless a wish or a budget forbids it. Longer runs must be surer to be repeated:
    the break-even is p = (t + n) / (t + n + d). Each return of the same failure elsewhere multiplies the
    odds of p by `repeat_odds`. A program that asks by its exit code not to be run again is not. One that asks to be is,
    within the budgets, unless its log names a cause that no retry mends: a script may ask so whatever happened.
    """
    p = _after_history(verdict, attempt, past, rules)
    gpus = max(1, attempt.gpus)
    retry_cost = (1 - p) * gpus * (attempt.elapsed_s / HOUR_S + rules.nuisance_h)
    stop_cost = p * gpus * rules.person_delay_h

    def decision(
        kind: DecisionKind, reason: str, exclude: tuple[str, ...] = (), delay_s: float = 0.0, node_count: int = 0
    ) -> Decision:
        return Decision(kind, reason, exclude, delay_s, node_count, p, retry_cost, stop_cost)

    weighed = f"expected cost {retry_cost:.2f} GPU-h if retried, {stop_cost:.2f} if stopped (p = {p:.2f})"
    asked = _wish_of_program(attempt, verdict)
    if refusal := _refused_by_owner(job) or _refused_by_program(asked, attempt):
        return decision(DecisionKind.STOP, refusal)
    if asked is ExitWish.NONE and verdict.label is Label.DETERMINISTIC:
        return decision(DecisionKind.STOP, f"{verdict.summary}: it would fail again; {weighed}")
    if asked is ExitWish.NONE and retry_cost >= stop_cost:
        return decision(DecisionKind.STOP, f"{verdict.summary}: a retry is not worth it; {weighed}")
    believed = asked is ExitWish.RETRY or (verdict.label is Label.TRANSIENT and not verdict.hearsay)
    kind = DecisionKind.RETRY if believed else DecisionKind.PROBE
    if exhausted := _budget_exhausted(kind, job, attempt, verdict, past, fleet, rules, now):
        return decision(DecisionKind.STOP, f"{verdict.summary}: {exhausted}")
    exclude, where = _elsewhere(job, attempt, verdict, fleet, rules, now)
    node_count = restart_size(job, exclude, fleet)
    where += _fewer(job, node_count)
    if asked is ExitWish.RETRY:
        where = f"the program asks for it by exit code {attempt.exit_code}: {where}"
    delay_s = max(verdict.wait_s, _back_off_s(attempt, past, rules))
    return decision(kind, f"{verdict.summary}: {where}, in {delay_s:.0f} s; {weighed}", exclude, delay_s, node_count)


def _after_history(verdict: Verdict, attempt: Attempt, past: Sequence[PastFailure], rules: RetryRules) -> float:
    """The chance that a retry passes, once it is known how often this very failure came back elsewhere."""
    if not verdict.fingerprint or attempt.state is AttemptState.PREEMPTED:
        return verdict.p_transient
    returns = sum(
        1 for f in past if f.fingerprint == verdict.fingerprint and f.retried and not set(f.nodes) & set(attempt.nodes)
    )
    p = min(max(verdict.p_transient, 1e-6), 1 - 1e-6)
    odds = p / (1 - p) * rules.repeat_odds**returns
    return odds / (1 + odds)


def _refused_by_owner(job: Job) -> str:
    if job.wish is Wish.NEVER:
        return "the owner asked that this job is never recovered"
    if not job.may_requeue:
        return "the job was submitted with --no-requeue"
    return ""


def _wish_of_program(attempt: Attempt, verdict: Verdict) -> ExitWish:
    """What it asked for, where it ended by itself: of one that a signal or its limits ended, the code says nothing."""
    if attempt.state is not AttemptState.FAILED or attempt.signal:
        return ExitWish.NONE
    wish = wish_of(attempt.exit_code)
    return ExitWish.NONE if wish is ExitWish.RETRY and _is_hopeless(verdict) else wish


def _is_hopeless(verdict: Verdict) -> bool:
    """Whether the log names the cause, and the cause stays."""
    return verdict.label is Label.DETERMINISTIC and any(each.role is Role.ROOT for each in verdict.evidence)


def _refused_by_program(asked: ExitWish, attempt: Attempt) -> str:
    if asked in (ExitWish.NEVER, ExitWish.STOP):
        return f"the program asks not to be run again (exit code {attempt.exit_code})"
    return ""


def _budget_exhausted(
    kind: DecisionKind,
    job: Job,
    attempt: Attempt,
    verdict: Verdict,
    past: Sequence[PastFailure],
    fleet: Fleet,
    rules: RetryRules,
    now: float,
) -> str:
    """Name the first budget that has no retry left, or "" where all have."""
    retried = [f for f in past if f.retried]
    alike = sum(f.fingerprint == verdict.fingerprint for f in retried)
    site = verdict.infrastructure and not verdict.hearsay
    charged = sum(f.infrastructure == site for f in retried)
    recent = [s for s in fleet.spent if s.time_s > now - HOUR_S]
    of_user = sum(s.user == job.user for s in recent)
    of_node = max((sum(n in s.nodes for s in recent) for n in attempt.nodes), default=0)
    share = max(rules.cluster_floor_per_hour, int(rules.cluster_share_per_hour * fleet.live_jobs))
    probing = kind is DecisionKind.PROBE
    ours, cause = (
        (rules.max_infrastructure_retries, "the site's causes")
        if site
        else (rules.max_user_retries, "causes of its own")
    )
    limits = [
        ("the probing retry for this failure is spent", alike if probing else 0, rules.max_probes),
        (f"the job's retries for {cause} are spent", charged, ours),
        (f"user {job.user}'s retries of this hour are spent", of_user, rules.per_user_per_hour),
        ("this node's failures have used their retries of this hour", of_node, rules.per_node_per_hour),
        ("the cluster's retries of this hour are spent", len(recent), min(rules.per_cluster_per_hour, share)),
    ]
    for words, used, limit in limits:
        if used >= limit:
            return f"{words} ({used} of {limit})"
    return ""


def _elsewhere(
    job: Job, attempt: Attempt, verdict: Verdict, fleet: Fleet, rules: RetryRules, now: float
) -> tuple[tuple[str, ...], str]:
    """Nodes to avoid, and the words for it. Enough nodes are left for the gang; what is surest goes first.

    A suspicion is no proof, and a job's exclusions are never lifted: suspects are avoided only while half of the nodes
    are left, lest a job be driven, one suspicion after the other, onto the one node that is bad. A job that may run on
    fewer nodes gives up only those that went down under it, by the resource manager's word.
    """
    if attempt.state is AttemptState.PREEMPTED:
        return (), "retry anywhere, the node did nothing wrong"
    named = attempt.failed_nodes or attempt.nodes
    suspects = sorted(fleet.suspects(now, rules.node_memory_s) - set(named))
    fewest, most = restart_range(job)
    needed = fewest if attempt.failed_nodes else most
    nodes = fleet.nodes_for(job.partition)
    left = nodes - set(job.excluded) - set(named)
    if fleet.usable and len(left) < needed:
        return (), f"retry on any node, since without {', '.join(named)} too few are left"
    spare = len(left - set(suspects))
    may_avoid = spare >= most and 2 * spare >= len(nodes)
    avoid = (*named, *suspects) if may_avoid else tuple(named)
    why = "" if verdict.bound is not Bound.SERVICE else ", once the service had time to come back"
    return avoid, f"retry away from {', '.join(avoid)}{why}" if avoid else f"retry{why}"


def _fewer(job: Job, node_count: int) -> str:
    most = restart_range(job)[1]
    nodes = "1 node" if node_count == 1 else f"{node_count} nodes"
    return f", on {nodes}, since {most} cannot be had" if 0 < node_count < most else ""


def _back_off_s(attempt: Attempt, past: Sequence[PastFailure], rules: RetryRules) -> float:
    """No wait after a preemption; otherwise doubled with each failure in a row, up to the cap."""
    if attempt.state is AttemptState.PREEMPTED:
        return 0.0
    return min(rules.back_off_cap_s, rules.back_off_s * 2.0 ** min(len(past), 30))
