"""Sizes at start: which numbers of GPUs a waiting job may be given, and what its request is then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from perdure.model.jobs import JobSize
from perdure.waits.queue import QueuedJob, QueuedNode


class SizeChange(NamedTuple):
    """A waiting job's new size; `before`: what it asked for by itself, `seen`: what it asks for now."""

    job_id: str
    size: JobSize
    before: JobSize
    seen: JobSize


def allowed_sizes(job: QueuedJob, before: JobSize | None, there: Sequence[QueuedNode]) -> Mapping[int, JobSize]:
    """What a waiting job may be given, by GPUs and rising; {} for one that has no choice. `before`: see `SizeChange`,
    `there`: usable nodes with GPUs that it may have.

    A job that named numbers of nodes keeps its GPUs on each. One that named numbers of GPUs has them on one node, or on
    whole ones, of the smallest that it may have.
    """
    asked = before or job.asks
    if asked is None or not there:
        return {}
    if job.sizes:
        per_node = min(node.gpus for node in there)
        found = [_of_gpus(gpus, per_node, asked) for gpus in job.sizes]
    else:
        counts = range(asked.nodes, asked.most_nodes + 1)
        found = [replace(asked, nodes=count, most_nodes=count) for count in counts]
    sizes = {size.gpus: size for size in found if size is not None and size.nodes <= len(there)}
    return sizes if len(sizes) > 1 else {}


def _of_gpus(gpus: int, per_node: int, asked: JobSize) -> JobSize | None:
    nodes, rest = divmod(gpus, per_node)
    if gpus <= per_node:
        return replace(asked, nodes=1, most_nodes=1, gpus_per_node=gpus)
    return None if rest else replace(asked, nodes=nodes, most_nodes=nodes, gpus_per_node=per_node)
