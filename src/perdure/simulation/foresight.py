"""What policies are told in a replay that no scheduler knows, and that flatters them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import ALIASES, PolicyOptions

_BY_LIMIT = ("easy", "conservative")
_BY_RUNNING_TIME = ("sjf", "srtf", "srsf", "tetris")
_BY_QUOTA = ("philly", "capacity")
_BY_SAMPLE = ("gittins-2d",)


_BY_GPUS = ("easy", "conservative", "slurm")


def gpus_alone(cluster: Cluster, policies: Sequence[str]) -> list[str]:
    """A sentence on policies that plan GPUs alone, where the cluster counts more.

    >>> gpus_alone(Cluster.parse("2x8:cpu=64"), ["fifo", "easy"])
    ['easy: reserves GPUs alone, and a job whose CPUs or memory are taken starts later than its reservation']
    """
    asked = dict.fromkeys(policy.partition(":")[0] for policy in policies)
    names = [name for name in asked if name in _BY_GPUS and not cluster.counts_gpus_alone]
    what = "GPUs alone, and a job whose CPUs or memory are taken starts later than its reservation"
    return [f"{', '.join(names)}: reserve{'s' * (len(names) == 1)} {what}"] if names else []


def knows_running_times(policy: str) -> bool:
    """Whether a policy goes by true running times, whatever the trace tells."""
    name = policy.partition(":")[0]
    return ALIASES.get(name, name) in _BY_RUNNING_TIME


def learns_from_samples(policy: str) -> bool:
    """Whether a policy goes by what past jobs took."""
    return ALIASES.get(policy, policy) in _BY_SAMPLE


def foresight(tables: Sequence[JobTable], policies: Sequence[str], options: PolicyOptions) -> list[str]:
    """A sentence for each kind of foresight that some of the policies have.

    >>> foresight([], ["fifo", "srtf"], PolicyOptions())
    ['srtf: knows true running times']
    """
    names = [policy.partition(":")[0] for policy in policies]
    asked = dict.fromkeys(ALIASES.get(name, name) for name in names)
    without = sum(int((~(table.walltime_s > 0)).sum()) for table in tables)
    jobs = sum(map(len, tables))
    kinds: list[tuple[Sequence[str], str]] = [(_BY_RUNNING_TIME, "true running times")]
    if without:
        by_limit = (*_BY_LIMIT, "slurm") if options.slurm.leaves_limits_open else _BY_LIMIT
        kinds.append((by_limit, f"the true running times of the {without} of {jobs} jobs that have no time limit"))
    if not options.gittins_samples:
        past = "give past ones (--gittins-samples, --gittins-split)"
        kinds.append((_BY_SAMPLE, f"what the very jobs of this trace take: {past}"))
    if not options.quotas:
        kinds.append((_BY_QUOTA, "quotas by what this trace will ask for: give the real ones by --vc-quota"))
    told = [([name for name in asked if name in knowing], what) for knowing, what in kinds]
    return [f"{', '.join(knowing)}: know{'s' * (len(knowing) == 1)} {what}" for knowing, what in told if knowing]
