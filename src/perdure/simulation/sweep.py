"""Many simulations: each trace under each policy, retry policy and seed, run by an executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.registry import COUNT, placement_named
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.scheduling.protocol import Policy
from perdure.simulation.by_day import DayTotals, day_totals
from perdure.simulation.failures import RECORDED, model_named
from perdure.simulation.foresight import knows_running_times
from perdure.simulation.groups import groupings
from perdure.simulation.metrics import Metrics, summary
from perdure.simulation.policy_file import blaming, is_policy_file, policy_in_file
from perdure.simulation.recorded import AS_IT_WAS, as_recorded
from perdure.simulation.replay_error import ReplayError, replay_error
from perdure.simulation.restart_cost import FREE, RestartCost
from perdure.simulation.result import Result
from perdure.simulation.retries import retry_named
from perdure.simulation.simulate import simulate
from perdure.simulation.use import attempts_held, day_edges, held_gpu_s
from perdure.simulation.verdict import PolicyVerdict, judge


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of a sweep share. Names are those of the registries."""

    cluster: Cluster
    placement: str = COUNT
    options: PolicyOptions = field(default_factory=PolicyOptions)
    failures: str = RECORDED
    keep: bool = False  # the whole schedule, not only its figures
    spans: bool = False  # ask for `Result.spans`
    cost: RestartCost = FREE  # of a preemption
    repeats: int = 1  # runs of each policy
    policies: tuple[str, ...] = ()  # all that are compared, but those from a file
    learned: str = ""  # a sentence on what a policy learned from, and which jobs are left


@dataclass(frozen=True, slots=True)
class SweepCase:
    """One run: which of the tables, and under what; policy and retry as the user named them."""

    trace: int
    policy: str
    retry: str = RECORDED
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a case."""

    case: SweepCase
    metrics: Metrics
    sim_seconds: float  # that the simulation alone took, without reading and figures
    result: Result | None = None  # where the setting says to keep it
    error: ReplayError | None = None  # against the starts of the trace, where it records some
    totals: DayTotals | None = None  # what days and groups of jobs got; not of a recorded schedule

    use_by_day: tuple[int, Sequence[float]] = (0, ())  # the first day, and the share of the GPUs in use on each

    def to_json(self, *, timed: bool = True) -> dict[str, Any]:
        case = self.case
        names = {"policy": case.policy, "retry": case.retry, "seed": case.seed}
        return {**names, **self.metrics.to_json(), **({"sim_seconds": self.sim_seconds} if timed else {})}

    def details(self) -> dict[str, Any]:
        """The figures that go further."""
        first, shares = self.use_by_day
        return {**self.metrics.details(), "use_by_day": [{"day": first + n, "used": x} for n, x in enumerate(shares)]}


def labels(found: Sequence[SweepCase]) -> list[str]:
    """A short name for each case: its policy, and its retry policy where they differ."""
    if len({case.retry for case in found}) == 1:
        return [case.policy for case in found]
    return [f"{case.policy}, {case.retry}" for case in found]


def verdicts(runs: Sequence[Run]) -> dict[int, PolicyVerdict]:
    """How the policies compare on each trace, by its place; nothing where there is one policy."""
    found: dict[int, dict[SweepCase, list[Run]]] = {}
    for run in runs:
        if run.totals is not None:
            found.setdefault(run.case.trace, {}).setdefault(replace(run.case, seed=0), []).append(run)
    return {trace: _verdict(of) for trace, of in found.items() if len(of) > 1}


def _verdict(found: Mapping[SweepCase, Sequence[Run]]) -> PolicyVerdict:
    totals = [[run.totals for run in of if run.totals is not None] for of in found.values()]
    passed = [fmean(run.metrics.success_rate for run in of) for of in found.values()]
    return judge(labels([*found]), totals, [place for place, case in enumerate(found) if foreknows(case)], passed)


def foreknows(case: SweepCase) -> bool:
    """Whether a policy, or a retry policy, knows what becomes of a job before it runs."""
    return knows_running_times(case.policy) or case.retry == "oracle"


def cases(
    traces: int, policies: Sequence[str], retries: Sequence[str] = (RECORDED,), seeds: int = 1
) -> list[SweepCase]:
    """Every combination, the seed changing fastest."""
    return [SweepCase(*each) for each in product(range(traces), policies, retries, range(seeds))]


def check_names(setting: Setting, wanted: Sequence[SweepCase]) -> None:
    """Look every name up before anything is run. Raises `ConfigError`."""
    placement_named(setting.placement)
    model_named(setting.failures)
    for retry in dict.fromkeys(case.retry for case in wanted):
        retry_named(retry)
    for policy in dict.fromkeys(case.policy for case in wanted):
        _policy(policy, setting.options)


def run_case(tables: Sequence[JobTable], setting: Setting, case: SweepCase) -> Run:
    """Simulate one case. Raises what `simulate` does; an error in a user's policy is a `ConfigError`."""
    failures = model_named(setting.failures)(tables[case.trace], case.seed)
    retry = retry_named(case.retry)(failures, case.seed)
    policy = _policy(case.policy, setting.options)
    with _blaming_user(case.policy):
        began = time.perf_counter()
        result = simulate(
            failures.table, setting.cluster, policy, setting.placement, retry, case.seed,
            spans=setting.spans, faults=failures.node_faults(case.seed), repeats=setting.repeats,
            cost=setting.cost, beside=setting.policies,
        )  # fmt: skip
        took = time.perf_counter() - began
    parted = groupings(failures.table)
    metrics = summary(failures.table, result, failures.causes.tolist(), parted)
    error = replay_error(tables[case.trace], result)
    totals = day_totals(failures.table, result, parted)
    use = _use_by_day(failures.table, result)
    return Run(case, metrics, took, result if setting.keep else None, error, totals, use)


