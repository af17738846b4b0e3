"""What is said of schedules: figures, comparisons, verdicts, pages; under failure models and retry policies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable, TableEnding
from perdure.scheduling.policies import PolicyOptions
from perdure.simulation.charts import crowded_jobs, unit_of, waits_by_size
from perdure.simulation.comparison import PolicyComparison
from perdure.simulation.failures import model_named
from perdure.simulation.fitting import fitting
from perdure.simulation.groups import groupings
from perdure.simulation.metrics import summary
from perdure.simulation.occupancy import occupancy
from perdure.simulation.replay_error import replay_error
from perdure.simulation.report import _page as page_of
from perdure.simulation.report import _section
from perdure.simulation.restart_cost import FREE, RestartCost
from perdure.simulation.retries import RETRY_POLICIES, TraceClassifier, retry_named
from perdure.simulation.retry_hook import FailedRun
from perdure.simulation.seed_means import over_seeds
from perdure.simulation.simulate import simulate
from perdure.simulation.steady import too_short, window_of
from perdure.simulation.sweep import Run, Setting, as_it_was, at_load, check_names, sweep
from perdure.simulation.sweep import cases as wanted
from perdure.simulation.time_split import split_by_time
from perdure.simulation.use import use_over_time
from perdure.studies.wait_causes import delays, quotas_by_demand
from perdure.traces.trace import Trace
from tests.copying import replace
from tests.recorded.drawn import NOW
from tests.recorded.whole_runs import Case
from tests.simulation.worlds import full_world

HOUR_S = 3600.0
FAILURES = ("none", "recorded", "philly", "nodes", "philly+nodes")
RETRIES = (*RETRY_POLICIES, "always:1", "predicted:0.5,0.5", "service:0.9,0.2")
POLICIES = ("fifo", "las-2d", "srtf", "easy", "philly", "slurm")


def cases() -> Iterator[Case]:
    yield "crowd", _crowd
    for seed in range(10):
        yield f"figures {seed}", partial(_figures, seed)
        yield f"delays {seed}", partial(_delays, seed)
        yield f"comparison {seed}", partial(_compared, seed)
        yield f"table {seed}", partial(_of_table, seed)
    yield "page", _page
    for number, (failures, retry) in enumerate(product(FAILURES, RETRIES)):
        yield f"{failures} {retry}", partial(_retried, failures, retry, number)
    for failures in FAILURES:
        for seed in range(3):
            yield f"drawn {failures} {seed}", partial(_drawn, failures, seed)


def _days(seed: int, n: int = 120) -> JobTable:
    """Jobs of some days: with recorded times, endings, attempts, and gaps in all of them."""
    rng = np.random.default_rng([seed, 17])
    table = full_world(seed).table
    rows = np.sort(rng.integers(0, len(table), n))
    table = table.take(rows)
    submit_s = np.sort(rng.integers(0, 4 * 24, n)) * HOUR_S
    start_s = np.where(rng.random(n) < 0.8, submit_s + rng.integers(0, 40_000, n), np.nan)
    duration_s = rng.integers(1, 9, n) * HOUR_S * rng.choice([0.01, 1.0, 3.0], n)
    return replace(
        table,
        job_id=np.array([f"j{row}" for row in range(n)]),
        submit_s=submit_s,
        start_s=start_s,
        end_s=start_s + duration_s,
        duration_s=duration_s,
        walltime_s=duration_s * 2,
        ending=rng.choice([int(each) for each in TableEnding], n).astype(np.int8),
        attempts=None if seed % 2 else table.attempts,
        eligible_s=np.empty(0),
        dependency=np.empty(0, "U1"),
        gpus=rng.choice([1, 2, 4, 8], n),
        cpus=np.empty(0, np.int64),
        mem_mib=np.empty(0, np.int64),
        nodes=np.empty(0, np.int64),
        began_s=(NOW, 0.0)[seed % 3 == 0],
    )


def _cluster(seed: int) -> Cluster:
    return Cluster.parse(("4x8/2", "8x4", "2x8+4x4", "1x8")[seed % 4])


def _figures(seed: int) -> object:
    table, cluster, policy = _days(seed), _cluster(seed), POLICIES[seed % len(POLICIES)]
    cost = RestartCost(((2, 60.0),), 600.0)
    result = simulate(table, cluster, policy, ("count", "first-fit", "ladder")[seed % 3], spans=True, cost=cost)
    assert result.spans is not None
    causes = None
    if table.attempts is not None:
        causes = [
            ("", "oom", "net")[number % 3] for number in range(int(np.maximum(np.diff(table.attempts.first), 1).sum()))
        ]
    found = summary(table, result, causes)
    error, edges = replay_error(table, result), np.linspace(0.0, 5e5, 7)
    told = error and (error.to_json(), error.cells(), error.says, error.closeness)
    use = occupancy(result.spans, cluster, float(table.submit_s[-1])) if result.placement != "count" else None
    nodes = use and (use.mean_gpus(), use.mean_nodes(), use.free_nodes_while(0.3, 0.9))
    drawn = waits_by_size(table, result), crowded_jobs(table, result), unit_of(float(result.end_s.max()))
    return found.to_json(), found.details(), told, nodes, drawn, use_over_time(table, result, edges), groupings(table)


def _crowd() -> object:
    """Which jobs a picture shows of many."""
    table = _days(4, n=700)
    return crowded_jobs(table, simulate(table, Cluster.parse("2x8"), "sjf"))


def _delays(seed: int) -> object:
    table, cluster = _days(seed), _cluster(seed)
    quotas = quotas_by_demand(table, cluster.total_gpus)
    name = ("philly", "philly:1.5", "fifo")[seed % 3]
    result = simulate(table, cluster, name, "spread-ladder:600", options=PolicyOptions(quotas=quotas), spans=True)
    return quotas, delays(table, result, quotas, whole_gang=seed % 2 == 1)


def _compared(seed: int) -> object:
    """A sweep over policies, retries and seeds on two traces: all figures, and every sentence."""
    found = _comparison(seed)
    means = [(each.case, each) for each in over_seeds(found.runs)]
    return found.to_json(timed=False), found.about(), found.remarks(), found.nearest(), _sentences(found), means


def _comparison(seed: int) -> PolicyComparison:
    tables, cluster = [_days(seed), _days(seed + 1)][: 1 + seed % 2], _cluster(seed)
    load = (None, 0.8, None, 1.4)[seed % 4]
    if seed % 4 == 2:  # its record is nearest to what a policy that foreknows makes of it
        found = simulate(tables[0], cluster, "srtf")
        tables[0] = replace(tables[0], start_s=found.start_s, end_s=found.end_s)
    if load is not None:
        tables = [at_load(table, cluster, load) for table in tables]
    policies = [POLICIES[seed % len(POLICIES)], POLICIES[(seed + 2) % len(POLICIES)], "fjf"][: 2 + seed % 2]
    cost = RestartCost((), 300.0) if seed % 2 else FREE
    setting = Setting(cluster, ("count", "best-fit")[seed % 2], failures=FAILURES[seed % len(FAILURES)], cost=cost)
    each = wanted(len(tables), policies, ("recorded", "always:2") if seed % 3 else ("recorded",), seeds=2)
    check_names(setting, each)
    runs = [replace(run, sim_seconds=0.0) for run in sweep(tables, setting, each)]
    names = [f"trace-{place}.csv" for place in range(len(tables))]
    return PolicyComparison.of(names, tables, runs, setting, "as given", load, was=as_it_was(tables, cluster))


def _sentences(found: PolicyComparison) -> object:
    return {place: (each.sentences(), each.to_json()) for place, each in found.verdicts.items()}


def _page() -> object:
    """Pages without pictures, which take seconds to draw."""
    told = []
    for found in map(_comparison, (1, 2, 4)):
        nearest, sections = found.nearest(), []
        for place, trace in enumerate(found.traces):
            runs = [run for run in found.runs if run.case.trace == place and run.error is not None]
            errors = tuple((run.case.policy, *run.error.cells()) for run in runs if run.error is not None)
            sections.append(_section(trace, found.verdicts.get(place), nearest.get(place), errors, [], {}, {}))
        told.append(page_of(found, sections))
    return told


def _of_table(seed: int) -> object:
    """What is said of a trace before it is replayed: its window, a part of it, and the jobs that fit."""
    table, cluster = _days(seed), _cluster(seed)
    rest, samples = split_by_time(table, 0.1 + seed / 20, "--gittins-split")
    narrow = Cluster.parse("1x4")
    left = fitting(Trace(table, "any"), "trace", narrow, skip_bad=True)
    window = window_of(table, cluster.total_gpus)
    says = window and (window.says, window.to_json())
    return too_short(table), says, len(rest), samples, left.left_out, left.notes, left.table.job_id


def _retried(failures: str, retry: str, number: int) -> object:
    """All that a retry policy does to a trace, with faults of nodes where there are nodes."""
    table, seed = _days(number % 7, n=60), number % 5
    found = model_named(failures)(table, seed)
    placement = ("count", "first-fit")[number % 2]
    decided = retry_named(retry)(found, seed)
    result = simulate(
        found.table, Cluster.parse("4x8"), "fifo", placement, decided, seed, faults=found.node_faults(seed)
    )
    run = Run(wanted(1, ["fifo"])[0], summary(found.table, result, found.causes.tolist()), 0.0)
    return run.to_json(timed=False), run.metrics.wasted_gpu_h_by_cause, result


def _drawn(failures: str, seed: int) -> object:
    """What a failure model draws: attempts, what each is, and what they leave on nodes."""
    found = model_named(failures)(_days(seed), seed)
    tries = found.table.attempts
    assert tries is not None
    classifier = TraceClassifier(found, seed, 0.8, 0.3)
    runs = [
        FailedRun(seed, n % 3 + 1, n, 0.0, 9.0, (0,), 0, frozenset(), 4) for n in np.flatnonzero(~tries.passed).tolist()
    ]
    return (
        [classifier.verdict(run) for run in runs],
        found.gpu_time(),
        found.nature,
        found.causes,
        found.node_faults(seed),
        tries,
        found.table.duration_s,
    )
