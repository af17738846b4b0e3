"""Policies in rounds side by side as a page for people: figures, who had which GPUs over time, and how fair it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.errors import InputError
from perdure.simulation.charts import DARK, LIGHT, MAX_RUNS, Theme, as_png, draw_rho, percent, unit_of
from perdure.simulation.elastic import ElasticResult
from perdure.simulation.elastic_metrics import ElasticMetrics, rho
from perdure.simulation.metrics import HOUR_S
from perdure.simulation.report import FIGURES, PAGE, TITLES, Picture, Section, packed, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALLOCATION_RUNS = 4  # that one picture shows below each other
ALLOCATION = (
    "GPUs given, over time",
    "Share of all GPUs that jobs were given, by types; two jobs on the same GPUs count once. Of the first policies.",
)
_COLUMNS = (
    "policy", "jobs", "JCT mean", "p50", "p99", "longest", "makespan", "GPU hours", "used", "restarting", "restarts",
    "largest rho", "alike", "envy", "passed", "rounds",
)  # fmt: skip
_APP_COLUMNS = "apps", "app JCT mean", "app p99", "jobs stopped"
_LEGEND = (
    "Times in hours. JCT: a job's end minus its submit. Used: share of GPU time that was allocated, over the "
    "makespan. Restarting: GPU hours of restarts; restarts: of a job, in the mean. Rho: a job's JCT over the one "
    "that it would have alone on its share of the cluster; above 1 is worse. Alike: Jain's index of the inverse of "
    "rho; 1 where all fare alike. Envy: which part of its speed a job misses, in the mean, against the best share "
    "that another had which was there at the same time."
)


def write_elastic_report(
    folder: Path, results: Sequence[ElasticResult], told: Mapping[str, Any], says: Sequence[str] = ()
) -> Path:
    """Write the page, its light pictures and the figures into a folder, which is made if need be; returns the page.

    `told` is the answer as JSON, `says` as of `elastic_page`. Raises `InputError` where the folder cannot be written,
    and `MissingExtra` without Matplotlib.
    """
    light, dark = (draw_elastic(results, theme) for theme in (LIGHT, DARK))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, png in light.items():
            (folder / f"{name}.png").write_bytes(png)
        (folder / PAGE).write_text(elastic_page(results, light, dark, says), "utf-8")
        (folder / FIGURES).write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    except OSError as err:
        what = f"cannot be written ({err.strerror})"
        raise InputError(str(folder), what, "Name a folder that you may write") from err
    return folder / PAGE


def draw_elastic(results: Sequence[ElasticResult], theme: Theme) -> dict[str, bytes]:
    """Each picture as PNG, by its name. Raises `MissingExtra` without Matplotlib."""
    drawn = {"allocation": partial(_allocation, results[:ALLOCATION_RUNS], theme)}
    return as_png({**drawn, "rho": partial(_rho, results[:MAX_RUNS], theme)}, theme)


def _allocation(results: Sequence[ElasticResult], theme: Theme, figure: Figure) -> None:
    panels = figure.subplots(len(results), 1, sharex=True, squeeze=False)[:, 0]
    unit_s, unit = unit_of(max(float(each.end_s.max()) for each in results))
    for axes, result in zip(panels, results, strict=True):
        at_s = np.array([*(since_s for since_s, _ in result.use), float(result.end_s.max())])
        given = np.array([*(gpus for _, gpus in result.use), result.use[-1][1]], float) / result.total_gpus
        names = [kind.name for kind in result.types]
        axes.stackplot(at_s / unit_s, *given.T, step="post", labels=names, colors=theme.runs, linewidth=0)
        axes.set(title=result.policy, ylim=(0, 1.02))
        percent(axes.yaxis)
    panels[-1].set(xlabel=f"{unit} since the trace began")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(results[0].types))


def _rho(results: Sequence[ElasticResult], theme: Theme, figure: Figure) -> None:
    draw_rho(figure.subplots(), [(each.policy, rho(each)) for each in results], theme)


def elastic_page(
    results: Sequence[ElasticResult], light: Mapping[str, bytes], dark: Mapping[str, bytes], says: Sequence[str] = ()
) -> str:
    """The page, of pictures as `draw_elastic` gives them; `says` are sentences on what is assumed."""
    names, first = ", ".join(each.policy for each in results), results[0]
    words = {"allocation": ALLOCATION, "rho": TITLES["rho"]}
    pictures = tuple(
        Picture(title, says, f"{title}: {names}", packed(light[name]), packed(dark[name]))
        for name, (title, says) in words.items()
    )
    found, apps = [ElasticMetrics.of(each) for each in results], bool(first.searches)
    cluster = " + ".join(f"{kind.nodes}x{kind.gpus_per_node}:{kind.name}" for kind in first.types)
    drawn = min(len(results), MAX_RUNS)
    return render(
        names=names,
        facts={"cluster": cluster, "jobs": len(first.submit_s)},
        told=tuple(says),
        columns=_COLUMNS + (_APP_COLUMNS if apps else ()),
        rows=[_row(each) + (_app_cells(each) if apps else []) for each in found],
        legend=_LEGEND,
        sections=[Section("Pictures", (), (), (), drawn, len(results) - drawn, pictures)],
    )


def _row(found: ElasticMetrics) -> list[str]:
    times = found.jct_mean_s, found.jct_p50_s, found.jct_p99_s, found.jct_max_s, found.makespan_s
    return [
        found.policy, str(found.jobs), *(f"{seconds / HOUR_S:.2f}" for seconds in times), f"{found.gpu_h:.1f}",
        f"{found.utilisation:.1%}", f"{found.restart_gpu_h:.1f}", f"{found.restarts:.2f}", f"{found.max_rho:.2f}",
        f"{found.jain:.3f}", f"{found.envy:.1%}", f"{found.success_rate:.1%}", str(found.rounds),
    ]  # fmt: skip


def _app_cells(found: ElasticMetrics) -> list[str]:
    """Of apps that search with several jobs, from the first submit to the last end; these are in `rho`, too."""
    mean_s, p99_s = found.app_jct_mean_s or 0.0, found.app_jct_p99_s or 0.0
    return [str(found.apps), f"{mean_s / HOUR_S:.2f}", f"{p99_s / HOUR_S:.2f}", str(found.stopped)]
