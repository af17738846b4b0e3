"""Retry elsewhere, stop, or one probing retry: decided by expected cost, within budgets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from perdure.model.exits import ExitRequest, exit_request_of
from perdure.model.jobs import Attempt, AttemptState, Job, RetryPreference
from perdure.model.signals import persons_deed
from perdure.retry.budget import at, room
from perdure.retry.history import HOUR_S, WALLTIME_FINGERPRINT, Fleet, PastFailure, fingerprint_of, is_shared
from perdure.retry.rules import RetryRules
from perdure.retry.size import restart_range, restart_size
from perdure.triage.evidence.scheduler import has_failed_to_launch
from perdure.triage.verdict import CANCELLED, Bound, CauseRole, Label, Verdict

OF_THE_SITE = (AttemptState.NODE_FAIL, AttemptState.BOOT_FAIL, AttemptState.PREEMPTED, AttemptState.LOST)
"""Ends that the resource manager answers for: they say nothing of the job."""


COSTS = "; expected cost "  # begins the figures behind a decision's words
_HOPELESS_P = 0.2  # a retry with no more chance than this very probably fails
_EVEN_P = 0.5  # below that a retry for a cause in the job itself is a probing one, whatever the verdict was
_NO_CAUSE = ("unknown", "preempt")  # categories of a log that shows no error, or a signal that was caught
_LEFT_TO_ITS_OWNER = "nobody starts it again but its owner"


class DecisionKind(StrEnum):
    """What to do with a job after a failure."""

    RETRY = "retry"
    PROBE = "probe"  # one retry to learn whether it is worth more
    STOP = "stop"


class Decision(Struct, frozen=True, omit_defaults=True):
    """What to do after a failure, and why, with the numbers that weighed."""

    kind: DecisionKind
    reason: str
    exclude: tuple[str, ...] = ()  # nodes that the retry must avoid
    delay_s: float = 0.0
    node_count: int = 0  # for the retry; 0: as many as the job asks for already
    p_transient: float = 0.0  # after the history had its say
    retry_cost_gpu_h: float = 0.0  # expected, of retrying
    stop_cost_gpu_h: float = 0.0  # expected, of stopping
    limit: str = ""  # the limit or budget that refused a retry which was worth it, or made it later
    lift: tuple[str, ...] = ()  # nodes that earlier retries were kept off, and this one may get

    @property
    def retries(self) -> bool:
        return self.kind is not DecisionKind.STOP

    def headline(self, verdict: Verdict) -> str:
        """The verdict's label as a person reads it: no more hopeful than the chance that its returns have left."""
        if not 0.0 < self.p_transient < verdict.p_transient or verdict.label is Label.DETERMINISTIC:
            return verdict.headline
        if self.p_transient <= _HOPELESS_P:
            return str(Label.DETERMINISTIC)
        return str(Label.UNSURE) if self.p_transient < _EVEN_P else verdict.headline

    @property
    def told(self) -> str:
        """The reason without the costs that were weighed."""
        return self.reason.partition(COSTS)[0]

    def saved_gpu_h(self, attempt: Attempt) -> float:
        """GPU-hours that a retry would very probably have burnt again, by expectation.

        0 for a retry, for a stop that a limit forced, and where a retry would have had a fair chance.
        """
        in_vain = self.kind is DecisionKind.STOP and not self.limit and self.p_transient <= _HOPELESS_P
        return (1 - self.p_transient) * attempt.gpu_hours if in_vain else 0.0

    @property
    def limit_cost_gpu_h(self) -> float:
        """What a limit that stopped a job is expected to cost: stopping less retrying, in GPU-hours."""
        stopped = self.kind is DecisionKind.STOP and self.limit
        return max(0.0, self.stop_cost_gpu_h - self.retry_cost_gpu_h) if stopped else 0.0


