"""A comparison of policies that plan with profiles, in the process that simulates."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from math import ceil
from pathlib import Path

import numpy as np

from perdure.errors import InputError, MissingExtra
from perdure.model.cluster import Cluster
from perdure.scheduling.elastic_policies import elastic_named
from perdure.service.whatif.comparison import TRACE, ComparisonRequest, Figures, Progress, Spread, Summary
from perdure.service.whatif.comparison_store import REPORT, RESULT, SUMMARY
from perdure.simulation.charts import DARK, LIGHT
from perdure.simulation.elastic import ElasticResult
from perdure.simulation.elastic_input import elastic_retry, read_elastic
from perdure.simulation.elastic_metrics import ElasticMetrics
from perdure.simulation.elastic_report import draw_elastic, elastic_page
from perdure.simulation.metrics import HOUR_S
from perdure.throughput.speed import Floats

_NOTE = "GPU time that restarts took counts as wasted, and lowers goodput"


def compare_planned(order: ComparisonRequest, cluster: Cluster, tell: Callable[[Progress], None]) -> None:
    """Replay the jobs under each policy, and write the answers into the working directory. Raises `PerdureError`."""
    ask = order.ask
    if order.profiles is None:
        raise InputError("whatif.profiles", "it names no folder", "Set it, or use perdure whatif elastic")
    tell(Progress(phase="reading"))
    given = read_elastic(TRACE, Path(order.profiles), cluster)
    replays = [given.prepared(elastic_named(name), elastic_retry(ask.retries[0])) for name in ask.policies]
    results = list[ElasticResult]()
    for each in replays:
        tell(Progress(phase="simulating", done=len(results), of=len(replays)))
        results.append(each.run())
    tell(Progress(phase="drawing", done=len(results), of=len(results)))
    found = [ElasticMetrics.of(each) for each in results]
    notes = [*chain.from_iterable(each.cut_short() for each in found), *given.assumed(ask.policies)]
    pictures, missing = _draw(results, notes)
    summary = Summary(
        jobs=len(given.jobs),
        gpus=cluster.total_gpus,
        format="jobs that name an application",
        left_out={},
        notes=[*notes, _NOTE],
        compared=_compared(results, ask.retries[0]),
        says=[_sentence(each) for each in found],
        pictures=pictures,
        missing=missing,
    )
    Path(SUMMARY).write_text(summary.model_dump_json(), "utf-8")
    told = {"schema": "perdure.whatif-elastic/1", "runs": [each.to_json() for each in found], "notes": summary.notes}
    Path(RESULT).write_text(json.dumps(told, allow_nan=False), "utf-8")


def _draw(results: Sequence[ElasticResult], says: Sequence[str]) -> tuple[list[str], str]:
    """Write the pictures and the report; the names of the pictures, or why there are none."""
    try:
        light, dark = (draw_elastic(results, theme) for theme in (LIGHT, DARK))
        page = elastic_page(results, light, dark, says)
    except MissingExtra as err:
        return [], f"{err.what}. {err.fix}"
    for theme, drawn in (("light", light), ("dark", dark)):
        for name, png in drawn.items():
            Path(f"{name}-{theme}.png").write_bytes(png)
    Path(REPORT).write_text(page, "utf-8")
    return list(light), ""


def _sentence(found: ElasticMetrics) -> str:
    mean_h = (found.app_jct_mean_s or 0.0) / HOUR_S
    apps = "" if found.apps is None else f", {found.apps} apps in {mean_h:.1f} h in the mean"
    return (
        f"{found.policy}: largest rho {found.max_rho:.2f}, Jain's index {found.jain:.2f}, envy {found.envy:.0%}, "
        f"{found.gpu_h:.0f} GPU-hours, {found.restarts:.1f} restarts of a job{apps}."
    )


def _compared(results: Sequence[ElasticResult], retry: str) -> list[Figures]:
    """The figures of each policy, next to those of the first."""
    found = [_figures(each, retry) for each in results]
    first = found[0]
    return [first] + [
        each.model_copy(
            update={
                "jct_change": each.jct_s.mean / first.jct_s.mean - 1 if first.jct_s.mean else None,
                "wait_change": each.wait_s.mean / first.wait_s.mean - 1 if first.wait_s.mean else None,
            }
        )
        for each in found[1:]
    ]


def _figures(result: ElasticResult, retry: str) -> Figures:
    metrics, jct_s = ElasticMetrics.of(result), _spread(result.jct_s)
    began_s = np.where(np.isnan(result.start_s), result.end_s, result.start_s)  # stopped before it ever ran
    lost = metrics.restart_gpu_h / metrics.gpu_h if metrics.gpu_h else 0.0
    return Figures(
        policy=result.policy,
        retry=retry,
        finished=metrics.jobs,
        jct_s=jct_s,
        jct_low=jct_s.mean,
        jct_high=jct_s.mean,
        jct_change=None,
        wait_s=_spread(began_s - result.submit_s),
        wait_change=None,
        makespan_s=metrics.makespan_s,
        utilisation=metrics.utilisation,
        goodput=1.0 - lost,
        wasted_gpu_h=metrics.restart_gpu_h,
        success_rate=metrics.success_rate,
    )


def _spread(seconds: Floats) -> Spread:
    ordered = np.sort(seconds)
    p50, p90, p95, p99 = (float(ordered[ceil(p * len(ordered) / 100) - 1]) for p in (50, 90, 95, 99))
    return Spread(mean=float(ordered.mean()), p50=p50, p90=p90, p95=p95, p99=p99)
