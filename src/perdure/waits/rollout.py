"""What-if runs of a queue: many futures, each with other running times and arrivals, and when jobs start in each.

Slurm as a policy simulates each future, on the nodes that the job's partitions share with others: each job on as many
nodes of its partition as it asked for, up to `MOST_NODES`; where there are more, GPUs are only counted, wherever they
are. Of a job without GPUs processors are counted. Priorities begin with those that the queue shows, and gain age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.room import Shares
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import Partition, PriorityWeights, SchedulerSettings
from perdure.scheduling.slurm.site_limits import CPUS, GPUS, SiteLimits
from perdure.simulation.live import LiveQueue
from perdure.waits.awaited import as_sbatch
from perdure.waits.past import DAY_S, Past
from perdure.waits.queue import Queue, QueuedJob, QueuedNode
from perdure.waits.unfinished import with_unfinished

if TYPE_CHECKING:
    from perdure.simulation.simulate import Engine  # loads all policies

SAMPLES = 32  # futures that are drawn
HORIZONS_S = (3600.0, 6 * 3600.0, DAY_S, 4 * DAY_S)  # how far a future is simulated, until the job has started in it
HORIZON_S = HORIZONS_S[-1]  # of arrivals; a job that has not started by then counts as starting right then
SMALL = 80  # jobs: the plain loop has simulated these before the compiled one is loaded
SMALL_ON_NODES = 20  # the same where each is placed on nodes
MOST_NODES = 40  # on which each job is placed: 32 futures of a hundred waiting jobs then take a third of a second
MOST_TASKS = 1_000  # of one array
MOST_ARRIVALS = 20_000  # in one future
SURE = 8  # futures without a start, after which the others have none either
CROWD = 1_000  # jobs; where more are there, priorities are calculated the less often: age alone moves them here

_UNTOLD = np.empty(0, "U1")  # a column that is blank for all jobs

Floats = NDArray[np.float64]
Kind = tuple[str, str, int]  # user, partition, GPUs


@dataclass(frozen=True, slots=True)
class Scene:
    """The part of a queue in which a job competes, made ready to be run many times."""

    now_s: float
    jobs: tuple[QueuedJob, ...]  # by submit; those that run, and those that wait and nobody holds
    total_gpus: int
    settings: SchedulerSettings
    futures: tuple[JobTable, ...]  # who is to come, one table a sample
    duration_s: Floats  # (n_jobs, n_samples) whole running times
    partitions: frozenset[str] = field(default_factory=frozenset)
    counts_gpus: bool = True  # else processors
    sizes: tuple[int, ...] = ()  # GPUs of each node; nothing where they are only counted
    held: Mapping[str, Shares] = field(default_factory=dict)  # what running jobs have of which nodes, by job
    awaits: Mapping[str, str] = field(default_factory=dict)  # dependencies, by job, as sbatch takes them

    @property
    def has_limits(self) -> bool:
        """Whether limits of QOS or accounts hold for any job: else it does not matter whose a job is."""
        return bool(self.settings.qos or self.settings.associations)

    @property
    def has_arrivals(self) -> bool:
        """Whether the history could tell who may come."""
        return any(len(each) for each in self.futures)

    def starts(
        self,
        asked: Sequence[QueuedJob],
        samples: range | None = None,
        about_s: float = 0.0,
        before_s: Floats | None = None,
    ) -> Floats:
        """(n_asked, n_samples) when each job would start, in seconds since the epoch; inf where it never does.

        A job that is not in the queue yet is asked about alone: as if it, and none of the others, were submitted now.
        The futures `samples` are asked, or all; where starts are thought to lie about an instant, they are simulated up
        to there at once. With `before_s`, (n_samples,), no future is simulated any further, and who has not started by
        then counts as never starting.
        """
        samples = range(len(self.futures)) if samples is None else samples
        rows = [self._row(job) for job in asked]
        new = [place for place, row in enumerate(rows) if row is None and self.fits(asked[place])]
        probes = self._table([structs.replace(asked[place], submit_s=self.now_s) for place in new])
        probe_of = {place: number for number, place in enumerate(new)}
        its = [(place, row, probe_of.get(place, -1)) for place, row in enumerate(rows)]
        its = [each for each in its if each[1] is not None or each[2] >= 0]
        found = np.full((len(asked), len(samples)), np.inf)
        there, begin = self._table(self.jobs), self._enough([about_s])
        for column, sample in enumerate(samples if its else ()):
            if column == SURE and np.isinf(found[:, :SURE]).all():
                break
            most_s = np.inf if before_s is None else before_s[column] - self.now_s
            starts = self._first_starts(sample, there, probes, [(row, probe) for _, row, probe in its], begin, most_s)
            found[[place for place, _, _ in its], column] = starts
            begin = self._enough(starts)
        return found

    def _first_starts(
        self,
        sample: int,
        there: JobTable,
        probes: JobTable,
        asked: Sequence[tuple[int | None, int]],
        begin: int,
        most_s: float,
    ) -> list[float]:
        """When jobs, each a row or else a probe, start in a future, of which little more is simulated than it takes."""
        starts = [np.nan] * len(asked)
        for horizon_s in HORIZONS_S[begin:]:
            queue = self._live(sample, there, probes, horizon_s)
            until_s = self.now_s + min(horizon_s, most_s)
            for place, (row, probe) in enumerate(asked):  # probes before the queue goes on
                if row is None:
                    starts[place] = queue.start_if_submitted(probe, self.now_s, until_s)
            for place, (row, _) in enumerate(asked):
                if row is not None:
                    starts[place] = queue.start_of(row, until_s)
            if horizon_s >= most_s or not np.isnan(starts).any():
                break
        return [np.inf if np.isnan(start_s) else start_s for start_s in starts]

    def _enough(self, starts: Sequence[float]) -> int:
        """The first horizon in which jobs with these starts have started: the next future begins with it."""
        wait_s = max(starts) - self.now_s
        return next((place for place, horizon_s in enumerate(HORIZONS_S) if wait_s < horizon_s), len(HORIZONS_S) - 1)

    def _row(self, job: QueuedJob) -> int | None:
        return next((row for row, each in enumerate(self.jobs) if each == job), None)

    def _live(self, sample: int, there: JobTable, probes: JobTable, horizon_s: float) -> LiveQueue:
        """A future of jobs that are there, which run for as long in it as was drawn, and of those who come.

        Probes come when they are told to.
        """
        coming = self.futures[sample]
        coming = coming.take(slice(int(np.searchsorted(coming.submit_s, self.now_s + horizon_s, "right"))))
        coming = replace(coming, gpus=np.minimum(coming.gpus, self.total_gpus))
        table = replace(there, duration_s=self.duration_s[:, sample], attempts=None).followed_by(coming)
        engine: Engine = "plain" if len(table) <= (SMALL_ON_NODES if self.sizes else SMALL) else "auto"
        if self.sizes:
            nodes = [*self._nodes(table).tolist(), *self._nodes(probes).tolist()]
            placement, cluster = AsAsked(tuple(nodes)), Cluster(np.array(self.sizes, np.int64))
            held = {row: self.held[job.job_id] for row, job in enumerate(self.jobs) if job.job_id in self.held}
            return LiveQueue.at(table, self.now_s, cluster, Slurm(self.settings), probes, engine, placement, held)
        cluster = Cluster(np.ones(self.total_gpus, np.int64))
        return LiveQueue.at(table, self.now_s, cluster, Slurm(self.settings), probes, engine)

    def _nodes(self, table: JobTable) -> NDArray[np.int64]:
        """On how many nodes each job runs: as many as it asked for, or needs."""
        return np.maximum(np.maximum(table.nodes, 1), -(-table.gpus // max(1, *self.sizes)))

    def fits(self, job: QueuedJob) -> bool:
        """Whether the nodes of its partition, all of them idle, have room for the job."""
        return bool(self._fit(self._table([job]))[0]) if self.sizes else job.gpus <= self.total_gpus

    def without_those_that_never_fit(self) -> Scene:
        """Without waiting jobs, and jobs to come, that ask for more than all nodes of their partition have."""
        kept = self._fit(self._table(self.jobs)) | np.array([job.is_running for job in self.jobs], np.bool_)
        jobs = tuple(job for job, stays in zip(self.jobs, kept.tolist(), strict=True) if stays)
        futures = tuple(coming.take(np.flatnonzero(self._fit(coming))) for coming in self.futures)
        return replace(self, jobs=jobs, duration_s=self.duration_s[kept], futures=futures)

    def _fit(self, table: JobTable) -> NDArray[np.bool_]:
        nodes, found = self._nodes(table), np.zeros(len(table), np.bool_)
        each = -(-table.gpus // nodes)
        for partition in self.settings.partitions:
            rows = np.flatnonzero(table.partition == partition.name)
            largest = np.sort(np.array([self.sizes[node] for node in partition.nodes or ()], np.int64))[::-1]
            few = rows[nodes[rows] <= len(largest)]
            found[few] = each[few] <= largest[nodes[few] - 1]
        return found

    def _table(self, jobs: Sequence[QueuedJob]) -> JobTable:
        """Jobs as they are now, that run for as long as they may."""
        return JobTable(
            job_id=np.array([job.job_id or "new" for job in jobs], np.str_),
            submit_s=np.array([min(_came_s(job), self.now_s) for job in jobs]),
            gpus=np.array([_held(job, self.total_gpus) for job in jobs], np.int64),
            duration_s=np.array([job.walltime_s or DAY_S for job in jobs]),
            user=np.array([job.user for job in jobs], np.str_),
            start_s=np.array([_started_s(job, self.now_s) for job in jobs]),
            walltime_s=np.array([job.walltime_s or np.nan for job in jobs]),
            nodes=np.array([job.nodes for job in jobs], np.int64),
            partition=np.array([self._partition(job) for job in jobs], np.str_),
            nice=np.array([self._nice(job) for job in jobs], np.int64),
            eligible_s=np.array([np.nan if job.eligible_s is None else job.eligible_s for job in jobs]),
            dependency=np.array([self.awaits.get(job.job_id, "") for job in jobs], np.str_),
            array=np.array([_array(job) for job in jobs], np.str_),
            account=np.array([job.account for job in jobs], np.str_) if self.has_limits else _UNTOLD,
            qos=np.array([job.qos for job in jobs], np.str_) if self.has_limits else _UNTOLD,
        )

    def _partition(self, job: QueuedJob) -> str:
        """Of several one that is up, of the highest tier."""
        worth = {each.name: (each.is_up, each.priority_tier) for each in self.settings.partitions}
        return max(job.partitions, key=lambda name: worth.get(name, (False, 0)), default="")

    def _nice(self, job: QueuedJob) -> int:
        """What takes the simulated priority to the one that the queue shows now."""
        if job.is_running:
            return 0
        return -round(fixed_part(job, self.settings, self.now_s))


def scene_of(
    job: QueuedJob,
    queue: Queue,
    settings: SchedulerSettings,
    past: Past,
    rng: Generator,
    samples: int = SAMPLES,
    limits: SiteLimits | None = None,
) -> Scene:
    """The nodes and jobs with which `job` competes, and `samples` futures of them, drawn from the past."""
    partitions = _connected(job.partitions, queue)
    counts_gpus = job.gpus > 0
    nodes = [node for node in queue.nodes_of(tuple(partitions)) if node.is_usable]
    usable = {node.name: node.gpus if counts_gpus else node.cpus for node in nodes}
    there = [each for each in queue.jobs if not partitions.isdisjoint(each.partitions) and not each.is_held]
    counted = (_on_usable(counted_by(each, gpus=counts_gpus), usable) for each in there)
    jobs = _throttled([task for each in counted if each.gpus for task in _tasks(each)])
    jobs.sort(key=lambda each: (min(_came_s(each), queue.now_s), each.job_id))
    known = age_alone(settings, queue, partitions)
    sizes: tuple[int, ...] = ()
    held: Mapping[str, Shares] = {}
    if len(nodes) <= MOST_NODES:
        sizes, known = tuple(usable.values()), _with_nodes(known, nodes)
        jobs, held = _on_nodes(jobs, usable)
    total = max(sum(usable.values()), sum(each.gpus for each in jobs if each.is_running), 1)
    duration_s = _draw(jobs, queue.now_s, past, rng, samples)
    fixed = _fixed_by_kind(jobs, known, queue.now_s)
    rivals = with_unfinished(past.only_in(partitions), jobs, duration_s[:, 0]).only_in(partitions)
    rivals = _with_priorities(rivals, fixed, gpus=counts_gpus)
    if limits is None or not (limits.qos or limits.associations):
        rivals = replace(rivals, jobs=replace(rivals.jobs, account=_UNTOLD, qos=_UNTOLD))  # shorter tables
    futures = _renamed([_to_come(rivals, queue.now_s, rng) for _ in range(samples)])
    users = {each.user for each in (job, *jobs)}.union(*(np.unique(each.user).tolist() for each in futures))
    qos, associations = (limits or SiteLimits()).counted(GPUS if counts_gpus else CPUS, users)
    period_s = known.priority.calc_period_s * max(1.0, len(jobs) / CROWD)
    own = replace(known, qos=qos, associations=associations, priority=replace(known.priority, calc_period_s=period_s))
    scene = Scene(
        queue.now_s, tuple(jobs), total, own, futures, duration_s, frozenset(partitions), counts_gpus, sizes, held,
        as_sbatch(jobs),
    )  # fmt: skip
    return scene.without_those_that_never_fit() if sizes else scene


def counted_by(job: QueuedJob, *, gpus: bool) -> QueuedJob:
    """The job, `gpus` of it being what is counted: its GPUs or its processors."""
    return job if gpus else structs.replace(job, gpus=job.cpus)


def age_alone(settings: SchedulerSettings, queue: Queue, partitions: Iterable[str]) -> SchedulerSettings:
    """The settings with age as the only factor: all others are in the priorities that the queue shows."""
    weights = PriorityWeights(age=settings.priority.weights.age)
    known = tuple(
        Partition(
            each.name,
            is_default=each.is_default,
            is_up=each.is_up,
            max_time_s=each.max_time_s,
            default_time_s=each.default_time_s,
            max_nodes=each.max_nodes,
            priority_tier=each.priority_tier,
            qos=each.qos,
        )
        for each in queue.partitions
        if each.name in partitions
    )
    return replace(
        settings, priority=replace(settings.priority, weights=weights), partitions=known, qos=(), associations=()
    )


def fixed_part(job: QueuedJob, settings: SchedulerSettings, now_s: float) -> float:
    """The priority that the queue shows, less what age has added to it."""
    since_s = min(job.eligible_s if job.eligible_s is not None else now_s, now_s)
    age = min(1.0, (now_s - since_s) / settings.priority.max_age_s) if settings.priority.max_age_s else 1.0
    return max(0.0, job.priority - settings.priority.weights.age * age)


def _fixed_by_kind(jobs: Iterable[QueuedJob], settings: SchedulerSettings, now_s: float) -> dict[Kind, float]:
    """The median of what waiting jobs show, by user, partition and GPUs; "" and 0 stand for any."""
    found: dict[Kind, list[float]] = {("", "", 0): []}
    for job in jobs:
        if job.is_waiting:
            part, partition = fixed_part(job, settings, now_s), job.partitions[0] if job.partitions else ""
            for kind in _kinds(job.user, partition, job.gpus):
                found.setdefault(kind, []).append(part)
    return {kind: _median(parts) if parts else 0.0 for kind, parts in found.items()}


def _median(values: Sequence[float]) -> float:
    """Of few values numpy takes ten times as long."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2


