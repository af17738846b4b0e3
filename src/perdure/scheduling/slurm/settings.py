"""How a site's Slurm schedules: what slurm.conf and the accounting database say, as values with Slurm's own defaults.

The names are Slurm's, in snake case. Source: slurm.conf(5) and SchedMD/slurm 284c3b9; times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class PriorityWeights:
    """Weights of the factors of priority/multifactor; each factor lies in [0, 1]. All are 0 by default: then FIFO.

    A weight is thus the most that its factor adds to a priority, which is a whole number: keep weights in the
    thousands, or factors that differ by little round to the same.
    """

    age: int = 0
    assoc: int = 0
    fairshare: int = 0
    job_size: int = 0
    partition: int = 0
    qos: int = 0
    tres: Mapping[str, int] = field(default_factory=dict)  # "cpu", "mem", "gres/gpu", ... -> weight


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """priority/multifactor, or priority/basic where `multifactor` is False."""

    multifactor: bool = True
    weights: PriorityWeights = field(default_factory=PriorityWeights)
    max_age_s: float = 7 * DAY_S
    decay_half_life_s: float = 7 * DAY_S  # of usage; 0: it never decays
    calc_period_s: float = 300.0
    favor_small: bool = False
    flags: frozenset[str] = frozenset()  # PriorityFlags in capitals: "ACCRUE_ALWAYS", "NO_FAIR_TREE", ...


@dataclass(frozen=True, slots=True)
class MainSettings:
    """The pass that is made upon each submit and end, and a whole one now and then."""

    default_queue_depth: int = 100
    sched_interval_s: float = 60.0
    partition_job_depth: int = 0  # 0: no limit of its own; 0 of the others likewise


@dataclass(frozen=True, slots=True)
class BackfillSettings:
    """sched/backfill; `enabled` is False for sched/builtin.

    Each field is the parameter ``bf_*`` of its name, but `window_s`, which slurm.conf has in minutes.
    """

    enabled: bool = True
    interval_s: float = 30.0
    window_s: float = DAY_S  # starts further away than this are not reserved
    resolution_s: float = 60.0
    end_window_s: float = 30.0  # no parameter of Slurm's, see `node_space.taken_together`; 0: none
    max_job_test: int = 500
    max_job_start: int = 0  # 0: no limit, here and below
    max_job_part: int = 0
    max_job_user: int = 0
    max_job_user_part: int = 0
    max_job_assoc: int = 0
    job_part_count_reserve: int = 0
    min_prio_reserve: int = 0
    min_age_reserve_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunningLimits:
    """Limits of a QOS or an association; None is no limit. TRES are GPUs, or processors where a trace has no GPUs.

    `grp_*` hold for all running jobs of the holder together, `max_*_per_user` for those of one user in it, the others
    for each job by itself.
    """

    grp_gpus: int | None = None  # of all its running jobs together
    grp_jobs: int | None = None
    max_gpus_per_job: int | None = None
    max_gpus_per_user: int | None = None
    max_jobs_per_user: int | None = None
    max_wall_s: float | None = None

    def unless_in(self, others: Iterable[RunningLimits]) -> RunningLimits:
        """Those that none of the others sets."""
        taken = {each.name: None for each in fields(self) if any(getattr(one, each.name) is not None for one in others)}
        return replace(self, **taken) if taken else self


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of slurm.conf. Nodes of several partitions may overlap."""

    name: str
    nodes: tuple[int, ...] | None = None  # rows of the cluster; None: all
    is_default: bool = False
    is_up: bool = True
    max_time_s: float | None = None
    default_time_s: float | None = None
    max_nodes: int | None = None
    priority_tier: int = 1
    priority_job_factor: int = 1
    whole_nodes: bool = False  # OverSubscribe=EXCLUSIVE
    qos: str = ""  # its limits hold for all jobs of the partition


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service of the accounting database."""

    name: str
    priority: int = 0
    limits: RunningLimits = field(default_factory=RunningLimits)
    over_partition: bool = False  # OverPartQOS: its limits go before those of the partition's QOS


@dataclass(frozen=True, slots=True)
class Association:
    """An account, or a user in an account (`user` is not ""), of the tree by which shares are computed."""

    account: str
    user: str = ""
    parent: str = "root"
    shares: int = 1
    priority: int = 0
    usage_s: float = 0.0  # of a user: GPU-seconds that it has used, decayed, before the first event
    limits: RunningLimits = field(default_factory=RunningLimits)


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """All of it. Without partitions there is one, of all nodes; without associations each user is one of root's."""

    priority: PrioritySettings = field(default_factory=PrioritySettings)
    main: MainSettings = field(default_factory=MainSettings)
    backfill: BackfillSettings = field(default_factory=BackfillSettings)
    partitions: tuple[Partition, ...] = ()
    qos: tuple[Qos, ...] = ()
    associations: tuple[Association, ...] = ()
    nodes: int = 0  # of the whole cluster, for the size of jobs; 0: GPUs stand for nodes
    cpus: int = 0  # likewise; 0: GPUs stand for processors

    @property
    def on_nodes(self) -> bool:
        """Whether it matters on which nodes GPUs are."""
        return any(each.nodes is not None or each.whole_nodes for each in self.partitions)

    @property
    def leaves_limits_open(self) -> bool:
        """Whether a job without a time limit may get none from its partition either."""
        return not self.partitions or any(not (each.default_time_s or each.max_time_s) for each in self.partitions)
