"""Hybrid-parallel jobs: a model cut into the stages of a pipeline, and replicas of the pipeline that train together.

How a pipeline is cut is fixed for each GPU type; only the number of replicas changes.

Source: S. Jayaram Subramanya et al., "Sia: heterogeneity-aware, goodput-optimized ML-cluster scheduling", SOSP 2023;
its public simulator has the formula of a step, and the stages and micro-batches of its one such application.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from perdure.errors import InputError
from perdure.model.profiles import PipelineProfile

BACKWARD = 2  # forward passes that a backward pass lasts


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages by GPU type, each of which takes a GPU; of a type that is not named the model has no pipeline.

    A step passes `microbatches` of `microbatch` examples each through every replica: its batch is never chosen.
    """

    stages: Mapping[str, int]
    microbatches: int
    microbatch: int = 1
    by_formula: bool = False  # its steps were made up, and never measured

    @property
    def replica_batch(self) -> int:
        """Examples of a step of one replica."""
        return self.microbatches * self.microbatch

    def named(self, names: Mapping[str, str]) -> Pipeline:
        """The same by other names of GPU types."""
        return replace(self, stages={names.get(kind, kind): stages for kind, stages in self.stages.items()})

    def compute_s(self, stages: int, forward_s: float) -> float:
        """Seconds of a step without synchronising, by those of a micro-batch's forward pass through one stage.

        The last micro-batch enters after all others, and then goes through all stages.

        >>> Pipeline({"rtx": 8}, 48).compute_s(8, 0.1)
        16.5
        """
        return (1 + BACKWARD) * (stages - 1 + self.microbatches) * forward_s


def pipelines(told: PipelineProfile) -> dict[str, Pipeline]:
    """By application. Raises `InputError` for one that passes other micro-batches on another GPU type."""
    found = {}
    for name in np.unique(told.application).tolist():
        own = told.application == name
        counts = np.unique(told.microbatches[own]).tolist()
        if len(counts) > 1:
            what = f"its steps have {counts[0]} micro-batches on one GPU type, and {counts[1]} on another"
            raise InputError(f"pipeline {name!r}", what, "Name the same number for all: the batch depends on it")
        stages = dict(zip(told.gpu_type[own].tolist(), told.stages[own].tolist(), strict=True))
        found[name] = Pipeline(stages, counts[0])
    return found


PUBLISHED: Mapping[str, Pipeline] = MappingProxyType(
    {"gpt_pmp": Pipeline(MappingProxyType({"dgx-ext": 2, "rtx": 8}), 48, by_formula=True)}
)
