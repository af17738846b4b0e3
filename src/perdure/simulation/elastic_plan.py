"""What a plan of shares must be: of jobs that are there, on GPUs that are there, shared by two that both say so."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import PerdureError
from perdure.scheduling.elastic import ElasticView, GpuType, Plan, Share, is_placed


class ElasticError(PerdureError):
    """A policy planned what cannot be done, or never ends a job."""


def check_plan(name: str, plan: Plan, view: ElasticView) -> None:
    """Raises `ElasticError` for a job that is not there, and for shares that no placement realises."""
    unknown = next((row for row in plan if row not in view.jobs), None)
    if unknown is not None:
        raise ElasticError(f"policy {name}", f"its plan names {unknown!r}, which is not a job of the cluster", "Fix it")
    for row, share in plan.items():
        if share.shared_with is not None and not _is_pair(row, share, plan, view):
            what = f"its plan lets {row!r} share GPUs with {share.shared_with!r}, which is not there, or does not fit"
            raise ElasticError(f"policy {name}", what, "Fix the policy")
    for place, kind in enumerate(view.types):
        shares = [share for share in _once(plan) if share.gpu_type == place]
        sizes = [share.gpus for share in shares]
        if not (_is_on_nodes(shares, kind) if any(share.where for share in shares) else is_placed(sizes, kind)):
            raise ElasticError(f"policy {name}", f"{sizes} GPUs of {kind.name!r} find no place", "Fix the policy")


def _once(plan: Plan) -> list[Share]:
    """The shares of a plan, of two jobs on the same GPUs one."""
    return [share for row, share in plan.items() if share.shared_with is None or row < share.shared_with]


def gpus_by_type(plan: Plan, types: int) -> tuple[int, ...]:
    """GPUs of each type that somebody is given."""
    found = [0] * types
    for share in _once(plan):
        found[share.gpu_type] += share.gpus
    return tuple(found)


def _is_pair(row: int, share: Share, plan: Plan, view: ElasticView) -> bool:
    """Whether the other of the two has the same GPUs beside this one, and both fit into their memory."""
    beside = share.shared_with
    other = None if beside is None or beside == row else plan.get(beside)
    return other is not None and other == share._replace(shared_with=row) and kept_speed(row, plan, view) > 0


def kept_speed(row: int, plan: Plan, view: ElasticView) -> float:
    """What a job keeps of its speed alone, beside whom it shares its GPUs with."""
    share = plan.get(row)
    if share is None or share.shared_with is None:
        return 1.0
    names = view.jobs[row].application, view.jobs[share.shared_with].application
    return view.pairs.kept(view.types[share.gpu_type].name, share.gpus, share.nodes, *names)


def _is_on_nodes(shares: Sequence[Share], kind: GpuType) -> bool:
    """Whether all of them say where they are, and no node has more than its GPUs."""
    used = [0] * kind.nodes
    for share in shares:
        for node, gpus in share.where:
            used[node] += gpus
    told = all(sum(gpus for _, gpus in share.where) == share.gpus for share in shares)
    return told and max(used) <= kind.gpus_per_node
