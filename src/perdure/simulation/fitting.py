"""Jobs that no placement could ever start, because they are wider than the cluster, put aside before a simulation."""

from __future__ import annotations

import numpy as np

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.traces.trace import Trace

TOO_WIDE = "wider than the cluster"


def fitting(found: Trace, where: str, cluster: Cluster, skip_bad: bool) -> Trace:
    """The jobs that fit into an empty `cluster`; the others are left out and counted with `skip_bad`.

    Raises `InputError` for the first one that does not fit, and also where none does.
    """
    wide = found.table.gpus > cluster.total_gpus
    if not wide.any():
        return found
    if not skip_bad or wide.all():
        row = int(np.argmax(wide))
        what = f"it asks for {found.table.gpus[row]} GPUs, and the cluster has {cluster.total_gpus}"
        mend = "Take a larger cluster, or pass --skip-bad to leave such jobs out"
        raise InputError(f"{where}: job {found.table.job_id[row]}", what, mend)
    left_out = {**found.left_out, TOO_WIDE: int(wide.sum())}
    return Trace(found.table.take(np.flatnonzero(~wide)), found.format, left_out, found.notes)
