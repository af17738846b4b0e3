"""The model of throughput, on training steps that were measured on a GPU."""

import numpy as np

from benchmarks.throughput_fit import part, read_profiles
from perdure.throughput.fit import fit


def test_most_batches_between_are_told_within_a_third() -> None:
    errors = []
    for steps in read_profiles().values():
        between = part(steps, 1)
        told = fit(part(steps, 0)).model.step_s(1, 1, between.local_batch)
        errors.extend(np.abs(told / between.step_s - 1))
    assert np.quantile(errors, 0.9) < 1 / 3
