"""What was learnt of which message, from how many outcomes and of whom, and which verdicts changed through it.

For a person to read, approve or set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perdure.service.learning.outcome_store import AsideIndex, JobOutcome, SetAside, by_message, counted
from perdure.triage.learning.testimony import Outcomes, weighed
from perdure.triage.learning.verdict_changes import ChangedBy, ChangedJobs, in_total
from perdure.triage.verdict import UNNAMED

MOST_SHOWN = 200
MOST_OF_ONE = 50
"""Of messages that one user alone taught, and of those that are set aside: nobody hides what others taught."""
ONE_USERS = "one user's: it moves verdicts on that user's jobs alone"
EACH_USERS = "users contradict each other: what each saw moves verdicts on their own jobs alone"
TOO_FEW_FOR_NAMED = ", unless a rule names the cause: then a third user is needed"


@dataclass(frozen=True, slots=True)
class LearntMessage:
    """A message of this site, what its outcomes say, and which verdicts it changed."""

    fingerprint: str
    message: str  # its root line, normalised; "" where an older version read it
    time_s: float  # of the latest failure
    passed: int  # jobs whose retry passed
    failed: int  # jobs that failed alike elsewhere
    users: tuple[str, ...]  # whose jobs they were
    set_aside: int  # of the outcomes, how many count for nothing
    says: str  # half a sentence: what follows for the next job
    changed: tuple[ChangedJobs, ...] = ()  # those of most jobs first


def learnt_messages(
    found: Iterable[JobOutcome],
    aside: Sequence[SetAside],
    of_user: str,
    changes: Mapping[str, Sequence[ChangedJobs]],
) -> list[LearntMessage]:
    """The messages of which outcomes are known, the latest first.

    Where `of_user` is not "" only those of that user's outcomes, and those that changed verdicts on their jobs. `found`
    has the newest outcome first; `changes` are the verdicts that learning changed, by fingerprint.
    """
    told, index = [], AsideIndex(aside)
    of_one: Counter[tuple[str, ...]] = Counter()
    for fingerprint, group in by_message(found).items():
        users = {each.user for each in group if not of_user or each.user == of_user}
        if not users and fingerprint not in changes:
            continue
        counts = counted(group, index)
        of_one[tuple(counts)] += 1
        if not of_user and len(counts) < 2 and of_one[tuple(counts)] > MOST_OF_ONE:
            continue
        newest = group[0]
        shown = next((each.message for each in group if each.message), "")
        passed = sum(each.passed for each in group)
        in_force = sum(seen.passed + seen.failed for seen in counts.values())
        told.append(
            LearntMessage(
                fingerprint, shown, newest.time_s, passed, len(group) - passed, tuple(sorted(users)),
                len(group) - in_force, _says(fingerprint, counts), tuple(in_total(changes.get(fingerprint, ()))),
            )
        )  # fmt: skip
        if len(told) == MOST_SHOWN:
            break
    return told


def without_outcomes(told: Iterable[LearntMessage], changes: Mapping[str, Sequence[ChangedJobs]]) -> list[str]:
    """Fingerprints of messages that changed verdicts and have no outcomes: a person spoke, or these are forgotten."""
    known = {one.fingerprint for one in told}
    taught = (which for which, found in changes.items() if any(each.change.by is not ChangedBy.NEW for each in found))
    return [which for which in taught if which not in known][:MOST_SHOWN]


def message_of_words(fingerprint: str, message: str, time_s: float, changes: Sequence[ChangedJobs]) -> LearntMessage:
    """A message that changed verdicts without outcomes."""
    by_person = any(each.change.by is ChangedBy.PERSON for each in changes)
    says = "as a person said, while the word holds" if by_person else "what was learnt of it is forgotten"
    return LearntMessage(fingerprint, message, time_s, 0, 0, (), 0, says, tuple(in_total(changes)))


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
        return _says_to_whom(counts)
    says = "would pass when run again" if found.weight > 0 else "would fail again"
    if found.weight < 0 and not found.stops:
        return f"{says}: stops jobs of these users, others' are tried again once"
    may_be_named = not fingerprint.startswith(UNNAMED)
    return f"{says}{TOO_FEW_FOR_NAMED}" if may_be_named and weighed(counts, "", named=True).is_silent else says


def _says_to_whom(counts: dict[str, Outcomes]) -> str:
    """What outcomes that move no verdict for all do to the verdicts of those who saw them."""
    found = [weighed(counts, user, named=False) for user in counts]
    if any(each.weight for each in found):
        return ONE_USERS if len(found) == 1 else EACH_USERS
    if any(seen.passed for seen in counts.values()) and any(seen.failed for seen in counts.values()):
        return "they contradict each other: nothing is learnt"
    return "too few yet: nothing is learnt"
