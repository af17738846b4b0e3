"""A comparison as a page for people, one HTML file that needs nothing else; its pictures; and all figures as files."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from importlib.resources import files
from pathlib import Path

from perdure.errors import InputError
from perdure.model.table import JobTable
from perdure.scheduling.policies import how_it_chooses
from perdure.simulation.by_day import MEASURES
from perdure.simulation.charts import DARK, LIGHT, MAX_RUNS, Shown, draw
from perdure.simulation.comparison import PolicyComparison
from perdure.simulation.figures_csv import write_csv
from perdure.simulation.metrics import HOUR_S
from perdure.simulation.sweep import Run, labels
from perdure.simulation.verdict import PolicyStanding, PolicyVerdict, length, share_of

PAGE = "index.html"
_MAX_GROUPS = 40  # virtual clusters, those with most jobs
FIGURES = "figures.json"
TITLES = {
    "changes": (
        "Who gains and who loses",
        "The change of the mean completion time under the best policy against the first, with its interval at 95%, of "
        "those that lose, and of the groups with most jobs. Orange: surely later; green: surely sooner, considering "
        "how many are looked at. More than +200% is drawn as that.",
    ),
    "completion": (
        "Completion times",
        "Waits and reruns included. First the share of the jobs that took no longer, under the first policy; beside "
        "it, how many times as long it takes until the same share has ended under the others.",
    ),
    "waits": ("Waits by size", "Mean time from submit to first start; nothing is drawn where no job has that size."),
    "use": ("GPUs in use over time", "Share of all GPUs that jobs held; below, how much more it is under the others."),
    "rho": (
        "How fair it was",
        "Rho is a job's completion time over the one that it would have alone on its share of the cluster. For each "
        "value, the share of the jobs whose rho was no larger: right of the line jobs fared worse than on their share.",
    ),
    "gantt": (
        "Who ran when",
        "One job a line, in the order of their submits: of the stretch of jobs that waited longest in the first run, "
        "those that held the most GPU time. Thin: from submit to end; thick: holding GPUs.",
    ),
    "recorded": (
        "Waits as recorded, and as simulated",
        "For each time, the share of the jobs that waited no longer. Where the curves of a policy that is meant to be "
        "the recorded one lie apart, the simulation does not describe this cluster.",
    ),
}  # fmt: skip
_COLUMNS = (
    "policy", "retry", "seed", "jobs", "JCT mean", "p50", "p90", "p95", "p99", "wait mean", "p50", "p90", "p95", "p99",
    "slow-down", "preempted", "makespan", "used", "window", "goodput", "wasted", "passed", "rho",
    "users alike", "clusters alike",
)  # fmt: skip

_LEGEND = (
    "Times in hours. JCT: a job's end minus its submit. Wait: its first start minus its submit. Used: share of GPU "
    "time that was allocated, over the makespan; window: from the end of the warm-up to the last submit. Goodput: "
    "share of the allocated GPU time that went to attempts that passed. Wasted: GPU hours of attempts that failed. "
    "Rho: the mean of each job's JCT over the one that it would have alone on its share of the cluster; above 1 is "
    "worse. Slow-down: the mean of each job's JCT over the time that it ran. Preempted: times that a job lost its "
    "GPUs to another. Alike: Jain's index of the inverse of rho over the users and the virtual clusters; 1 where "
    "all fare alike."
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture on the page; PNG in base64, for light and dark pages."""

    title: str
    says: str
    alt: str
    light: str
    dark: str