def decide(
    job: Job,
    attempt: Attempt,
    verdict: Verdict,
    past: Sequence[PastFailure],
    fleet: Fleet,
    rules: RetryRules,
    now: float,
    uncounted: int = 0,
) -> Decision:
    """Decide what follows on the failure of `attempt`, the latest of `job`.

    `past` holds the job's earlier failures, oldest first, without this one; `uncounted` is how many further starts the
    resource manager has counted of which nothing is known here: they are tries. A deterministic failure is
    stopped. Blame of the site that is in the job's own log alone buys one probing retry. Otherwise, with p
    the chance that a retry passes, t the hours this attempt ran and g its GPUs, or where it has none its nodes:

        retrying costs (1 - p) * g * (t + nuisance_h),   stopping costs p * g * person_delay_h   [GPU-hours]

    and the cheaper is taken, unless a wish or a limit forbids it, or the resource manager answers for the end. Longer
    runs must be surer to be repeated: the break-even is p = (t + n) / (t + n + d). A failure that
    comes back is less likely to pass each time, whatever surrounds it (`_after_history`). The job's own limits stop it;
    a budget that jobs share lets it start later. A program that asks by its exit code not to be run again is not. One
    that asks to be is, within the limits, unless its log names a cause that no retry fixes: a script may ask so
    whatever happened.
    """
    verdict = _of_warning(attempt, verdict)
    case = _Weighed(
        job,
        attempt,
        verdict,
        past,
        rules,
        _after_history(verdict, attempt, past, rules),
        _wish_of_program(attempt, verdict),
        _goes_on_after_walltime(job, attempt, verdict, rules),
    )
    refusal = (
        _forgotten(job, attempt, verdict)
        or _not_put_back(job, verdict)
        or _refused_by_person(attempt)
        or _refused_by_program(case.asked, attempt)
    )
    if why := refusal or _is_no_use(case):
        return case.decision(DecisionKind.STOP, why)
    kind = DecisionKind.RETRY if _is_believed(case) else DecisionKind.PROBE
    if not case.goes_on and (exhausted := _own_limit_reached(kind, attempt, verdict, past, rules, uncounted)):
        return case.decision(DecisionKind.STOP, f"{verdict.summary}: {exhausted}", limit=exhausted)
    return _retry(case, kind, fleet, now)


class _Weighed(Struct, frozen=True):
    """A failure with the chance that a retry passes, and what a retry and a stop are expected to cost."""

    job: Job
    attempt: Attempt
    verdict: Verdict
    past: Sequence[PastFailure]
    rules: RetryRules
    p: float  # that a retry passes
    asked: ExitRequest  # of the program
    goes_on: bool  # from a checkpoint, after its walltime

    @property
    def size(self) -> int:
        """GPUs; nodes where it has none."""
        return self.attempt.gpus or max(1, len(self.attempt.nodes))

    @property
    def retry_cost(self) -> float:
        return (1 - self.p) * self.size * (self.attempt.elapsed_s / HOUR_S + self.rules.nuisance_h)

    @property
    def stop_cost(self) -> float:
        return self.p * self.size * self.rules.person_delay_h

    @property
    def costs(self) -> str:
        """Both costs in words, to end a reason with."""
        unit = "GPU-h" if self.attempt.gpus else "node-h"
        return f"{COSTS}{self.retry_cost:.2f} {unit} if retried, {self.stop_cost:.2f} if stopped (p = {self.p:.2f})"

    def decision(
        self,
        kind: DecisionKind,
        reason: str,
        exclude: tuple[str, ...] = (),
        delay_s: float = 0.0,
        node_count: int = 0,
        limit: str = "",
        lift: tuple[str, ...] = (),
    ) -> Decision:
        gpu_costs = (self.retry_cost, self.stop_cost) if self.attempt.gpus else (0.0, 0.0)
        return Decision(
            kind, reason + _misread(self.job), exclude, delay_s, node_count, self.p, *gpu_costs, limit, lift
        )


