"""What share of the cluster each virtual cluster, or user, is entitled to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.errors import ConfigError
from perdure.scheduling.view import View


def quotas(view: View, given: Mapping[str, float], where: str) -> list[float]:
    """GPUs of each virtual cluster, in the order of `view.groups`.

    `given` names GPUs a virtual cluster; without any, each gets the share that its jobs have in all service (GPUs times
    running time) of the whole trace: no real scheduler knows that, so compare policies under given quotas where they
    are known. Quotas need not be whole, nor sum to the cluster. Raises `ConfigError` for one that `given` leaves out.

    >>> view = View([1, 3], [0, 0], [10, 10], [0, 0], [0, 1], [0, 0], ("nlp", "vision"), ("ada",), 8, ticks_per_s=1)
    >>> quotas(view, {}, "policy philly")
    [2.0, 6.0]
    """
    if given:
        missing = [name for name in view.groups if name not in given]
        if missing:
            raise ConfigError(where, f"no quota for virtual cluster {missing[0]!r}", "Name GPUs for each")
        return [float(given[name]) for name in view.groups]
    asked = [0.0] * len(view.groups)
    for row, group in enumerate(view.group):
        asked[group] += view.gpus[row] * view.work[row]
    whole = sum(asked)
    return [view.total_gpus * service / whole if whole else view.total_gpus / len(asked) for service in asked]


def limits(view: View, quota: Sequence[float], most: float) -> list[float]:
    """GPUs that each virtual cluster may hold: `most` times its quota, and never fewer than its widest job asks for."""
    widest = [0] * len(quota)
    for group, gpus in zip(view.group, view.gpus, strict=True):
        widest[group] = max(widest[group], gpus)
    return [max(most * gpus, least) for gpus, least in zip(quota, widest, strict=True)]


def used(view: View, owner: Sequence[int], owners: int, asked: Sequence[int] | None = None) -> list[int]:
    """GPUs that the running jobs of each owner hold, shape (owners,); `owner` gives the owner of each row.

    Of another resource where `asked` says what each job asks for of it.
    """
    asked = view.gpus if asked is None else asked
    held = [0] * owners
    for row in view.running:
        held[owner[row]] += asked[row]
    return held
