"""When the apps of a replay in rounds came and were over, and how long each would have taken on its share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perdure.scheduling.tuning import search_s
from perdure.simulation.elastic import ElasticResult
from perdure.simulation.fairness import mean_present
from perdure.throughput.speed import Floats


class AppTimes(NamedTuple):
    """Of each app, and of each job without one, in seconds (n_apps,)."""

    submit_s: Floats
    end_s: Floats
    ideal_s: Floats  # on its share of the cluster: what rho counts in

    @property
    def jct_s(self) -> Floats:
        """From the submit of its first job to the end of its last."""
        return self.end_s - self.submit_s


def app_times(result: ElasticResult) -> AppTimes:
    """When each app came and was over, and how long it would have taken with what its jobs ask for on its share.

    A share is 1 / N of the cluster, where N apps were there in the mean. For a job alone that is Themis' rho as of any
    job. NaN where the profiles do not say how long jobs take alone.
    """
    names = np.full(len(result.submit_s), "") if result.app is None else result.app
    groups = [[row] for row in np.flatnonzero(names == "").tolist()]
    groups += [np.flatnonzero(names == name).tolist() for name in result.searches]
    submit_s = np.array([result.submit_s[rows].min() for rows in groups])
    end_s = np.array([result.end_s[rows].max() for rows in groups])
    share = result.total_gpus / mean_present(submit_s, end_s)
    ideal_s = np.empty(len(groups))
    for at, rows in enumerate(groups):
        name, alone_s = str(names[rows[0]]), float(result.alone_s[rows[0]])
        if name:
            ideal_s[at] = search_s(result.searches[name], float(share[at]))
        else:
            ideal_s[at] = alone_s * max(1.0, float(result.asked_gpus[rows[0]] / share[at]))
    order = np.argsort([rows[0] for rows in groups], kind="stable")
    return AppTimes(submit_s[order], end_s[order], np.where(np.isfinite(ideal_s), ideal_s, np.nan)[order])