def _kinds(user: str, partition: str, gpus: int) -> tuple[Kind, ...]:
    """From the closest on: the size of a job counts for more than who submitted it, unless both are seen."""
    return (
        (user, partition, gpus),
        ("", partition, gpus),
        (user, partition, 0),
        ("", partition, 0),
        (user, "", 0),
        ("", "", 0),
    )


def _with_priorities(past: Past, fixed: Mapping[Kind, float], *, gpus: bool) -> Past:
    """The past with the priority, without age, that the waiting jobs show that are most like each; `gpus` are counted,
    or else processors in their place.
    """
    jobs = past.jobs if gpus else replace(past.jobs, gpus=past.jobs.cpus)
    if not len(jobs):
        return past
    kinds = list(zip(jobs.user.tolist(), jobs.partition.tolist(), jobs.gpus.tolist(), strict=True))
    shown = {each: -int(next(fixed[kind] for kind in _kinds(*each) if kind in fixed)) for each in set(kinds)}
    nice = np.fromiter(map(shown.__getitem__, kinds), np.int64, len(kinds))
    return replace(past, jobs=replace(jobs, nice=nice))


def _renamed(futures: Sequence[JobTable]) -> tuple[JobTable, ...]:
    """Jobs to come under names of their own: nobody waits for the past jobs that they were drawn from."""
    most = max(map(len, futures), default=0)
    names = np.char.add("+", np.arange(most).astype(np.str_)) if most else np.empty(0, "U1")
    return tuple(replace(coming, job_id=names[: len(coming)]) for coming in futures)


