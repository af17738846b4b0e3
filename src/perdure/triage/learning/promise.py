"""Whether verdicts keep what their thresholds promise: outcomes held against it, and thresholds that widen where not.

Thresholds promise that of the failures that pass when run again at most a share is stopped, and of those that come back
at most a share is retried (`conformal`). What retries and persons prove of verdicts in a sliding window shows whether
that holds at this site. Where it shows, beyond chance, that it does not, the threshold moves until it would have held
in the window: fewer stops, or fewer plain retries, and one probe in their place. It moves back as the window slides on,
and as probes in place of stops bring the share of wrong ones down to what was promised.

Failures that were stopped are seldom run again, so wrong stops are found too rarely, never too often.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from perdure.model.identity import AttemptId
from perdure.triage.conformal import ALPHA_DETERMINISTIC, ALPHA_TRANSIENT, Thresholds, own_thresholds
from perdure.triage.verdict import Label, Verdict

WINDOW_S = 90 * 86400.0
"""So far back outcomes count."""

CHANCE = 0.05
"""A promise is taken for broken where so many errors would come by chance more rarely than so."""

LEAST_USERS = 3
"""Errors in the jobs of fewer users never widen anything: a retry that passes can be staged."""

SHARE_OF_USER = 0.2
"""Of one user no more failures count than this share of all others', and one."""

LOWEST, HIGHEST = 0.02, 0.98
"""Beyond these a verdict is so sure that no threshold makes a probe of it."""


@dataclass(frozen=True, slots=True)
class ProvenVerdict:
    """A verdict on a failure of which the truth is known since."""

    attempt: AttemptId
    time_s: float
    fingerprint: str
    p_transient: float
    transient: bool
    user: str = ""  # whose job it was

    @property
    def whose(self) -> str:
        """By whom errors are counted; what is nobody's is its job's alone."""
        return self.user or f"job {self.attempt.job_id}"


@dataclass(frozen=True, slots=True)
class PromiseShare:
    """How often one half of the promise held: of `proven` failures of one truth, `wrong` had the other label."""

    proven: int = 0
    wrong: int = 0
    promised: float = 0.0  # the share that may be wrong
    users: int = 0  # whose failures were judged wrongly

    @property
    def is_broken(self) -> bool:
        """Whether there were more errors than chance explains."""
        return self.users >= LEAST_USERS and at_least(self.wrong, self.proven, self.promised) < CHANCE


@dataclass(frozen=True, slots=True)
class PromiseCheck:
    """Both halves, and the thresholds that are in use since."""

    stops: PromiseShare = PromiseShare(promised=ALPHA_TRANSIENT)
    retries: PromiseShare = PromiseShare(promised=ALPHA_DETERMINISTIC)
    thresholds: Thresholds = field(default_factory=own_thresholds)

    @property
    def is_widened(self) -> bool:
        return self.stops.is_broken or self.retries.is_broken

    def applied(self, verdict: Verdict) -> Verdict:
        """The verdict; of one that is unsure by the widened thresholds alone, with a chance at which it is unsure.

        Retries are decided by that chance: one that stayed so low would be stopped, whatever its label.
        """
        installed = own_thresholds()
        if verdict.label is not Label.UNSURE or installed.label(verdict.p_transient) is Label.UNSURE:
            return verdict
        return replace(verdict, p_transient=round(installed.unsure(verdict.p_transient), 4))

    @property
    def says(self) -> str:
        """Half a sentence for a person, whether or not the promise holds."""
        told = []
        if self.stops.is_broken:
            told.append(
                f"{_share(self.stops)} failures that passed when run again had been stopped: fewer are stopped now"
            )
        if self.retries.is_broken:
            told.append(f"{_share(self.retries)} failures that came back had been retried: more are probed first now")
        if told:
            return "; ".join(told)
        proven = self.stops.proven + self.retries.proven
        return f"verdicts kept their promise in {proven} proven failures" if proven else "no verdict is proven yet"


def _share(kept: PromiseShare) -> str:
    return f"{kept.wrong} of {kept.proven}"


def check(base: Thresholds, proven: Iterable[ProvenVerdict], now: float) -> PromiseCheck:
    """Hold the verdicts of the window that ends at `now` against `base`, and widen it where its promise is broken.

    A failure that a job repeats counts once.
    """
    recent = [each for each in proven if now - WINDOW_S < each.time_s <= now]
    once = {(each.attempt.job_id, each.fingerprint, each.transient): each for each in recent}.values()
    of_passing = _capped([each for each in once if each.transient])
    of_lasting = _capped([each for each in once if not each.transient])
    stops = _kept(of_passing, Label.DETERMINISTIC, base, ALPHA_TRANSIENT)
    retries = _kept(of_lasting, Label.TRANSIENT, base, ALPHA_DETERMINISTIC)
    passing = sorted(each.p_transient for each in of_passing)
    lasting = sorted(each.p_transient for each in of_lasting)
    lower, upper = base.transient_from, base.deterministic_to
    if stops.is_broken:
        lower = min(lower, max(LOWEST, passing[_allowed(len(passing), ALPHA_TRANSIENT)]))
    if retries.is_broken:
        upper = max(upper, min(HIGHEST, lasting[-1 - _allowed(len(lasting), ALPHA_DETERMINISTIC)]))
    return PromiseCheck(stops, retries, Thresholds(lower, upper))


def _capped(proven: Sequence[ProvenVerdict]) -> list[ProvenVerdict]:
    """The newest of each user, as many as count."""
    offered = Counter(each.whose for each in proven)
    most = {user: max(1, int(SHARE_OF_USER * (len(proven) - own))) for user, own in offered.items()}
    taken: Counter[str] = Counter()
    kept = []
    for each in sorted(proven, key=lambda one: -one.time_s):
        taken[each.whose] += 1
        if taken[each.whose] <= most[each.whose]:
            kept.append(each)
    return kept


def _kept(proven: Sequence[ProvenVerdict], wrong: Label, base: Thresholds, promised: float) -> PromiseShare:
    errors = [each for each in proven if base.label(each.p_transient) is wrong]
    return PromiseShare(len(proven), len(errors), promised, len({each.whose for each in errors}))


def _allowed(n: int, alpha: float) -> int:
    """How many of `n` may be wrong."""
    return math.floor(n * alpha + 1e-9)


def at_least(errors: int, n: int, share: float) -> float:
    """The chance of so many errors or more among `n`, each with the chance `share`.

    >>> round(at_least(2, 2, 0.1), 6), at_least(0, 5, 0.1)
    (0.01, 1.0)
    """
    terms = (math.comb(n, k) * share**k * (1.0 - share) ** (n - k) for k in range(errors))
    return max(0.0, 1.0 - math.fsum(terms))
