"""Which policies can be in force on a real cluster, and why the others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from perdure.errors import ConfigError
from perdure.live_policy.ended_jobs import EndedJobs
from perdure.live_policy.rounds import RoundPolicy
from perdure.live_policy.settings import PolicySettings
from perdure.scheduling import las
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.scheduling.protocol import RankingPolicy

ROUNDS = ("themis", "sia")
LIVE = ("fifo", "fjf", "fewest-gpus", "las", "las-2d", "gittins-2d", *ROUNDS)
LivePolicy = RankingPolicy | RoundPolicy
_NO_PAST = EndedJobs()
ENOUGH = 10  # past jobs from which an index can be taken
_UNKNOWN = "it needs running times, which nobody knows beforehand"
_OWN = "it reserves starts by itself, as Slurm's own backfill does"
_ROUNDS = "it plans with measured speeds, which are not known of the jobs of a resource manager"
_QUOTAS = "it needs the quotas of virtual clusters, which are not read from a resource manager yet"
_WHY_NOT = {
    **dict.fromkeys(("sjf", "srtf", "srsf"), _UNKNOWN),
    **dict.fromkeys(("easy", "conservative", "slurm"), _OWN),
    **dict.fromkeys(("maxmin", "pollux", "gavel", "optimus"), _ROUNDS),
    **dict.fromkeys(("philly", "capacity", "drf", "tetris"), _QUOTAS),
}


def live_policy(settings: PolicySettings, samples: Sequence[float] = (), past: EndedJobs = _NO_PAST) -> LivePolicy:
    """The policy that the settings name; `samples`: services of past jobs in GPU-seconds, for an index.

    `past`: for those that plan in rounds.

    Raises `ConfigError` for one that cannot be in force.
    """
    name = settings.name.partition(":")[0]
    where, fix = f"policy {settings.name!r}", f"Use one of: {', '.join(LIVE)}"
    if name in _WHY_NOT:
        raise ConfigError(where, _WHY_NOT[name], fix)
    if settings.name in ROUNDS:
        return RoundPolicy(settings.name, settings, past)
    limits = settings.queue_limits
    options = PolicyOptions(queue_limits=limits, gittins_samples=tuple(samples))
    found = cast("RankingPolicy", policy_named(settings.name, options))
    if isinstance(found, las.Gittins2D):
        return las.Gittins2D(queue_limits=limits, samples=tuple(samples), quantum=limits[0])
    if found.name.partition(":")[0] not in LIVE:
        raise ConfigError(where, "it cannot be in force above a resource manager", fix)
    return found


def policy_in_force(
    settings: PolicySettings, samples: Sequence[float], past: EndedJobs = _NO_PAST
) -> tuple[LivePolicy, str]:
    """The policy that decides now, and what is to be said of it: an index needs past jobs."""
    found = live_policy(settings, samples, past)
    if not isinstance(found, las.Gittins2D) or len(samples) >= ENOUGH:
        return found, ""
    stand_in = las.LeastAttained(queue_limits=settings.queue_limits)
    return stand_in, f"{len(samples)} past jobs are known, and gittins-2d needs {ENOUGH}: las-2d orders until then"


def thinned(samples: Sequence[float], most: int = las.SAMPLES) -> tuple[float, ...]:
    """A sample of at most `most` values with the same quantiles."""
    if len(samples) <= most:
        return tuple(samples)
    levels = (np.arange(most) + 1) / most
    return tuple(np.quantile(np.array(samples, np.float64), levels, method="inverted_cdf").tolist())