def _connected(partitions: tuple[str, ...], queue: Queue) -> set[str]:
    """These partitions and all that share nodes with them, directly or by way of others."""
    found = set(partitions)
    while True:
        more = found.union(*(node.partitions for node in queue.nodes if not found.isdisjoint(node.partitions)))
        if more == found:
            return found
        found = more


def _with_nodes(settings: SchedulerSettings, nodes: Sequence[QueuedNode]) -> SchedulerSettings:
    """The settings with the nodes of each partition, by their places."""
    partitions = tuple(
        replace(each, nodes=tuple(place for place, node in enumerate(nodes) if each.name in node.partitions))
        for each in settings.partitions
    )
    return replace(settings, partitions=partitions)


def _on_nodes(jobs: Iterable[QueuedJob], usable: Mapping[str, int]) -> tuple[list[QueuedJob], dict[str, Shares]]:
    """The jobs, and what those that run have of which nodes, in equal parts; never more than a node has.

    One whose nodes are not known finds its own; one that holds nothing of what is counted is left out.
    """
    place = {name: at for at, name in enumerate(usable)}
    free, kept, held = list(usable.values()), [], {}
    for job in jobs:
        on = [place[name] for name in job.running_on if name in place] if job.is_running else []
        if not on:
            kept.append(job)
            continue
        each, rest = divmod(job.gpus, len(on))
        parts = ((node, min(each + (at < rest), free[node])) for at, node in enumerate(on))
        shares = tuple((node, gpus) for node, gpus in parts if gpus)
        for node, gpus in shares:
            free[node] -= gpus
        if shares:
            held[job.job_id] = shares
            kept.append(structs.replace(job, gpus=sum(gpus for _, gpus in shares)))
    return kept, held


