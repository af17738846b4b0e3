"""One job's history, told by the service and by Slurm's accounting, held against the laws of recovery. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

OF_SLURM = ("NODE_FAIL", "PREEMPTED", "REQUEUED")  # how a start is recorded that Slurm itself put back
SLURMS_CODE = "75:0"  # RequeueExit: put back by Slurm, too


@dataclass(frozen=True, slots=True)
class Story:
    """Exceptions and actions as the API has them, and one row of accounting for each start, the oldest first."""

    records: tuple[Mapping[str, Any], ...]
    actions: tuple[Mapping[str, Any], ...]
    starts: tuple[Mapping[str, str], ...]


def violations(story: Story) -> list[str]:
    """What is against the laws, in words."""
    return [*_owners(story), *_requeues(story), *_starts(story)]


def _owners(story: Story) -> Iterator[str]:
    """Each exception has one owner at most, and each failed start one exception that acts."""
    acting: Counter[int] = Counter()
    for record in story.records:
        owning = [verdict for verdict in record["verdicts"] if verdict["verdict"] == "handled"]
        if len(owning) > 1:
            yield f"{record['id']} has {len(owning)} owners"
        acting[record["incarnation"]] += any(verdict["actions"] for verdict in owning)
    yield from (f"start {start}: {count} exceptions act" for start, count in acting.items() if count > 1)


def _requeues(story: Story) -> Iterator[str]:
    """A start is put back once: by Slurm, or by one action that a verdict owns."""
    owned = {key for record in story.records for verdict in record["verdicts"] for key in verdict["actions"]}
    ours = Counter(action["key"].rpartition("#")[2] for action in story.actions if _put_back(action))
    yield from (f"{action['key']} is owned by nobody" for action in story.actions if action["key"] not in owned)
    yield from (f"start {start} was put back {count} times by us" for start, count in ours.items() if count > 1)
    for row in story.starts:
        of_slurm = row["State"].split(" ")[0] in OF_SLURM[:2]
        if of_slurm and ours[row["Start"]]:
            yield f"start {row['Start']} was put back by Slurm ({row['State']}) and by us"


def _put_back(action: Mapping[str, Any]) -> bool:
    return action["kind"] == "requeue" and action["state"] == "done"


def _starts(story: Story) -> Iterator[str]:
    """Starts follow one another, and none without somebody who put the job back."""
    ours = {action["key"].rpartition("#")[2] for action in story.actions if _put_back(action)}
    for row, after in pairwise(story.starts):
        if not row["End"].isdecimal() or int(row["End"]) > int(after["Start"]):
            yield f"start {after['Start']} began before {row['Start']} had ended"
        by_slurm = row["State"].split(" ")[0] in OF_SLURM or row["ExitCode"] == SLURMS_CODE
        if not by_slurm and row["Start"] not in ours:
            yield f"start {row['Start']} ({row['State']} {row['ExitCode']}) was put back by nobody that is known"