def _is_no_use(case: _Weighed) -> str:
    """Why a retry would come to no more than this attempt did, or costs more than it is worth; "" if neither."""
    job, attempt, verdict = case.job, case.attempt, case.verdict
    if case.goes_on:
        stuck = _stands_still(verdict, case.past)
        return f"{verdict.summary}: {stuck}" if stuck else ""
    if case.asked is not ExitRequest.NONE:
        return ""
    if again := _what_comes_again(job, attempt, verdict, case.rules):
        return f"{verdict.summary}: {again}{case.costs}{_although(case.retry_cost < case.stop_cost)}"
    if verdict.work_done and attempt.state not in OF_THE_SITE:
        return f"{verdict.summary}: {verdict.ending}, and do by hand what is missing{case.costs}"
    if attempt.state in OF_THE_SITE:  # however long it ran: that was not the job
        return ""
    return f"{verdict.summary}: a retry is not worth it{case.costs}" if case.retry_cost >= case.stop_cost else ""


def _is_believed(case: _Weighed) -> bool:
    """Whether a retry is due, and not only one that probes."""
    verdict = case.verdict
    sure = verdict.label is Label.TRANSIENT and not verdict.hearsay and (verdict.infrastructure or case.p >= _EVEN_P)
    launch = has_failed_to_launch(case.attempt) and verdict.bound is Bound.NODE  # it costs little: the budget ends it
    return case.goes_on or case.asked is ExitRequest.RETRY or sure or launch


def _retry(case: _Weighed, kind: DecisionKind, fleet: Fleet, now: float) -> Decision:
    """A retry with its nodes and its time, or the stop that a budget which jobs share leaves."""
    job, attempt, verdict, rules = case.job, case.attempt, case.verdict, case.rules
    exclude, lift, where = _elsewhere(job, attempt, verdict, case.past, fleet, rules, now)
    node_count = restart_size(_without_exclusions(job, lift), exclude, fleet)
    where = f"{_who_asks(case)}{where}{_fewer(job, node_count)}"
    delay_s = max(verdict.wait_s, _back_off_s(attempt, verdict, case.past, rules))
    waits_for = ""
    if not is_free(job, attempt):
        instant_s, waits_for = room(job, attempt, fleet, rules, now + delay_s, now)
        if instant_s == math.inf:
            return case.decision(DecisionKind.STOP, f"{verdict.summary}: {waits_for}", limit=waits_for)
        if waits_for:
            delay_s = instant_s - now
            where += f", later, at {at(instant_s, now)}, since {waits_for}"
    is_ours = not job.state.is_waiting  # else the resource manager has put it back, and starts it when it likes
    reason = f"{verdict.summary}: {where}{f', in {delay_s:.0f} s' if is_ours else ''}{case.costs}"
    return case.decision(kind, reason, exclude, delay_s if is_ours else 0.0, node_count, waits_for, lift)


def _who_asks(case: _Weighed) -> str:
    """What to say before where a retry goes: who asked for it."""
    program = case.asked is ExitRequest.RETRY
    asks = f"the program asks for it by exit code {case.attempt.exit_code}: " if program else ""
    saves = f"it goes on from its checkpoint ({_whose_word(case.job, case.verdict)}): " if case.goes_on else ""
    return asks + saves


def _of_warning(attempt: Attempt, verdict: Verdict) -> Verdict:
    """The verdict, with the signal said that ended it before its walltime, or upon which it left."""
    if _left_when_warned(attempt, verdict):
        said = f"it ended with exit code {attempt.exit_code} when its walltime was near, as {attempt.warning} shows"
        return replace(verdict, summary=said)
    said = f"its walltime warning ended it ({attempt.warning}: who does not catch that signal ends by it)"
    return replace(verdict, summary=said) if attempt.warning and attempt.state is AttemptState.TIMEOUT else verdict


def _left_when_warned(attempt: Attempt, verdict: Verdict) -> bool:
    """Whether it was told that its walltime is near, and ended itself then; its log names no other cause."""
    return bool(attempt.warning) and attempt.state is AttemptState.FAILED and verdict.category in _NO_CAUSE


