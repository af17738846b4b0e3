"""Statistical efficiency: how much an example of a larger batch is worth against one of the base batch.

Source: A. Qiao et al., "Pollux", OSDI 2021, section 3.1; the gradient noise scale is that of S. McCandlish et al., "An
empirical model of large-batch training", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure.throughput.speed import Floats, Numbers


@dataclass(frozen=True, slots=True)
class StatisticalEfficiency:
    """Progress per example, 1 at `base_batch` and less above it; fields broadcast like those of `SpeedModel`.

    `noise_scale` (examples) is the batch at which an example is worth half of what it is in the smallest batches. It
    grows as training goes on, so that large batches pay later.
    """

    noise_scale: Numbers
    base_batch: Numbers

    @classmethod
    def from_gradients(cls, square: Numbers, variance: Numbers, base_batch: Numbers) -> StatisticalEfficiency:
        """From the squared norm of the mean gradient, and its variance at `base_batch`.

        A mean gradient of 0 is pure noise: then any batch is worth its size.
        """
        square, variance = np.asarray(square, float), np.asarray(variance, float)
        with np.errstate(divide="ignore", invalid="ignore"):
            noise = np.where(square > 0, base_batch * variance / square, np.inf)
        return cls(noise, base_batch)

    def efficiency(self, batch: Numbers) -> Floats:
        """In (0, 1] from `base_batch` up.

        >>> round(float(StatisticalEfficiency(noise_scale=1000.0, base_batch=128).efficiency(512)), 3)
        0.746
        """
        noise, base = np.asarray(self.noise_scale, float), np.asarray(self.base_batch, float)
        with np.errstate(invalid="ignore"):
            ratio = (noise + base) / (noise + batch)
        return np.where(np.isinf(noise), 1.0, ratio)
