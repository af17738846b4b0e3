"""Jobs that could never start, because an empty cluster has no place for them, put aside before a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.placement.registry import room_of
from perdure.scheduling.placement.resources import NodeResource, resources_of
from perdure.scheduling.protocol import Policy
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.requests import requests_of
from perdure.simulation.workload import Workload
from perdure.simulation.world import view_of
from perdure.traces.trace import Trace

TOO_WIDE = "wider than the cluster"
_RELAXED = 10**9  # ticks after which a placement is on its last rung


def fitting(found: Trace, where: str, cluster: Cluster, skip_bad: bool, placement: Placement | None = None) -> Trace:
    """The jobs that fit into an empty `cluster`; the others are left out and counted with `skip_bad`.

    With `placement` None GPUs are only counted. Raises `InputError` for the first job that does not fit, and also
    where none does, or none tells a resource that the cluster counts.
    """
    found = replace(found, notes=(*found.notes, *_untold(found.table, where, resources_of(cluster, found.table))))
    misfit = misfits(found.table, cluster, placement)
    if not misfit.any():
        return found
    if not skip_bad or misfit.all():
        raise _refusal(found.table, int(np.argmax(misfit)), where, cluster, placement)
    wide = int((found.table.gpus > cluster.total_gpus).sum())
    counts = {TOO_WIDE: wide, f"no place for it by {_name(placement)}": int(misfit.sum()) - wide}
    left_out = {**found.left_out, **{why: jobs for why, jobs in counts.items() if jobs}}
    return replace(found, table=found.table.take(np.flatnonzero(~misfit)), left_out=left_out)


def _untold(table: JobTable, where: str, resources: Sequence[NodeResource]) -> Iterator[str]:
    """A note on each resource of which some jobs do not tell what they ask for."""
    for resource in resources:
        silent = len(table) - int(np.count_nonzero(resource.asked))
        if silent == len(table):
            what = f"no job tells how many {resource.unit} it asks for, and the cluster counts them"
            raise InputError(where, what, "Leave them out of the cluster, or export them with the trace")
        if silent:
            told = f"{silent} of {len(table)} jobs do not tell how many {resource.unit} they ask for"
            yield f"{told}; they count as asking for none"


def accepted(
    found: Trace, where: str, cluster: Cluster, skip_bad: bool, policy: Policy, placement: Placement | None = None
) -> Trace:
    """The jobs that a policy ever starts: Slurm refuses those above a limit of their partition, QOS or account.

    The others are left out and counted by Slurm's reason with `skip_bad`. Raises `InputError` for the first of them
    otherwise, and also where none is left.
    """
    if not isinstance(policy, Slurm):
        return found
    view = view_of(Workload.of(found.table), cluster.total_gpus)
    refused = requests_of(view, policy.settings, cluster.gpus.tolist() if placement else ()).refused
    if not refused:
        return found
    if not skip_bad or len(refused) == len(found.table):
        row = min(refused)
        job = f"{where}: job {found.table.job_id[row]}"
        fix = "Change that limit, or pass --skip-bad to leave such jobs out"
        raise InputError(job, f"Slurm never starts it ({refused[row]})", fix)
    counts = Counter(f"never started by Slurm ({why})" for why in refused.values())
    kept = np.setdiff1d(np.arange(len(found.table)), list(refused))
    return replace(found, table=found.table.take(kept), left_out={**found.left_out, **counts})


def must_fit(table: JobTable, cluster: Cluster, placement: Placement | None) -> None:
    """Raises `InputError`, naming the job, for the first that does not fit into an empty cluster."""
    misfit = misfits(table, cluster, placement)
    if misfit.any():
        raise _refusal(table, int(np.argmax(misfit)), "", cluster, placement)


def misfits(table: JobTable, cluster: Cluster, placement: Placement | None) -> NDArray[np.bool_]:
    """Which jobs find no place in an empty cluster, not even where the placement asks for the least locality."""
    resources = resources_of(cluster, table)
    columns = np.stack([table.gpus, *(each.asked for each in resources)])
    _, first, which = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    places = [_has_place(row, int(table.gpus[row]), cluster, placement, resources) for row in first.tolist()]
    lost: NDArray[np.bool_] = ~np.array(places, bool)
    return lost[which.ravel()]


def _has_place(
    row: int, gpus: int, cluster: Cluster, placement: Placement | None, resources: tuple[NodeResource, ...]
) -> bool:
    room = room_of(cluster, placement, 1, resources)
    return room.take(row, gpus, 0) or room.take(row, gpus, _RELAXED)


def _name(placement: Placement | None) -> str:
    return f"placement {placement.name}" if placement else "count"


def _refusal(table: JobTable, row: int, where: str, cluster: Cluster, placement: Placement | None) -> InputError:
    gpus, whole = int(table.gpus[row]), cluster.total_gpus
    what, fix = f"it asks for {gpus} GPUs, and the cluster has {whole}", "Take a larger cluster"
    if gpus <= whole:
        resources = resources_of(cluster, table)
        asked = " and ".join([f"{gpus} GPUs", *(f"{each.asked[row]} {each.unit}" for each in resources)])
        has = " and ".join([str(whole), *(f"{each.total} {each.unit}" for each in resources)])
        what = f"it asks for {asked}, and {_name(placement)} finds no place for them in the empty cluster of {has}"
        fix += " or another placement"
    job = f"job {table.job_id[row]}"
    fix += ", or pass --skip-bad to leave such jobs out" if where else ", or leave the job out"
    return InputError(f"{where}: {job}" if where else job, what, fix)