def _after_history(verdict: Verdict, attempt: Attempt, past: Sequence[PastFailure], rules: RetryRules) -> float:
    """The chance that a retry passes, once it is known how often this very failure came back.

    Never more than it was before, whatever speaks for a retry now, and strictly less where it lies in (0, 1): the odds
    are multiplied by `repeat_odds` for each return elsewhere, by `same_place_odds` for one in the same place.
    """
    fingerprint = fingerprint_of(verdict, attempt)
    p = verdict.p_transient
    if attempt.state is AttemptState.PREEMPTED:
        return p
    for before in past:
        if before.fingerprint == fingerprint and before.is_try:
            elsewhere = not set(before.nodes) & set(attempt.nodes)
            factor = rules.repeat_odds if elsewhere else rules.same_place_odds
            p = min(_with_odds(p, factor), _with_odds(before.p_transient, factor))
    return p


def _with_odds(p: float, factor: float) -> float:
    """`p` with its odds multiplied by `factor`."""
    return p * factor / (p * factor + 1 - p) if p < 1 else p


def _although(retry_is_cheaper: bool) -> str:
    """What to add to the costs where they speak against a stop that they did not decide."""
    return ", but a failure that a retry rarely gets past is not retried" if retry_is_cheaper else ""


def _what_comes_again(job: Job, attempt: Attempt, verdict: Verdict, rules: RetryRules) -> str:
    """Why a retry would end as this attempt did, or is left to the owner; "" where that is not known."""
    if verdict.label is Label.DETERMINISTIC:
        return _LEFT_TO_ITS_OWNER if verdict.category == CANCELLED else "it would fail again"
    left = _left_when_warned(attempt, verdict) and not _saves_checkpoints(job, rules)
    return "it would take as long again" if left else ""


def _goes_on_after_walltime(job: Job, attempt: Attempt, verdict: Verdict, rules: RetryRules) -> bool:
    """Whether it ended at its walltime, and its owner, or the site for its partition, said that it saves checkpoints.

    Whoever has the program warned before the walltime (``perdure exec --signal-before``) has said so, too.
    """
    if verdict.fingerprint == WALLTIME_FINGERPRINT:
        return True
    return _saves_checkpoints(job, rules) and attempt.state is AttemptState.TIMEOUT


def _saves_checkpoints(job: Job, rules: RetryRules) -> bool:
    """Whether its owner, or the site for its partition, says so."""
    return job.requeue_at_timeout or job.may_run_in(rules.requeue_at_timeout)


def _whose_word(job: Job, verdict: Verdict) -> str:
    if verdict.fingerprint == WALLTIME_FINGERPRINT:
        return "it was warned in time"
    return "its owner asks for it" if job.requeue_at_timeout else f"as the site says of partition {job.partition}"


def _stands_still(verdict: Verdict, past: Sequence[PastFailure]) -> str:
    """Why it is not put back any more: two runs up to the walltime in a row, without progress as far as is known.

    A job whose log shows no steps is put back once.
    """
    runs = [f for f in past if f.ran_out]
    if not runs or _got_further(verdict, runs) or _got_further(runs[-1], runs[:-1]):
        return ""
    return "two runs in a row reached the walltime, and neither log shows a newer step than before"


def _got_further(run: Verdict | PastFailure, before: Sequence[PastFailure]) -> bool:
    """Whether it came to a newer step than the runs before, and did not begin where the last of them began.

    Whoever starts over each time gets a little further now and then.
    """
    if run.steps is None or run.steps <= max((each.steps for each in before if each.steps is not None), default=-1):
        return False
    began = before[-1].first_step if before else None
    return began is None or run.first_step is None or run.first_step > began


def _misread(job: Job) -> str:
    return f'; "{job.misread}" in its comment is not understood' if job.misread else ""


def _forgotten(job: Job, attempt: Attempt, verdict: Verdict) -> str:
    """Why nobody can put a job back that its resource manager has forgotten, and what its owner can do."""
    if attempt.state is not AttemptState.LOST or not job.state.is_over:
        return ""
    nodes = ", ".join(attempt.nodes)
    return (
        f"{verdict.summary}: it does not know the job any more, so nobody can put it back. Make sure that no process of"
        f" it is left{f' on {nodes}' if nodes else ''}, then submit it again"
    )


