"""What is not measured yet: throughput on more GPUs, or on another GPU type, from what is.

Source: S. Jayaram Subramanya et al., "Sia: heterogeneity-aware, goodput-optimized ML-cluster scheduling", SOSP 2023,
section 3.3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.throughput.speed import Floats


def fill_unseen(
    throughput: Floats, gpus: NDArray[np.int64], nodes: NDArray[np.int64], gpu_type: NDArray[np.int64]
) -> Floats:
    """Throughput (n_jobs, n_configs), with guesses where it is NaN; `gpus`, `nodes`, `gpu_type` have (n_configs,).

    A job that was seen on one GPU of this type, and with these GPUs and nodes on another type: the ratio of the types
    on one GPU holds with many, `thr(N, A) = thr(1, A) / thr(1, B) * thr(N, B)`. The median, if several types tell.
    Without any such: as many GPUs, as many times the throughput. A type of which not even one GPU was seen stays NaN.

    Two types, on which the job was seen on one GPU, and on 4 GPUs of the second:

    >>> seen = np.array([[120.0, np.nan, 60.0, 200.0]])
    >>> fill_unseen(seen, np.array([1, 4, 1, 4]), np.array([1, 1, 1, 1]), np.array([0, 0, 1, 1]))
    array([[120., 400.,  60., 200.]])
    """
    single = _on_one_gpu(throughput, gpus, gpu_type)
    relative = throughput / single[:, gpu_type]  # speed-up over one GPU of the same type
    alike = (gpus[:, None] == gpus) & (nodes[:, None] == nodes)
    elsewhere = np.where(alike[None], relative[:, None, :], np.nan)
    told = ~np.isnan(elsewhere).all(axis=2)
    speed_up = np.broadcast_to(gpus.astype(float), throughput.shape).copy()
    speed_up[told] = np.nanmedian(elsewhere[told], axis=1)
    return np.where(np.isnan(throughput), single[:, gpu_type] * speed_up, throughput)


def _on_one_gpu(throughput: Floats, gpus: NDArray[np.int64], gpu_type: NDArray[np.int64]) -> Floats:
    """Throughput on one GPU of each type (n_jobs, n_types), NaN where it was not seen."""
    single = np.full((len(throughput), int(gpu_type.max()) + 1), np.nan)
    for config in np.flatnonzero(gpus == 1):
        single[:, gpu_type[config]] = throughput[:, config]
    return single
