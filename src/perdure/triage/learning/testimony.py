"""What retries at a site proved of one message, and what that does to a verdict on it: Bayes, by small counts.

Each job whose retry passed, or failed alike elsewhere, is one outcome. Each is likelier by `LIKELIHOOD` under the one
truth than under the other, so the log-odds of a verdict move by log(LIKELIHOOD) an outcome:

    z = logit(p without them) + weight * log(LIKELIHOOD)

Outcomes can be forged: anybody can print a message and pass when run again. So no count is taken as it is (`weighed`):

- A user's outcomes count as `MOST_OF_USER` at most; against what more users saw, as a fifth of what those saw.
- What one user alone saw moves verdicts on that user's jobs only; what two saw stops no job of others, who are probed
  and so become the third, and has them retried until what they see themselves speaks against it.
- A cause that a rule names moves by three users' outcomes, and less: what was written of it stands against them.
- What a user saw twice themselves is never overruled on that user's jobs where no rule names the cause, only doubted.
- Where half as much or more speaks against the majority as for it, nothing was learnt: the verdict is doubted, no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from perdure.triage.conformal import Thresholds
from perdure.triage.verdict import CANCELLED, LEARNT, NEW_HERE, CauseRole, Evidence, Label, Verdict

LIKELIHOOD = 4.0
"""How much likelier an outcome is under the truth that it shows: three of them overcome what no rule names."""

OF_NAMED = 2.0
"""The same for a message of which a rule names the cause."""

MOST_OF_USER, MOST_OF_USER_NAMED = 2.0, 1.0
LEAST_USERS, LEAST_USERS_NAMED = 2, 3
LEAST_TO_STOP = 3
"""Of a message that fewer users saw fail, no job of others is stopped through what they saw."""

LEAST_OWN, MOST_OWN = 2, 3.0
"""Of what one user alone saw, so many outcomes move the verdicts on that user's jobs, and so many count."""

SHARE_AGAINST = 0.2
"""Of what more users saw, the most that one who saw otherwise can set against it."""

DOUBT = 0.5
PROBED_JOBS = 3
"""So many jobs with a message that is new at a site are probed, whatever its words lean to."""

PROBE_P = 0.3
"""The chance that a retry of them is given, at least."""

FLOOR, CEILING = 0.01, 0.99
"""Outcomes make no verdict surer than that."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What one user's jobs showed of one message: how many passed when run again, and how many failed alike."""

    passed: int = 0
    failed: int = 0

    @property
    def lean(self) -> int:
        """How many more passed than failed; what goes both ways shows nothing."""
        return self.passed - self.failed


@dataclass(frozen=True, slots=True)
class Weighed:
    """What all outcomes of a message weigh for one user's job: above 0 that a retry passes."""

    weight: float = 0.0
    outcomes: int = 0  # that count, before they were capped
    users: int = 0
    doubted: bool = False  # half or more as much speaks against the majority
    stops: bool = True  # enough users, or the job's own, saw it for a job to be stopped

    @property
    def is_silent(self) -> bool:
        return not self.weight and not self.doubted


def weighed(by_user: Mapping[str, Outcomes], user: str, named: bool) -> Weighed:
    """What the outcomes of a message weigh for a job of `user`; `named`: a rule names its cause.

    >>> weighed({"ada": Outcomes(passed=2), "eve": Outcomes(passed=1)}, "bob", named=False).weight
    3.0
    >>> weighed({"eve": Outcomes(passed=200)}, "bob", named=False).weight
    0.0
    """
    most = MOST_OF_USER_NAMED if named else MOST_OF_USER
    leans = {name: max(-most, min(most, float(seen.lean))) for name, seen in by_user.items()}
    passing = {name: lean for name, lean in leans.items() if lean > 0}
    lasting = {name: lean for name, lean in leans.items() if lean < 0}
    more, fewer = (passing, lasting) if len(passing) >= len(lasting) else (lasting, passing)
    if len(more) < (LEAST_USERS_NAMED if named else LEAST_USERS):
        return Weighed() if named else _of_own(by_user.get(user, Outcomes()))
    if user in fewer and not named and abs(by_user[user].lean) >= LEAST_OWN:
        return Weighed(users=len(more) + len(fewer), outcomes=_count(by_user, (*more, *fewer)), doubted=True)
    ahead = math.fsum(more.values())
    even = len(more) == len(fewer)
    most_against = most if even else SHARE_AGAINST * abs(ahead)
    against = math.fsum(math.copysign(min(abs(lean), most_against), lean) for lean in fewer.values())
    if abs(against) >= DOUBT * abs(ahead):
        return Weighed(users=len(more) + len(fewer), outcomes=_count(by_user, (*more, *fewer)), doubted=True)
    stops = user in more or len(more) >= LEAST_TO_STOP
    return Weighed(ahead + against, _count(by_user, more), len(more), stops=stops)


