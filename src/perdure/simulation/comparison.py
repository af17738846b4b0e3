"""Everything that a comparison of policies found: what tables, pages and files show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.model.table import JobTable
from perdure.simulation.foresight import foresight, gpus_alone
from perdure.simulation.manifest import Manifest
from perdure.simulation.restart_cost import FREE
from perdure.simulation.steady import too_short
from perdure.simulation.sweep import Run, Setting, foreknows, verdicts
from perdure.simulation.verdict import PolicyVerdict, length


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """The runs of a sweep, and what is said of them."""

    traces: Sequence[str]  # as a reader knows them
    tables: Sequence[JobTable]
    runs: Sequence[Run]
    was: Sequence[Run] = ()  # the recorded schedules
    facts: Mapping[str, str] = field(default_factory=dict)  # what all runs share
    foresight: Sequence[str] = ()
    warnings: Sequence[str] = ()
    slurm_conf: Mapping[str, Sequence[str]] | None = None  # keys of the file that are left out of account
    manifest: Manifest | None = None
    verdicts: Mapping[int, PolicyVerdict] = field(init=False)  # by the place of the trace; none of a policy alone

    @classmethod
    def of(
        cls,
        traces: Sequence[str],
        tables: Sequence[JobTable],
        runs: Sequence[Run],
        setting: Setting,
        cluster: str,
        load: float | None,
        **further: Any,
    ) -> PolicyComparison:
        """The runs of a sweep, with what a reader should know of its setting, `cluster` and `load` as they were given.

        `further` are fields that only some comparisons have.
        """
        policies = list(dict.fromkeys(run.case.policy for run in runs))
        known = foresight(tables, policies, setting.options)
        short = [(Path(trace).name, too_short(table)) for trace, table in zip(traces, tables, strict=True)]
        warnings = [f"{name}: {what}" if len(traces) > 1 else what for name, what in short if what is not None]
        warnings += gpus_alone(setting.cluster, policies) + [setting.learned] * bool(setting.learned)
        return cls(
            traces, tables, runs, facts=_facts(setting, cluster, load), foresight=known, warnings=warnings, **further
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdicts", verdicts(self.runs))

    def trace_of(self, place: int) -> dict[str, str]:
        """Names the trace where there are several."""
        return {"trace": self.traces[place]} if len(self.traces) > 1 else {}

    def about(self) -> list[str]:
        """Which jobs were replayed: each trace with its jobs, and when they came."""
        dated = self.facts.get("load", "as recorded") == "as recorded"
        return [
            f"{Path(trace).name}: {len(table):,} jobs, submitted {_when(table, dated=dated)}"
            for trace, table in zip(self.traces, self.tables, strict=True)
        ]

    def nearest(self) -> dict[int, str]:
        """Of each trace that records starts, which replay is most like it, and how far that is to be believed.

        Of several seeds the first; a bound only where there is nothing else.
        """
        found: dict[int, str] = {}
        for place in range(len(self.traces)):
            runs = [(run.error, run) for run in self.runs if run.case.trace == place and run.case.seed == 0]
            known = [(error, run.case) for error, run in runs if error is not None]
            if known:
                error, case = max(known, key=lambda each: (not foreknows(each[1]), each[0].closeness))
                found[place] = f"{case.policy} is nearest to what was recorded. {error.says}"
        return found

    def remarks(self) -> list[str]:
        """Sentences that a reader of the figures should know."""
        windows = {run.case.trace: run.metrics.window for run in self.runs if run.metrics.window is not None}
        of = {place: f"{trace}: " if len(self.traces) > 1 else "" for place, trace in enumerate(self.traces)}
        told = [f"{of[place]}{window.says}" for place, window in windows.items()]
        told += [
            f"{of[run.case.trace]}As it was, jobs held {run.metrics.used_in_window:.0%} of the GPUs given: the cluster "
            "was larger, or jobs shared GPUs. Waits of another cluster do not compare."
            for run in self.was
            if run.metrics.used_in_window > 1
        ]
        told += [f"{what}." for what in (*self.warnings, *self.foresight)]
        if lost := [run for run in self.runs if run.metrics.restart_gpu_h]:
            most = max(lost, key=lambda run: run.metrics.restart_gpu_h)
            times = max(run.metrics.most_preempted for run in lost)
            took = f"up to {most.metrics.restart_gpu_h:.1f} GPU h ({most.case.policy})"
            told.append(f"Restarts took {took}; one job was preempted {times} time{'s' * (times != 1)}.")
        return told

    def to_json(self, *, timed: bool) -> dict[str, Any]:
        """All figures. `timed`: with how long each simulation took, which no two times is the same.

        `details` are the further figures of each run, and `replay_error` how far each is from its trace, in the order
        of the runs.
        """

        def told(runs: Sequence[Run]) -> list[dict[str, Any]]:
            return [self.trace_of(run.case.trace) | run.to_json(timed=timed) for run in runs]

        further: dict[str, Any] = {}
        if self.verdicts:
            of = self.verdicts.items()
            further["comparison"] = [self.trace_of(place) | verdict.to_json() for place, verdict in of]
        if self.was:
            further["as_it_was"] = told(self.was)
            further["replay_error"] = [run.error.to_json() if run.error else None for run in self.runs]
        if self.foresight:
            further["foresight"] = list(self.foresight)
        if self.warnings:
            further["warnings"] = list(self.warnings)
        if self.slurm_conf is not None:
            further["slurm_conf"] = self.slurm_conf
        if self.manifest is not None:
            further["manifest"] = self.manifest.to_json()
        return {"runs": told(self.runs), "details": [run.details() for run in self.runs], **further}


def _when(table: JobTable, *, dated: bool) -> str:
    """The days of the first and the last submit in UTC, where they are known; else how far these lie apart."""
    first_s, last_s = (float(table.submit_s[place]) for place in (0, -1)) if len(table) else (0.0, 0.0)
    if not table.began_s or not dated:
        return f"within {length(last_s - first_s)}"
    first, last = (datetime.fromtimestamp(table.began_s + at, UTC) for at in (first_s, last_s))
    return f"from {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _facts(setting: Setting, cluster: str, load: float | None) -> dict[str, str]:
    """What all runs share, as a report says it."""
    return {
        "cluster": cluster,
        "placement": setting.placement,
        "failures": setting.failures,
        "load": "as recorded" if load is None else f"{load:g}",
        "a preemption costs": f"{setting.cost} s" if setting.cost != FREE else "nothing",
    }
