"""TROUT: first whether the wait is longer than ten minutes, then how long; with its flaws fixed.

Its 33 inputs, as far as looks show them: of the job its priority, limit, CPUs, memory, nodes; of its partition the
pending jobs ahead, all pending jobs, the running ones; of the account the last day. What looks do not say is left out:
nodes of pending and running jobs, the sizes of partitions, predicted run times.

Fixed, against the published code (srodenbeck/QueueTimePrediction, 783d55b):

1. The priority is that of the look. The one in accounting is rewritten at the start and holds the wait itself.
2. What the account did in the last day is counted alike in learning and in answering; there it was always 0.
3. No run times are predicted by a model that saw those of the test.
4. No rows are made up to balance the two kinds, let alone before some are set apart for a test.
5. The scale of the inputs is a part of what was learned, and the classifier is asked.
6. Nothing is chosen by how it does on the test.

Its regression is on minutes; here it is on the logarithm, by which waits are compared. It has no intervals; here they
are by its own errors (`perdure.waits.calibrated`).

Source: TROUT, Purdue University (S. Rodenbeck and others), SC-W 2024, pp. 621-628.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from perdure.waits.boosting import TrainingSample
from perdure.waits.calibrated import Calibrated, Centre, Column, Memory, learn_calibrated
from perdure.waits.gbdt import FEWEST_ROWS, Flat
from perdure.waits.network import Layers, Training, log_loss, run, smooth_l1
from perdure.waits.protocol import LEAST_WAIT_S, Learned
from perdure.waits.table import WaitTable

SHORT_S = 600.0
_JOB = ("priority", "limit_s", "cpus", "mem_mib", "nodes", "gpus")
_PARTITION = tuple(
    f"{which}_{what}_partition"
    for which in ("pending", "running")
    for what in ("jobs", "cpus", "mem_mib", "cpu_h", "gpus")
)
_ACCOUNT = ("started_recent_account", "cpus_started_recent_account")
INPUTS = (*_JOB, *_PARTITION, "peers_partition", *_ACCOUNT)


@dataclass(frozen=True, slots=True)
class Trout:
    """A classifier and a regressor, both small networks."""

    sample: TrainingSample = field(default_factory=lambda: TrainingSample(20_000, half_life_days=30.0, batch_power=0.0))
    training: Training = field(default_factory=Training)
    memory: Memory = field(default_factory=Memory)
    name: str = "trout"

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Learned | None = None) -> Calibrated:
        return learn_calibrated(self, self.memory, seen, now, rng, before)

    def centre(self, known: WaitTable, now: float, rng: Generator, earlier: Centre | None) -> Centre:  # noqa: ARG002
        known = known.take(known.started | (known.waited_s > SHORT_S))  # of the others it is not known which they are
        long = known.waited_s > SHORT_S
        if min(known.started.sum(), (known.started & long).sum()) < FEWEST_ROWS:
            return Flat.of(known)
        drawn = known.take(self.sample.draw(known, now, rng))
        inputs = inputs_of(drawn)
        low, high = inputs.min(axis=0), inputs.max(axis=0)
        scale = np.where(high > low, high - low, 1.0)
        wait, long = np.log10(np.maximum(drawn.waited_s, LEAST_WAIT_S)), drawn.waited_s > SHORT_S
        scaled, ended = (inputs - low) / scale, drawn.started & long
        short = wait[~long]
        return Hierarchy(
            low,
            scale,
            self.training.fit(scaled, long.astype(np.float64), log_loss, rng),
            self.training.fit(scaled[ended], wait[ended], smooth_l1, rng),
            float(np.median(short)) if len(short) else float(np.log10(SHORT_S / 2)),
        )


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The two networks, and the scale of their inputs."""

    low: Column
    scale: Column
    is_long: Layers  # log-odds
    how_long: Layers  # log10 of the wait
    short: float  # log10 of what a short wait is

    def answer(self, asked: WaitTable) -> tuple[Column, Column, Column]:
        scaled = np.clip((inputs_of(asked) - self.low) / self.scale, -0.5, 1.5)
        long = np.maximum(run(self.how_long, scaled), np.log10(SHORT_S))
        middle = np.where(run(self.is_long, scaled) > 0, long, self.short)
        return middle, np.ones(len(asked)), np.ones(len(asked))


def inputs_of(table: WaitTable) -> Column:
    """(n, n_inputs) log1p of each; 0 where it is not known."""
    values = np.nan_to_num(table.columns(INPUTS).astype(np.float64))
    return np.log1p(np.maximum(values, 0))
