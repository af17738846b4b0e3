"""Measured profiles of training applications, as columns: what tells how fast a job runs where, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StepProfile:
    """Measured training steps, as columns of one length."""

    application: NDArray[np.str_]
    gpu_type: NDArray[np.str_]
    placement: NDArray[np.str_]  # GPUs on each node, as "4,4"; "" where only nodes and GPUs are told
    nodes: NDArray[np.int64]
    gpus: NDArray[np.int64]
    local_batch: NDArray[np.float64]  # examples on each GPU
    step_s: NDArray[np.float64]
    sync_s: NDArray[np.float64]  # the part of it that the gradients' all-reduce adds


@dataclass(frozen=True, slots=True)
class PipelineProfile:
    """How models are cut into pipelines, as columns of one length."""

    application: NDArray[np.str_]
    gpu_type: NDArray[np.str_]
    stages: NDArray[np.int64]  # GPUs of a replica
    microbatches: NDArray[np.int64]  # that a step passes through each replica; the same on all GPU types


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Measured rates of kinds of jobs that always use their GPUs in the same way, as columns of one length."""

    application: NDArray[np.str_]
    gpu_type: NDArray[np.str_]
    gpus: NDArray[np.int64]
    together: NDArray[np.bool_]  # on one node
    steps_per_s: NDArray[np.float64]  # 0 where it does not run


@dataclass(frozen=True, slots=True)
class PairProfile:
    """Measured rates of kinds of jobs that share all of their GPUs with another, as columns of one length."""

    application: NDArray[np.str_]
    other: NDArray[np.str_]
    gpu_type: NDArray[np.str_]
    gpus: NDArray[np.int64]  # of each of the two
    together: NDArray[np.bool_]  # on one node
    steps_per_s: NDArray[np.float64]  # of `application`; 0 where the two do not fit


@dataclass(frozen=True, slots=True)
class EpochProfile:
    """How training went at several batch sizes, as columns; the epochs of an application and batch are in order."""

    application: NDArray[np.str_]
    batch: NDArray[np.int64]  # examples on all GPUs together
    progress: NDArray[np.float64]  # steps of the smallest batch that this is worth, since the beginning
    grad_square: NDArray[np.float64]  # squared norm of the mean gradient
    grad_variance: NDArray[np.float64]  # at the smallest batch
    iteration: NDArray[np.float64] | None = None  # steps made by then


SEARCHES = ("halving", "halving-81", "first", "all")
"""How an app searches: the best third goes on after 1/9 and 1/3 of its work, or after 1/81, 1/27, 1/9 and 1/3; all go
on until one is done, or to their end."""


@dataclass(frozen=True, slots=True)
class AppJobs:
    """Which jobs search for one model together, as columns (n_jobs,)."""

    app: NDArray[np.str_]  # its name; "": it is alone
    score: NDArray[np.float64]  # of the model, against others of the app; more is better
    search: NDArray[np.str_]  # how: one of `SEARCHES`


@dataclass(frozen=True, slots=True)
class AdaptiveJobs:
    """Jobs that name an application instead of a running time, as columns (n_jobs,), sorted by submit."""

    job_id: NDArray[np.str_]
    submit_s: NDArray[np.float64]
    application: NDArray[np.str_]
    gpus: NDArray[np.int64]  # asked for
    batch: NDArray[np.int64]  # asked for
    fails: tuple[tuple[float, ...], ...] = ()
    """Of each job, for each attempt that fails, after which share of the work left at its beginning it does. Attempts
    beyond these pass; empty where none fails."""
    steps: NDArray[np.float64] | None = None
    """The work of each job (n_jobs,), where applications tell but rates, which say nothing of other batches."""
    rigid: NDArray[np.bool_] | None = None
    """Which jobs keep to the GPUs and the batch asked for (n_jobs,); None: those of Pollux's and Sia's experiments, all
    of which may be resized, or Gavel's with `steps`, none of which may."""

    work: NDArray[np.float64] | None = None
    """How often each job does the work of its application (n_jobs,); None: once."""
    apps: AppJobs | None = None
    own_batch: NDArray[np.bool_] | None = None
    """Which jobs keep to the batch asked for, on however many GPUs (n_jobs,): strong scaling; None: no others."""

    def is_rigid(self, row: int) -> bool:
        """Whether a job has the GPUs asked for, or none."""
        return self.steps is not None or (self.rigid is not None and bool(self.rigid[row]))

    def keeps_batch(self, row: int) -> bool:
        """Whether nobody chooses a job's batch."""
        return self.is_rigid(row) or (self.own_batch is not None and bool(self.own_batch[row]))

    def those(self, rows: NDArray[np.intp]) -> AdaptiveJobs:
        """These jobs of a trace in steps alone, whose jobs have neither apps nor failures."""
        steps = None if self.steps is None else self.steps[rows]
        return AdaptiveJobs(
            self.job_id[rows], self.submit_s[rows], self.application[rows], self.gpus[rows], self.batch[rows],
            steps=steps,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.job_id)