def _use_by_day(table: JobTable, result: Result) -> tuple[int, list[float]]:
    if not len(table) or result.end_s.max() <= table.submit_s[0]:
        return 0, []
    first, edges = day_edges(table, float(result.end_s.max()))
    held = held_gpu_s(attempts_held(table.gpus, result), edges)
    return first, np.minimum(1.0, held / (result.total_gpus * np.diff(edges))).tolist()


def as_it_was(tables: Sequence[JobTable], cluster: Cluster) -> list[Run]:
    """The recorded schedule of each trace that has one, of the jobs whose start is recorded."""
    found = []
    for place, table in enumerate(tables):
        recorded = as_recorded(model_named(RECORDED)(table, 0).table, cluster.total_gpus)
        if recorded is not None:
            found.append(Run(SweepCase(place, AS_IT_WAS), summary(*recorded), 0.0))
    return found


Runs = Generator[tuple[int, Run], None, None]  # the place of a case, and its result


class SweepExecutor(Protocol):
    """Who runs the cases of a sweep: this process, several, or machines elsewhere."""

    def runs(self, tables: Sequence[JobTable], setting: Setting, wanted: Sequence[SweepCase]) -> Runs:
        """Run all cases, and report each as it is done, in any order.

        Raises what `run_case` raises, and `PerdureError` where the executor itself fails.
        """
        ...


class Serial:
    """This process, one case after another."""

    def runs(self, tables: Sequence[JobTable], setting: Setting, wanted: Sequence[SweepCase]) -> Runs:
        for place, case in enumerate(wanted):
            yield place, run_case(tables, setting, case)


def sweep(
    tables: Sequence[JobTable],
    setting: Setting,
    wanted: Sequence[SweepCase],
    executor: SweepExecutor | None = None,
    on_done: Callable[[int], None] = lambda done: None,  # noqa: ARG005
) -> list[Run]:
    """Run all cases by an executor, this process if none is given; the answers come in the order of the cases.

    `on_done` is told how many are done whenever one is. Raises what `SweepExecutor.runs` raises.
    """
    runs: dict[int, Run] = {}
    with closing((executor or Serial()).runs(tables, setting, wanted)) as found:
        for place, run in found:
            runs[place] = run
            on_done(len(runs))
    return [runs[place] for place in range(len(wanted))]


def at_load(table: JobTable, cluster: Cluster, load: float) -> JobTable:
    """The same jobs, submitted faster or slower, so that they ask for the share `load` of the GPU time there is.

    That is counted from the first submit to the last. Recorded starts and ends mean nothing then, and are dropped.
    Raises `InputError` for a load that is not above 0, and where all jobs come at once.
    """
    if not 0 < load < np.inf:
        raise InputError("--load", f"{load} is not a valid load", "Write a number above 0, such as 0.8")
    since_s = table.submit_s - table.submit_s[0] if len(table) else table.submit_s
    asked = float(table.gpus @ table.duration_s)
    if not len(table) or since_s[-1] <= 0 or not asked:
        raise InputError("--load", "the jobs of this trace all come at once, or ask for nothing", "Omit --load")
    span_s = asked / (cluster.total_gpus * load)
    submit_s = since_s * (span_s / since_s[-1])
    if (table.submit_s == np.rint(table.submit_s)).all():
        submit_s = np.rint(submit_s)
    unknown = np.full(len(table), np.nan)
    return replace(table, submit_s=table.submit_s[0] + submit_s, start_s=unknown, end_s=unknown)


def _policy(name: str, options: PolicyOptions) -> Policy:
    return policy_in_file(name) if is_policy_file(name) else policy_named(name, options)


def _blaming_user(policy: str) -> AbstractContextManager[None]:
    return blaming(Path(policy.partition(":")[0])) if is_policy_file(policy) else nullcontext()
