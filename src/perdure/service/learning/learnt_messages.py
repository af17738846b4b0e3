"""What was learnt of which message, from how many outcomes and of whom: for a person to read, approve or set aside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.service.learning.outcome_store import AsideIndex, JobOutcome, SetAside, by_message, counted
from perdure.triage.learning.testimony import Outcomes, weighed
from perdure.triage.verdict import UNNAMED

MOST_SHOWN = 200
TOO_FEW_FOR_NAMED = ", unless a rule names the cause: then a third user is needed"


@dataclass(frozen=True, slots=True)
class LearntMessage:
    """A message of this site, and what its outcomes say."""

    fingerprint: str
    message: str  # its root line, normalised; "" where an older version read it
    time_s: float  # of the latest failure
    passed: int  # jobs whose retry passed
    failed: int  # jobs that failed alike elsewhere
    users: tuple[str, ...]  # whose jobs they were
    set_aside: int  # of the outcomes, how many count for nothing
    says: str  # half a sentence: what follows for the next job


def learnt_messages(found: Iterable[JobOutcome], aside: Sequence[SetAside], of_user: str = "") -> list[LearntMessage]:
    """The messages of which outcomes are known, the latest first; only those of `of_user` where one is named.

    `found` has the newest outcome first.
    """
    told, index = [], AsideIndex(aside)
    for fingerprint, group in by_message(found).items():
        mine = [each for each in group if not of_user or each.user == of_user]
        if not mine:
            continue
        counts = counted(group, index)
        newest = group[0]
        shown = next((each.message for each in mine if each.message), "")
        passed = sum(each.passed for each in group)
        in_force = sum(seen.passed + seen.failed for seen in counts.values())
        users = {each.user for each in mine} if of_user else {each.user for each in group}
        told.append(
            LearntMessage(
                fingerprint, shown, newest.time_s, passed, len(group) - passed, tuple(sorted(users)),
                len(group) - in_force, _says(fingerprint, counts),
            )
        )  # fmt: skip
        if len(told) == MOST_SHOWN:
            break
    return told


def _says(fingerprint: str, counts: dict[str, Outcomes]) -> str:
    """What the outcomes of a message do to the next verdict on it, for a user who has none.

    A fingerprint does not tell whether a rule names the cause, but where it is of no cause, none does.
    """
    if not counts:
        return "set aside: nothing is learnt"
    found = weighed(counts, "", named=False)
    if found.doubted:
        return "they contradict each other: nothing is learnt"
    if found.is_silent:
        return "one user's: it moves verdicts on that user's jobs alone"
    says = "would pass when run again" if found.weight > 0 else "would fail again"
    may_be_named = not fingerprint.startswith(UNNAMED)
    return f"{says}{TOO_FEW_FOR_NAMED}" if may_be_named and weighed(counts, "", named=True).is_silent else says