def _not_put_back(job: Job, verdict: Verdict) -> str:
    """Why, whatever failed, with what failed said first."""
    why = ""
    if job.wish is RetryPreference.NEVER:
        why = "the owner asked that this job is never recovered"
    elif not job.is_batch:
        why = "not a batch job (salloc, srun): it cannot be put back"
    elif job.is_cron:
        why = "its scrontab starts it again at its next time"
    elif not job.may_requeue:
        why = "the job may not be put back (Requeue=0: by --no-requeue, JobRequeue=0, or set since)"
    return f"{verdict.summary}: {why}" if why else ""


def _wish_of_program(attempt: Attempt, verdict: Verdict) -> ExitRequest:
    """What it asked for, where it ended by itself: of one that a signal or its limits ended, the code says nothing."""
    if attempt.state is not AttemptState.FAILED or attempt.signal:
        return ExitRequest.NONE
    wish = exit_request_of(attempt.exit_code)
    return ExitRequest.NONE if wish is ExitRequest.RETRY and _is_hopeless(verdict) else wish


def _is_hopeless(verdict: Verdict) -> bool:
    """Whether the log names the cause, and the cause stays."""
    return verdict.label is Label.DETERMINISTIC and any(each.role is CauseRole.ROOT for each in verdict.evidence)


def _refused_by_program(asked: ExitRequest, attempt: Attempt) -> str:
    if asked in (ExitRequest.NEVER, ExitRequest.STOP):
        return f"the program asks not to be run again (exit code {attempt.exit_code})"
    return ""


def _refused_by_person(attempt: Attempt) -> str:
    deed = persons_deed(attempt)
    return f"{deed}; {_LEFT_TO_ITS_OWNER}" if deed else ""


def is_free(job: Job, attempt: Attempt) -> bool:
    """Whether it costs what jobs share nothing: a preemption, or the resource manager has put the job back itself."""
    return attempt.state is AttemptState.PREEMPTED or job.state.is_waiting


def _own_limit_reached(
    kind: DecisionKind,
    attempt: Attempt,
    verdict: Verdict,
    past: Sequence[PastFailure],
    rules: RetryRules,
    uncounted: int,
) -> str:
    """Name the first of the job's own limits that leaves no retry, or "". What the site did does not count."""
    if attempt.state in OF_THE_SITE:
        uncounted = 0
    tried = [f for f in past if f.retried and f.is_try]
    fingerprint = fingerprint_of(verdict, attempt)
    unknown = not verdict.is_recognised  # what nobody recognises is one kind of failure, however it ended
    alike = sum(f.fingerprint == fingerprint or (unknown and not f.is_recognised) for f in tried) + uncounted
    site = verdict.infrastructure and not verdict.hearsay
    charged = sum(f.infrastructure == site for f in tried) + uncounted
    most = rules.max_infrastructure_retries if site else rules.max_user_retries
    cause = "the site's causes" if site else "causes of its own"
    told = f", {uncounted} of them by the resource manager's count alone" if uncounted else ""
    if attempt.state is AttemptState.PREEMPTED:
        return ""
    if kind is DecisionKind.PROBE and alike >= rules.max_probes:
        times = "once" if alike == 1 else f"{alike} times"
        return f"it was retried {times} after this failure{told}, and fails the same way again"
    if charged >= most:
        return f"the job's retries for {cause} are spent ({charged} of {most}{told})"
    return ""


