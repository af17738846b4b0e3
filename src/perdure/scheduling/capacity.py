"""Capacity scheduling as in YARN: each virtual cluster has a capacity, and may use what others leave idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from perdure.scheduling.shares import limits, quotas
from perdure.scheduling.turns import Turns
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Capacity:
    """The virtual cluster that uses the least of its capacity starts its oldest job; nobody is preempted.

    `gpus` names the capacity of each; see `shares.quotas` for the default. Capacity is a weight, not a limit: idle GPUs
    go to whoever has jobs, and come back only as those end. `most` caps that, as YARN's maximum capacity does: nobody
    holds more than so many times its capacity, or than its widest job asks for. Use `philly` for quotas that are
    enforced by preemption.
    """

    gpus: Mapping[str, float] = field(default_factory=dict)
    most: float = inf
    blocks: bool = False
    preemptive: bool = False
    name: str = "capacity"

    def ranking(self, view: View) -> Turns:
        quota = quotas(view, self.gpus, "policy capacity")
        due = [max(share, 1e-9) for share in quota]
        return Turns(view, view.group, due, [] if self.most == inf else limits(view, quota, self.most))
