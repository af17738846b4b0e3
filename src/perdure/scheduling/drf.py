"""Dominant resource fairness: whoever has the least of the resource that it needs most goes next.

Source: A. Ghodsi et al., "Dominant resource fairness", NSDI 2011.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.turns import Turns
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class DominantShare:
    """The user with the smallest dominant share, over its weight, starts its oldest job; nobody is preempted.

    A user's dominant share is the largest of its shares of GPUs and of what the cluster counts besides them. Where it
    counts GPUs alone this is max-min fairness of GPUs among users. `fill` is the same for tasks without end. Running
    jobs count, so a user whose jobs run long waits while others catch up.
    """

    weights: Mapping[str, float] = field(default_factory=dict)  # of users; 1 for those not named
    blocks: bool = False
    preemptive: bool = False
    name: str = "drf"

    def ranking(self, view: View) -> Turns:
        return Turns(view, view.user, [self.weights.get(user, 1.0) for user in view.users], resources=view.resources)


def fill(
    capacity: NDArray[np.float64], demand: NDArray[np.float64], weight: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """Tasks that each user gets when tasks are given one by one to the smallest weighted dominant share.

    `capacity` has shape (n_resources,), `demand` of one task (n_users, n_resources), positive in some resource; both in
    any unit, one a resource. `weight` (n_users,) is 1 unless given. A user whose next task does not fit gets no more.
    The lower row wins a tie. One step a task: for counts in the thousands, not the millions.

    The example: 9 CPUs and 18 GB, tasks of 1 CPU and 4 GB, and of 3 CPUs and 1 GB; both users end at two thirds.

    >>> fill(np.array([9.0, 18.0]), np.array([[1.0, 4.0], [3.0, 1.0]]))
    array([3, 2])
    """
    weight = np.ones(len(demand)) if weight is None else weight
    dominant = (demand / capacity).max(axis=1) / weight
    tasks, left, open_ = np.zeros(len(demand), np.int64), capacity.astype(float), np.ones(len(demand), bool)
    while open_.any():
        user = int(np.argmin(np.where(open_, tasks * dominant, np.inf)))
        if (demand[user] > left + 1e-9).any():
            open_[user] = False
            continue
        tasks[user] += 1
        left -= demand[user]
    return tasks