def _elsewhere(
    job: Job,
    attempt: Attempt,
    verdict: Verdict,
    past: Sequence[PastFailure],
    fleet: Fleet,
    rules: RetryRules,
    now: float,
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Nodes to avoid, those of earlier retries that may be had again, and the words for it.

    Enough nodes are left for the gang; what is surest goes first. Where too few are, all that we excluded is lifted,
    and nothing that the job's owner did. A suspicion is not proof: suspects are avoided only while half of the nodes
    are left, so that suspicion after suspicion does not drive a job onto the one bad node. A job that may run on
    fewer nodes gives up only those that went down under it, by the resource manager's word.
    """
    if _is_nobodys_fault(attempt, verdict) or (verdict.bound is Bound.CALLER and not attempt.failed_nodes):
        return (), (), f"retry anywhere{_but(job.excluded)}, the node did nothing wrong"
    if not attempt.failed_nodes and is_shared(fleet, attempt, verdict, now):
        return (), (), f"retry anywhere{_but(job.excluded)}, as other users' jobs failed alike on other nodes"
    kept = _kept_nodes(job, attempt, verdict, past, fleet)
    named = tuple(node for node in attempt.failed_nodes or attempt.nodes if node not in kept)
    suspected = fleet.in_partition(fleet.suspects(now, rules.node_memory_s), job.partition)
    suspects = sorted(suspected - set(named) - kept)
    fewest, most = restart_range(job)
    needed = fewest if attempt.failed_nodes else most
    nodes = fleet.nodes_for(job.partition)
    others = frozenset() if fleet.reserved & set(attempt.nodes) else fleet.reserved  # it may itself be in a reservation
    left = nodes - others - set(job.excluded) - set(named)
    if fleet.usable and len(left) < needed:
        lift = tuple(node for node in job.excluded if any(node in failure.avoided for failure in past))
        where = f"on any node{_but(_without_exclusions(job, lift).excluded)}"
        return (), lift, f"retry {where}, since without {', '.join(dict.fromkeys([*lift, *named]))} too few are left"
    spare = len(left - set(suspects))
    may_avoid = spare >= most and 2 * spare >= len(nodes)
    avoid = (*named, *suspects) if may_avoid else tuple(named)
    why = "" if verdict.bound is not Bound.SERVICE else ", once the service had time to come back"
    replaced = [node for node in avoid if node in job.required]
    why += f", though {', '.join(replaced)} was asked for by {job.required_by}" if replaced else ""
    why += f", on {', '.join(sorted(kept))} as asked for by {job.required_by}" if kept else ""
    said = f"retry away from {', '.join(avoid)}{why}" if avoid else f"retry{why}"
    return tuple(node for node in avoid if node not in job.excluded), (), said


def _but(excluded: Sequence[str]) -> str:
    return f" but {', '.join(excluded)}" if excluded else ""


def _without_exclusions(job: Job, nodes: Sequence[str]) -> Job:
    return replace(job, excluded=tuple(node for node in job.excluded if node not in nodes)) if nodes else job


def _kept_nodes(job: Job, attempt: Attempt, verdict: Verdict, past: Sequence[PastFailure], fleet: Fleet) -> set[str]:
    """The nodes that the job's owner asks for by name and can have.

    Not those whose the failure is (of which some are known to have gone down, the others are not it), nor any on which
    it has failed before.
    """
    blamed = attempt.failed_nodes or (attempt.nodes if verdict.bound is Bound.NODE else ())
    before = (node for failure in past if not failure.preempted for node in failure.failed_nodes or failure.nodes)
    kept = set(job.required).difference(blamed, before)
    return kept & fleet.nodes_for(job.partition) if fleet.usable else kept


def _fewer(job: Job, node_count: int) -> str:
    most = restart_range(job)[1]
    nodes = "1 node" if node_count == 1 else f"{node_count} nodes"
    return f", on {nodes}, since {most} cannot be had" if 0 < node_count < most else ""


def _back_off_s(attempt: Attempt, verdict: Verdict, past: Sequence[PastFailure], rules: RetryRules) -> float:
    """No wait after a preemption or a walltime; otherwise doubled with each failure in a row, up to the cap."""
    if _is_nobodys_fault(attempt, verdict):
        return 0.0
    return min(rules.back_off_cap_s, rules.back_off_s * 2.0 ** min(sum(not f.ran_out for f in past), 30))


def _is_nobodys_fault(attempt: Attempt, verdict: Verdict) -> bool:
    at_walltime = attempt.state is AttemptState.TIMEOUT or verdict.fingerprint == WALLTIME_FINGERPRINT
    return at_walltime or attempt.state in (AttemptState.PREEMPTED, AttemptState.LOST)