def _on_usable(job: QueuedJob, usable: Mapping[str, int]) -> QueuedJob:
    """A running job with the GPUs that it gives back to others: what it has on nodes out of service is lost."""
    if not job.is_running or not job.running_on:
        return job
    share = sum(name in usable for name in job.running_on) / len(job.running_on)
    return job if share == 1 else structs.replace(job, gpus=round(job.gpus * share))


def _draw(jobs: Sequence[QueuedJob], now_s: float, past: Past, rng: Generator, samples: int) -> Floats:
    """(n_jobs, samples) whole running times."""
    found = np.empty((len(jobs), samples))
    fresh: dict[tuple[str, str], list[int]] = {}  # those that have not begun, and have a limit
    for row, job in enumerate(jobs):
        partition = job.partitions[0] if job.partitions else ""
        if job.walltime_s is not None and not job.is_running:
            fresh.setdefault((job.user, partition), []).append(row)
            continue
        elapsed_s = max(0.0, now_s - job.start_s) if job.is_running and job.start_s is not None else 0.0
        found[row] = past.run_times.draw(job.user, partition, job.walltime_s, elapsed_s, rng, samples)
    for (user, partition), rows in fresh.items():
        limits_s = np.array([jobs[row].walltime_s for row in rows], np.float64)
        found[rows] = past.run_times.draw_fresh(user, partition, limits_s, rng, samples)
    return found


