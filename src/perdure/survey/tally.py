"""Failed attempts counted by reason, as in table 7 of Philly's study.

M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019: reasons,
trials, jobs, users, and quantiles of the run time to failure; Q. Hu et al., "Characterization of Large Language Model
Development in the Datacenter", NSDI 2024, adds the GPU time that each reason lost. What retries made of it is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from perdure.triage.verdict import Label

QUANTILES = (0.5, 0.9, 0.95)
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One failed attempt, judged."""

    job_id: str
    user: str
    gpus: int
    ran_s: float | None  # None where nobody recorded it
    reason: str  # the category of its cause
    label: Label
    retried: bool = False  # a later attempt of the job is known
    passed_later: bool = False  # and one of them passed
    retry_s: float = 0.0  # what the next attempt ran

    @property
    def lost_gpu_h(self) -> float | None:
        """None where nobody recorded how long it ran."""
        return None if self.ran_s is None else self.gpus * self.ran_s / HOUR_S


@dataclass(frozen=True, slots=True)
class TallyRow:
    """One reason. GPU-hours lost and quantiles are None where no run time is known."""

    reason: str
    trials: int
    jobs: int
    users: int
    lost_gpu_h: float | None
    rtf_s: tuple[float, float, float] | None  # run time to failure at `QUANTILES`
    labels: dict[str, int]  # trials by what triage says a retry would meet
    retries: int  # trials that were followed by another
    saved: int  # of them, those whose job passed later
    wasted_gpu_h: float  # of the others, what the next attempt burnt


@dataclass(frozen=True, slots=True)
class Tally:
    """All reasons, the costliest first and of equals the most frequent, and the whole."""

    rows: tuple[TallyRow, ...]
    total: TallyRow


def tally(failed: Iterable[FailedAttempt]) -> Tally:
    """Count failed attempts by reason."""
    every = sorted(failed, key=lambda each: each.reason)
    rows = [_row(reason, list(group)) for reason, group in groupby(every, key=lambda each: each.reason)]
    rows.sort(key=lambda row: (-(row.lost_gpu_h or 0.0), -row.trials, row.reason))
    return Tally(tuple(rows), _row("all", every))


def _row(reason: str, failed: Sequence[FailedAttempt]) -> TallyRow:
    known = [each.lost_gpu_h for each in failed if each.lost_gpu_h is not None]
    retried = [each for each in failed if each.retried]
    wasted = sum(each.gpus * each.retry_s for each in retried if not each.passed_later) / HOUR_S
    return TallyRow(
        reason,
        trials=len(failed),
        jobs=len({each.job_id for each in failed}),
        users=len({each.user for each in failed if each.user}),
        lost_gpu_h=sum(known) if known else None,
        rtf_s=_quantiles(failed),
        labels={label.value: sum(each.label is label for each in failed) for label in Label},
        retries=len(retried),
        saved=sum(each.passed_later for each in retried),
        wasted_gpu_h=wasted,
    )


def _quantiles(failed: Sequence[FailedAttempt]) -> tuple[float, float, float] | None:
    known: NDArray[np.float64] = np.array([each.ran_s for each in failed if each.ran_s is not None], np.float64)
    if not len(known):
        return None
    median, p90, p95 = np.quantile(known, QUANTILES)
    return float(median), float(p90), float(p95)
