"""Heterogeneous jobs: Slurm reports each component as a job of its own (12+0, 12+1); here they become job 12."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.records import JobRecord, read_one_answer
from perdure.slurm_words.states import ENDS_GRAVEST_FIRST

_Part = TypeVar("_Part", JobRecord, AccountingRow)

START_APART_S = 30  # at most, between the starts of the components of one attempt


def plain_id(job_id: str) -> str:
    """The id of the whole job: 12 of 12+1."""
    return job_id.partition("+")[0]


def read_one_job(text: bytes, mark: str, job_id: str) -> JobRecord | None:
    """Read the answer to ``show job JOB_ID``. None where there is no such job."""
    return next((record for record in merge_records(read_one_answer(text, mark)) if record.job_id == job_id), None)


def whole_of(text: bytes, mark: str) -> str:
    """The id of the heterogeneous job in an answer to ``show job NUMBER``; "" where the answer is about another."""
    return next((plain_id(record.job_id) for record in read_one_answer(text, mark) if "+" in record.job_id), "")


def component_numbers(records: Collection[JobRecord], before: frozenset[int]) -> frozenset[int]:
    """The numbers of jobs that are a component of a heterogeneous one.

    Those of `before` stay though the controller forgets them, minutes after their end: what hooks reported of them is
    kept for longer, and names no whole job. A number that is another job's now goes.
    """
    others = {record.raw_id for record in records if "+" not in record.job_id}
    return (before - others) | {record.raw_id for record in records if "+" in record.job_id}


def merge_records(records: Iterable[JobRecord]) -> list[JobRecord]:
    """Make one record of the components of each heterogeneous job; other records stay the same objects."""
    others, components = _apart(records)
    return [*others, *(_merged_record(job_id, parts) for job_id, parts in components.items())]


def _apart(records: Iterable[_Part]) -> tuple[list[_Part], dict[str, list[_Part]]]:
    """Those of plain jobs, and by the whole job's id those of components."""
    others: list[_Part] = []
    components: dict[str, list[_Part]] = {}
    for record in records:
        its = components.setdefault(plain_id(record.job_id), []) if "+" in record.job_id else others
        its.append(record)
    return others, components


def _merged_record(job_id: str, parts: Sequence[JobRecord]) -> JobRecord:
    parts = sorted(parts, key=lambda part: part.component)
    return replace(
        _as_one(job_id, parts),
        priority=min(part.priority for part in parts),
        requeue=all(part.requeue for part in parts),
        end_s=max((part.end_s for part in parts if part.end_s is not None), default=None),
        preempt_s=max((part.preempt_s for part in parts if part.preempt_s is not None), default=None),
        required=_joined(part.required for part in parts),
        excluded=_joined(part.excluded for part in parts),
        licences=_joined(part.licences for part in parts),
        node_count=sum(part.node_count for part in parts),
        tasks=sum(part.tasks for part in parts),
        cpus=sum(part.cpus for part in parts),
        gpus_in_all=True,  # what it asks for cannot be cut by nodes
        components=len(parts),
    )


def merge_rows(rows: Iterable[AccountingRow]) -> tuple[AccountingRow, ...]:
    """Make one row of the rows of all components for each start of a heterogeneous job: that of the first component."""
    merged, components = _apart(rows)
    for job_id, parts in components.items():
        for first in (row for row in parts if row.job_id.endswith("+0")):
            merged.append(_merged_row(job_id, [first, *(row for row in parts if _belongs(row, first))]))
    return tuple(merged)


def _belongs(row: AccountingRow, first: AccountingRow) -> bool:
    """Whether it is the row of another component for the same start (or the same waiting)."""
    if row.job_id == first.job_id:
        return False
    if row.start_s is None or first.start_s is None:
        return row.start_s is first.start_s
    return abs(row.start_s - first.start_s) <= START_APART_S


def _merged_row(job_id: str, parts: Sequence[AccountingRow]) -> AccountingRow:
    ends = [part.end_s for part in parts]
    end_s = None if None in ends else max(end for end in ends if end is not None)
    return replace(_as_one(job_id, parts), end_s=end_s)


def _as_one(job_id: str, parts: Sequence[_Part]) -> _Part:
    """The first of the parts, with what records and rows say of all: how it ended, where, and on how many GPUs."""
    first, said = parts[0], min(parts, key=lambda part: _rank(part.state))
    return replace(
        first,
        job_id=job_id,
        state=said.state,
        reason=first.reason or said.reason,
        exit_code=next((part.exit_code for part in parts if part.exit_code), 0),
        signal=next((part.signal for part in parts if part.signal), 0),
        nodes=_joined(part.nodes for part in parts),
        failed_nodes=_joined(part.failed_nodes for part in parts),
        gpus=sum(part.gpus for part in parts),
    )


def _rank(state: str) -> int:
    """The state of the whole is that of the component whose word ranks first; one that is not over comes before all."""
    word = state.partition(" ")[0]  # of "CANCELLED by 1000"
    return ENDS_GRAVEST_FIRST.index(word) + 1 if word in ENDS_GRAVEST_FIRST else 0


def _joined(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The names of all, each once, in their order."""
    return tuple(dict.fromkeys(name for names in lists for name in names))