@dataclass(frozen=True, slots=True)
class Section:
    """What is said of one trace, and its pictures."""

    title: str
    says: tuple[str, ...]
    standings: tuple[tuple[str, ...], ...]
    errors: tuple[tuple[str, ...], ...]  # each replay against the record
    shown: int
    left_out: int
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The page, and its pictures by name: PNG for light pages and for dark ones."""

    page: str
    light: Mapping[str, bytes]
    dark: Mapping[str, bytes]


def write_report(folder: Path, found: PolicyComparison) -> Path:
    """Write the page, its light pictures and the figures into a folder, which is made if need be; returns the page.

    Raises `InputError` where the folder cannot be written, and what `make_report` raises.
    """
    report = make_report(found)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, png in report.light.items():
            (folder / f"{name}.png").write_bytes(png)
        (folder / PAGE).write_text(report.page, "utf-8")
        told = {"schema": "perdure.whatif/1", **found.to_json(timed=False)}
        (folder / FIGURES).write_text(json.dumps(told, indent=1) + "\n", "utf-8")
        write_csv(folder / "figures.csv", found)
    except OSError as err:
        what = f"cannot be written ({err.strerror})"
        raise InputError(str(folder), what, "Name a folder that you may write") from err
    return folder / PAGE


def make_report(found: PolicyComparison) -> Report:
    """The page and its pictures.

    Pictures show the first seed of the runs that were kept. Raises `MissingExtra` without Matplotlib.
    """
    sections: list[Section] = []
    lights: dict[str, bytes] = {}
    darks: dict[str, bytes] = {}
    nearest = found.nearest()
    for place, trace in enumerate(found.traces):
        runs = [run for run in found.runs if run.case.trace == place and run.case.seed == 0]
        shown, verdict = _shown(found.tables[place], runs), found.verdicts.get(place)
        best = None if verdict is None else verdict.best
        light, dark = (draw(shown[:MAX_RUNS], theme, best) for theme in (LIGHT, DARK))
        names = labels([run.case for run in runs])
        errors = tuple(
            (name, *run.error.cells()) for name, run in zip(names, runs, strict=True) if run.error is not None
        )
        sections.append(_section(trace, verdict, nearest.get(place), errors, shown, light, dark))
        suffix = f"-{place + 1}" if len(found.traces) > 1 else ""
        lights |= {f"{name}{suffix}": png for name, png in light.items()}
        darks |= {f"{name}{suffix}": png for name, png in dark.items()}
    return Report(_page(found, sections), lights, darks)


def _shown(table: JobTable, runs: Sequence[Run]) -> list[Shown]:
    return [
        Shown(name, table, run.result)
        for name, run in zip(labels([run.case for run in runs]), runs, strict=True)
        if run.result
    ]


def _section(
    trace: str,
    verdict: PolicyVerdict | None,
    nearest: str | None,
    errors: tuple[tuple[str, ...], ...],
    shown: Sequence[Shown],
    light: Mapping[str, bytes],
    dark: Mapping[str, bytes],
) -> Section:
    drawn = shown[:MAX_RUNS]
    of = ", ".join(run.label for run in drawn)
    pictures = tuple(
        Picture(title, says, f"{title}: {of}", packed(light[name]), packed(dark[name]))
        for name, (title, says) in TITLES.items()
        if name in light
    )
    says = (*(() if verdict is None else verdict.sentences()), *([nearest] if nearest else ()))
    standings = () if verdict is None else tuple(_standing(each) for each in verdict.standings)
    return Section(trace, says, standings, errors, len(drawn), len(shown) - len(drawn), pictures)


def _standing(each: PolicyStanding) -> tuple[str, ...]:
    """A policy against the first, by all jobs."""
    of = each.against_first[(None, "")]
    changes = (share_of(of[name]) if of[name].change else "" for name in MEASURES)
    return each.label, length(each.jct.mean), *changes, each.mark


def _page(found: PolicyComparison, sections: Sequence[Section]) -> str:
    runs, traces = found.runs, found.traces
    first = [run for run in runs if run.case.trace == 0 and run.case.seed == 0]
    several = len(traces) > 1
    return render(
        names=", ".join(dict.fromkeys(run.case.policy for run in runs)),
        facts={**_in_words(runs), **found.facts, **_of_slurm(found), **_made_by(found)},
        about=found.about(),
        told=found.remarks(),
        columns=("trace", *_COLUMNS) if several else _COLUMNS,
        rows=[[traces[run.case.trace], *_row(run)] if several else list(_row(run)) for run in (*found.was, *runs)],
        labels=labels([run.case for run in first]),
        of=f", of {traces[0]}" if several else "",
        causes=_causes(first),
        groups=_groups(first),
        sections=sections,
        legend=_LEGEND,
    )


def render(
    *,
    names: str,
    facts: Mapping[str, object],
    told: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    legend: str,
    sections: Sequence[Section],
    about: Sequence[str] = (),
    labels: Sequence[str] = (),
    of: str = "",
    causes: Sequence[tuple[str, list[float]]] = (),
    groups: Sequence[tuple[str, int, list[float]]] = (),
) -> str:
    """The page: which jobs it is about, its figures with a legend, tables of causes and groups, and pictures."""
    from jinja2 import Environment, StrictUndefined

    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        files("perdure.simulation").joinpath("report.html").read_text("utf-8")
    )
    return template.render(
        names=names,
        facts=facts,
        about=about,
        told=told,
        columns=columns,
        rows=rows,
        legend=legend,
        sections=sections,
        labels=labels,
        of=of,
        causes=causes,
        groups=groups,
        light=LIGHT,
        dark=DARK,
    )


def _in_words(runs: Sequence[Run]) -> dict[str, str]:
    """How each policy chooses, as far as it is known."""
    return {run.case.policy: words for run in runs if (words := how_it_chooses(run.case.policy))}


def _made_by(found: PolicyComparison) -> dict[str, str]:
    return {} if found.manifest is None else {"made by": found.manifest.command}


def _of_slurm(found: PolicyComparison) -> dict[str, str]:
    """What of slurm.conf the comparison leaves out of account."""
    told = {"not_modelled": "slurm.conf, not modelled", "ignored": "slurm.conf, ignored"}
    return {told[name]: ", ".join(keys) or "nothing" for name, keys in (found.slurm_conf or {}).items()}


def _row(run: Run) -> Iterator[str]:
    found, case = run.metrics, run.case
    yield from (case.policy, case.retry, str(case.seed), str(found.jobs))
    for spread in (found.jct_s, found.wait_s):
        yield from (f"{seconds / HOUR_S:.2f}" for seconds in astuple(spread))
    yield from (f"{found.slowdown.mean:.1f}", str(found.preemptions), f"{found.makespan_s / HOUR_S:.1f}")
    yield from (f"{found.utilisation:.1%}", f"{found.used_in_window:.1%}", f"{found.goodput:.1%}")
    yield from (f"{found.wasted_gpu_h:.1f}", f"{found.success_rate:.2%}")
    yield from (f"{found.rho.mean:.2f}", f"{found.jain_users:.2f}", f"{found.jain_groups:.2f}")


def _causes(runs: Sequence[Run]) -> list[tuple[str, list[float]]]:
    """GPU hours wasted by each cause in each run, the dearest of the first run first."""
    names = dict.fromkeys(name for run in runs for name in run.metrics.wasted_gpu_h_by_cause)
    return [(name, [run.metrics.wasted_gpu_h_by_cause.get(name, 0.0) for run in runs]) for name in names]


def _groups(runs: Sequence[Run]) -> list[tuple[str, int, list[float]]]:
    """Each virtual cluster, its jobs, and their mean wait in hours in each run; the one with most jobs first."""
    if len(runs[0].metrics.groups) < 2:
        return []
    most = sorted(runs[0].metrics.groups.items(), key=lambda each: -each[1].jobs)[:_MAX_GROUPS]
    return [(name, group.jobs, [run.metrics.groups[name].wait_s.mean / HOUR_S for run in runs]) for name, group in most]


def packed(png: bytes) -> str:
    """A picture as it stands in a page."""
    return b64encode(png).decode("ascii")
