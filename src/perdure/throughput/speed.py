"""The throughput model: a data-parallel training step's seconds, from its GPUs, nodes and batch.

Source: A. Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning", OSDI 2021, section
3.2; Sia (SOSP 2023) uses the same model, one for each application and GPU type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = float | NDArray[np.float64] | NDArray[np.int64]

PARAMETERS = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """Seconds of a training step; each field is a number, or an array that broadcasts against the configurations.

    Computing gradients takes `alpha_c + beta_c * batch` on each GPU. Synchronising them takes nothing on one GPU,
    `alpha_r + beta_r * (gpus - 2)` within a node, and `alpha_n + beta_n * (gpus - 2)` across nodes. `gamma` says how
    far the two overlap: 1 is one after the other, and towards 10 the longer of the two.

    For many jobs, fields have shape (n_jobs, 1) and configurations (n_configs,).
    """

    alpha_c: Numbers
    beta_c: Numbers
    alpha_n: Numbers
    beta_n: Numbers
    alpha_r: Numbers
    beta_r: Numbers
    gamma: Numbers

    def gradient_s(self, local_batch: Numbers) -> Floats:
        """T_grad: forward and backward pass of `local_batch` examples on one GPU."""
        return np.asarray(self.alpha_c + np.multiply(self.beta_c, local_batch), float)

    def synchronise_s(self, nodes: Numbers, gpus: Numbers) -> Floats:
        """T_sync: the gradients' all-reduce among `gpus` GPUs on `nodes` nodes."""
        nodes, gpus = np.asarray(nodes), np.asarray(gpus)
        beyond = np.maximum(gpus - 2, 0)
        inside = self.alpha_r + np.multiply(self.beta_r, beyond)
        across = self.alpha_n + np.multiply(self.beta_n, beyond)
        return np.where(gpus == 1, 0.0, np.where(nodes == 1, inside, across))

    def step_s(self, nodes: Numbers, gpus: Numbers, local_batch: Numbers, accumulated: Numbers = 0) -> Floats:
        """T_iter: one step of the optimiser, after `accumulated` passes whose gradients are only added up."""
        gradient, sync = self.gradient_s(local_batch), self.synchronise_s(nodes, gpus)
        longer = np.maximum(gradient, sync)  # taken out of the power, so that no tiny time underflows
        overlapped = longer * ((gradient / longer) ** self.gamma + (sync / longer) ** self.gamma) ** np.divide(
            1, self.gamma
        )
        return np.asarray(accumulated * gradient + overlapped, float)

    def throughput(self, nodes: Numbers, gpus: Numbers, local_batch: Numbers, accumulated: Numbers = 0) -> Floats:
        """Examples a second.

        >>> model = SpeedModel(0.05, 0.001, 0.03, 0.002, 0.01, 0.0005, 2.0)
        >>> round(float(model.throughput(nodes=2, gpus=8, local_batch=64)), 3)
        4214.313
        """
        examples = np.multiply(gpus, local_batch) * np.add(accumulated, 1)
        return np.asarray(examples / self.step_s(nodes, gpus, local_batch, accumulated), float)
