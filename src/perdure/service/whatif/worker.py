"""The process that simulates: one comparison, read from its standard input, answered by files where it stands.

It is nice to others, bounded in memory, time and what it writes, and ends when its standard input does: then the
service is gone.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.errors import MissingExtra, PerdureError
from perdure.model.cluster import Cluster
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.policies import PolicyOptions
from perdure.service.whatif.comparison import (
    HISTORY,
    ORDER,
    TRACE,
    ComparisonRequest,
    Figures,
    Progress,
    Spread,
    Summary,
    Trouble,
)
from perdure.service.whatif.comparison_store import MAX_BYTES, REPORT, RESULT, SUMMARY
from perdure.service.whatif.planned import compare_planned
from perdure.service.whatif.process import ProcessMessage
from perdure.service.whatif.question import check, needs_profiles
from perdure.service.whatif.settings import MIB
from perdure.simulation.charts import MAX_RUNS
from perdure.simulation.comparison import PolicyComparison
from perdure.simulation.fitting import fitting
from perdure.simulation.manifest import Manifest
from perdure.simulation.report import make_report
from perdure.simulation.seed_means import SeedMeans, over_seeds
from perdure.simulation.sweep import Run, Setting, at_load, cases, run_case
from perdure.traces.trace import Trace

_MAX_SPANS = 20_000  # jobs of a trace: of more, each stretch of running is not kept
_MAX_FILES = 256


def main() -> int:
    """Answer, or say why not; the exit code is 0 where there is an answer."""
    order = ORDER.decode(sys.stdin.buffer.readline())
    _be_modest(order)
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    try:
        compare(order, lambda progress: _say(ProcessMessage(progress=progress)))
    except PerdureError as err:
        _say(ProcessMessage(trouble=Trouble.of(err)))
        return 1
    except MemoryError:
        what = f"more memory was needed than {order.memory_bytes // MIB} MiB"
        fix = "Take a smaller trace or fewer policies, or let whatif.memory_mib be raised"
        _say(ProcessMessage(trouble=Trouble(where="memory", what=what, fix=fix)))
        return 1
    return 0


def compare(order: ComparisonRequest, tell: Callable[[Progress], None]) -> None:
    """Run every case and write the answers into the working directory. Raises `PerdureError`."""
    ask = order.ask
    cluster = check(ask)
    if needs_profiles(ask):
        compare_planned(order, cluster, tell)
        return
    tell(Progress(phase="reading"))
    found = _trace(order, cluster)
    table = found.table if ask.load is None else at_load(found.table, cluster, ask.load)
    wanted = cases(1, ask.policies, ask.retries, ask.seeds)
    options = PolicyOptions(queue_limits=order.queue_limits, limits=order.limits)
    setting = Setting(cluster, ask.placement, options, failures=ask.failures, cost=ask.cost)
    drawn = replace(setting, keep=True, spans=len(table) <= _MAX_SPANS)
    shown = [case for case in wanted if case.seed == 0][:MAX_RUNS]
    runs: list[Run] = []
    for case in wanted:
        tell(Progress(phase="simulating", done=len(runs), of=len(wanted)))
        runs.append(run_case([table], drawn if case in shown else setting, case))
    tell(Progress(phase="drawing", done=len(runs), of=len(wanted)))
    trace = "trace" if ask.upload else HISTORY
    inputs = [TRACE] if ask.upload else []
    manifest = Manifest.of({"traces": (str(TRACE),), **ask.options}, inputs, cluster)
    comparison = PolicyComparison.of([trace], [table], runs, setting, ask.cluster, ask.load, manifest=manifest)
    pictures, missing = _draw(comparison)
    _write(found, cluster, comparison, pictures, missing)


def _trace(order: ComparisonRequest, cluster: Cluster) -> Trace:
    ask = order.ask
    if ask.upload is not None:
        from perdure.traces.read import read

        found = read(TRACE, ask.format, skip_bad=ask.skip_bad, most_bytes=order.unpacked_bytes)
        return fitting(found, str(TRACE), cluster, ask.skip_bad, placement_named(ask.placement))
    from perdure.service.store.database import reading_engine
    from perdure.service.store.queries.history import history
    from perdure.service.store.queries.reader import Reader

    engine = reading_engine(order.database)
    try:
        found = history(Reader(engine, order.cluster))
    finally:
        engine.dispose()
    return fitting(found, HISTORY, cluster, True, placement_named(ask.placement))


def _draw(comparison: PolicyComparison) -> tuple[list[str], str]:
    """Write the pictures and the report; the names of the pictures, or why there are none."""
    try:
        report = make_report(comparison)
    except MissingExtra as err:
        return [], f"{err.what}. {err.fix}"
    for theme, drawn in (("light", report.light), ("dark", report.dark)):
        for name, png in drawn.items():
            Path(f"{name}-{theme}.png").write_bytes(png)
    Path(REPORT).write_text(report.page, "utf-8")
    return list(report.light), ""


def _write(found: Trace, cluster: Cluster, comparison: PolicyComparison, pictures: list[str], missing: str) -> None:
    runs, verdict = comparison.runs, comparison.verdicts.get(0)
    summary = Summary(
        jobs=len(found.table),
        gpus=cluster.total_gpus,
        format=found.format,
        left_out=dict(found.left_out),
        notes=list(found.notes),
        compared=compared(runs),
        says=[*(verdict.sentences() if verdict else ()), *comparison.remarks()],
        pictures=pictures,
        missing=missing,
    )
    Path(SUMMARY).write_text(summary.model_dump_json(), "utf-8")
    told = {
        **summary.model_dump(include={"jobs", "gpus", "format", "left_out", "notes", "says"}),
        "runs": [*map(_told, runs)],
        **({"manifest": comparison.manifest.to_json()} if comparison.manifest else {}),
    }
    Path(RESULT).write_text(json.dumps({"schema": "perdure.whatif/1", **told}, allow_nan=False), "utf-8")


def _told(run: Run) -> dict[str, Any]:
    """All figures of a run but those of each virtual cluster and user, of which there may be many."""
    further = run.metrics.details().items()
    return {**run.to_json(), **{name: said for name, said in further if name not in ("groups", "users")}}


def compared(runs: Sequence[Run]) -> list[Figures]:
    """The figures of each policy, its seeds taken together, next to those of the first."""
    found = [_figures(each) for each in over_seeds(runs)]
    first = found[0]
    return [first] + [
        each.model_copy(
            update={
                "jct_change": _change(each.jct_s.mean, first.jct_s.mean),
                "wait_change": _change(each.wait_s.mean, first.wait_s.mean),
            }
        )
        for each in found[1:]
    ]


def _figures(found: SeedMeans) -> Figures:
    low, high = found.jct_interval_s
    return Figures(
        policy=found.case.policy,
        retry=found.case.retry,
        finished=found.finished,
        jct_s=Spread(**found.jct_s.to_json()),
        jct_low=low,
        jct_high=high,
        jct_change=None,
        wait_s=Spread(**found.wait_s.to_json()),
        wait_change=None,
        makespan_s=found.makespan_s,
        utilisation=found.utilisation,
        goodput=found.goodput,
        wasted_gpu_h=found.wasted_gpu_h,
        success_rate=found.success_rate,
    )


def _change(value: float, first: float) -> float | None:
    """By which share `value` is more than `first`; None where there is nothing to compare it with."""
    return value / first - 1 if first > 0 else None


def _be_modest(order: ComparisonRequest) -> None:
    """Take no more than is given. What cannot be bounded on this system is left as it is."""
    os.nice(order.nice)
    seconds = int(order.time_limit_s) + 1
    bounds = {
        resource.RLIMIT_AS: order.memory_bytes,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: MAX_BYTES,
        resource.RLIMIT_NOFILE: _MAX_FILES,
        resource.RLIMIT_CORE: 0,
    }
    for what, most in bounds.items():
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(what, (bound, bound))
        except (ValueError, OSError):  # macOS knows bounds of memory by name alone
            continue


def _end_with_the_service() -> None:
    while os.read(sys.stdin.fileno(), 1):  # not through the buffer: its lock, held here, would be in the way at the end
        pass
    os._exit(2)


def _say(message: ProcessMessage) -> None:
    print(message.model_dump_json(exclude_none=True), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