def _to_come(past: Past, now_s: float, rng: Generator) -> JobTable:
    coming = past.arrivals(now_s, HORIZON_S, rng)
    asking = np.flatnonzero(coming.gpus > 0)[:MOST_ARRIVALS]
    return coming if len(asking) == len(coming) else coming.take(asking)


def _tasks(job: QueuedJob) -> list[QueuedJob]:
    """The tasks of an array that wait behind one record, as jobs of their own."""
    if not job.is_waiting or job.tasks < 2:
        return [job]
    most = min(job.tasks, MOST_TASKS)
    return [job, *(structs.replace(job, job_id=f"{job.job_id}[{task}]", tasks=1) for task in range(1, most))]


def _throttled(jobs: list[QueuedJob]) -> list[QueuedJob]:
    """Running tasks count for the limit of their array, which only those that wait tell."""
    most = {job.array: job.most_tasks for job in jobs if job.most_tasks is not None}
    if not most:
        return jobs
    return [structs.replace(job, most_tasks=most.get(job.array)) for job in jobs]


def _array(job: QueuedJob) -> str:
    """As `JobTable.array` has it."""
    return "" if job.most_tasks is None or not job.job_id else f"{job.array}%{job.most_tasks}"


def _came_s(job: QueuedJob) -> float:
    """Its submit; of a job that runs no later than its start."""
    return min(job.submit_s, job.start_s) if job.is_running and job.start_s is not None else job.submit_s


def _started_s(job: QueuedJob, now_s: float) -> float:
    if not job.is_running:
        return np.nan
    return now_s if job.start_s is None else min(job.start_s, now_s)


def _held(job: QueuedJob, total: int) -> int:
    return max(1, min(job.gpus, total)) if job.is_running else max(1, job.gpus)