def _of_own(seen: Outcomes) -> Weighed:
    """What a user alone saw of a message, for that user's jobs."""
    ahead, against = sorted((seen.passed, seen.failed), reverse=True)
    if ahead < LEAST_OWN:
        return Weighed()
    if against >= DOUBT * ahead:
        return Weighed(outcomes=ahead + against, users=1, doubted=True)
    return Weighed(max(-MOST_OWN, min(MOST_OWN, float(seen.lean))), abs(seen.lean), 1)


def _count(by_user: Mapping[str, Outcomes], users: Iterable[str]) -> int:
    return sum(abs(by_user[name].lean) for name in users)


def decided(verdict: Verdict, found: Weighed, jobs: int, thresholds: Thresholds, named: bool) -> Verdict:
    """The verdict after what the site learnt of its message; a message that is new is probed (`probed` has `jobs`)."""
    if found.is_silent and not named:
        return probed(verdict, jobs, thresholds)
    after = learnt(verdict, found, thresholds, named)
    if found.stops or after.label is not Label.DETERMINISTIC:
        return after
    if verdict.label is Label.DETERMINISTIC:  # its own words stop it
        return probed(verdict, jobs, thresholds)
    told = f"no more than {LEAST_TO_STOP - 1} users saw this message fail: another user's job is tried again once"
    return _tried_again(after, told, thresholds)


def learnt(verdict: Verdict, found: Weighed, thresholds: Thresholds, named: bool) -> Verdict:
    """The verdict after what outcomes proved of its message."""
    if found.is_silent:
        return verdict
    if found.doubted:
        p = thresholds.unsure(verdict.p_transient)
        short = "what was seen of it here contradicts itself"
        told = f"{_count_of(found)} here, {_users(found)}, contradict each other: nothing is learnt from them"
    else:
        step = math.log(OF_NAMED if named else LIKELIHOOD)
        p = _moved(verdict.p_transient, found.weight * step)
        which = "passed" if found.weight > 0 else "failed the same way on other nodes"
        short = f"learnt from {_count_of(found)} here"
        told = f"{short}, {_users(found)}: run again, jobs with this message {which}"
    p = round(p, 4)
    label = Label.UNSURE if found.doubted else thresholds.label(p)
    evidence = (Evidence(0, told, CauseRole.CONFIRMATION, LEARNT), *verdict.evidence)
    return replace(verdict.remarked(short), label=label, p_transient=p, evidence=evidence)


def probed(verdict: Verdict, jobs: int, thresholds: Thresholds) -> Verdict:
    """The verdict on a message that no rule names and nothing is learnt of: the first jobs with it are not stopped.

    Else nothing could ever show that it passes. `jobs` of its user failed with it up to now, this one among them, and
    each other user counts as one more.
    """
    if verdict.label is Label.TRANSIENT or jobs > PROBED_JOBS or verdict.category == CANCELLED:
        return verdict
    p = round(thresholds.unsure(max(verdict.p_transient, PROBE_P)), 4)
    if p <= verdict.p_transient and verdict.label is Label.UNSURE:
        return verdict
    told = f"new here: the first {PROBED_JOBS} jobs with this message are tried again once, to learn from it"
    return _tried_again(verdict, told, thresholds)


def _tried_again(verdict: Verdict, told: str, thresholds: Thresholds) -> Verdict:
    p = round(thresholds.unsure(max(verdict.p_transient, PROBE_P)), 4)
    evidence = (Evidence(0, told, CauseRole.CONFIRMATION, NEW_HERE), *verdict.evidence)
    return replace(verdict, label=Label.UNSURE, p_transient=p, evidence=evidence)


def _moved(p: float, shift: float) -> float:
    z = math.log(p / (1.0 - p)) + shift if 0.0 < p < 1.0 else math.copysign(math.inf, p - 0.5)
    return min(CEILING, max(FLOOR, 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, z))))))


def _count_of(found: Weighed) -> str:
    return f"{found.outcomes} outcome{'s' if found.outcomes != 1 else ''}"


def _users(found: Weighed) -> str:
    return "of one user" if found.users == 1 else f"of {found.users} users"
