"""What Slurm said of other jobs, or of an earlier start, and a script printed: it says nothing of this end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from perdure.model.jobs import Attempt
from perdure.triage.evidence.matching import Hit
from perdure.triage.text.patterns import capturing

CLOCKS_S = 60.0
"""Nodes' clocks may be apart by so much, and Slurm's words on the start before may come a little late."""

_ENDED = r"\*\*\* (?:JOB|STEP) (\d{1,12})\S{0,40} ON \S{1,256} CANCELLED AT (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
_DIGITS = re.compile(r"\d+")


def without_other_jobs(hits: Iterable[Hit], attempt: Attempt) -> list[Hit]:
    """The hits without Slurm's words on the ends of jobs before this one, and of starts before the attempt."""
    return [hit for hit in hits if "CANCELLED AT" not in hit.text or not _is_of_another(hit.text, attempt)]


def _is_of_another(line: str, attempt: Attempt) -> bool:
    """A later number may be a part of this job: a task of its array, a component; nobody knows its zone of time."""
    found = capturing(_ENDED).search(line.encode("utf-8", "replace"))
    own = _DIGITS.match(attempt.id.job_id)
    if found is None or own is None:
        return False
    if int(found.group(1)) < int(own.group()):
        return True
    try:
        said = datetime.fromisoformat(found.group(2).decode())
        latest_s = max(said.timestamp(), said.replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError):
        return False
    return latest_s + CLOCKS_S < attempt.start_s
