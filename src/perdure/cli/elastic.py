"""``perdure whatif elastic``: policies that choose GPU types, GPUs and batches, on jobs that name an application."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.progress import progress
from perdure.cli.simulated import cluster_named
from perdure.cli.table import word
from perdure.errors import ConfigError, InputError
from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs
from perdure.model.table import JobTable
from perdure.scheduling.elastic_policies import SHARING, elastic_named
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.simulation.elastic_metrics import ElasticMetrics
from perdure.simulation.failures import Failures
from perdure.simulation.retries import retry_named
from perdure.simulation.retry_hook import Retry
from perdure.throughput.application import Application, applications, rated_applications
from perdure.throughput.colocation import colocation
from perdure.throughput.traits import POLLUX, PUBLISHED, Traits
from perdure.traces.gavel import is_gavel, read_steps
from perdure.traces.profiles import (
    GPU_TYPES,
    PAIRS,
    RATES,
    has_rates,
    is_pollux,
    read_adaptive,
    read_pairs,
    read_profiles,
    read_rates,
)

_RETRIES = "Use one of: recorded, never, always:K"
FIGURES = (
    word("POLICY"), word("JOBS", leave=9), word("JCT"), word("P99", leave=2), word("MAKESPAN", leave=3),
    word("GPU H", leave=1), word("USED", leave=7), word("RESTARTS", leave=4), word("MAX RHO", leave=5),
    word("JAIN", leave=6), word("ENVY", leave=10), word("PASSED", leave=8),
)  # fmt: skip
APP_FIGURES = (word("POLICY"), word("APPS"), word("APP JCT"), word("APP P99"), word("STOPPED JOBS"))


def compare_elastic(
    trace: Path,
    profiles: Path,
    spec: str,
    policies: Sequence[str],
    retry: str,
    out: Path | None,
    as_json: bool,
    *,
    wide: bool,
) -> int:
    """Replay a trace under each policy, and print the figures."""
    chosen, again = [elastic_named(name) for name in policies], _retry_named(retry)
    with progress(what="reading"):
        cluster, jobs, known, traits = _profiled(trace, profiles, spec)
        if not cluster.counts_gpus_alone:
            raise InputError(f"--cluster {spec}", "CPUs and memory are not counted here", "Name GPUs alone")
        measured = read_pairs(profiles)
        pairs = None if measured is None else colocation(measured, known)
        whole = is_pollux(profiles)  # its simulator counts in seconds
    with progress(len(chosen) if len(chosen) > 1 else None, "replaying"), _silent():
        results = [
            replay_elastic(jobs, cluster, policy, known, traits, again, pairs=pairs, whole_seconds=whole)
            for policy in chosen
        ]
    found = [ElasticMetrics.of(each) for each in results]
    unpublished = sorted(set(known) - set(traits))
    in_turns = [name for name in policies if name in SHARING] if pairs is None else []
    told = {
        "runs": [each.to_json() for each in found],
        "assumed_restarts": unpublished,
        "assumed_turns": in_turns,
    }
    page = None if out is None else _reported(out, results, told)
    if as_json:
        print_json("whatif-elastic", 1, **told)
        return 0
    print_table(FIGURES, map(_figures, found), wide=wide)
    if any(each.apps is not None for each in found):
        print_table(APP_FIGURES, map(_app_figures, found), wide=wide)
    for each in found:
        if each.rounds_cut:
            far = "an unknown part" if each.worst_gap == np.inf else f"up to {each.worst_gap:.2%}"
            print_line(
                f"{each.policy}: in {each.rounds_cut} rounds the solver ran out of time, {far} from the best plan."
            )
    if in_turns:
        where = f"{profiles} has no *{PAIRS} of pairs"
        print_line(f"{', '.join(in_turns)}: {where}, so two jobs that share GPUs are taken to take turns.")
    if unpublished:
        print_line(f"A restart of {', '.join(unpublished)} is taken to last 30 s.")
    if page is not None:
        print_line(f"A page with pictures: {page}")
    return 0


def _reported(folder: Path, results: Sequence[ElasticResult], told: Mapping[str, Any]) -> Path:
    from perdure.simulation.elastic_report import write_elastic_report

    with progress(what="drawing"):
        return write_elastic_report(folder, results, {"schema": "perdure.whatif-elastic/1", **told})


def _profiled(
    trace: Path, profiles: Path, spec: str
) -> tuple[Cluster, AdaptiveJobs, Mapping[str, Application], Mapping[str, Traits]]:
    """The cluster, the jobs, their applications, and what is known of restarts: nothing where there are rates alone."""
    if has_rates(profiles):
        jobs = read_steps(trace)
        rated = rated_applications(read_rates(profiles), jobs.application.tolist())
        return cluster_named(spec), jobs, rated, dict.fromkeys(rated, Traits(0.0, 0.0))
    if is_gavel(trace):
        raise InputError(str(profiles), f"no *{RATES}.csv, and a trace in steps needs rates", "Name a folder with one")
    jobs = _jobs(trace)
    known = applications(*read_profiles(profiles), jobs.application.tolist())
    return _named_as_profiled(cluster_named(spec)), jobs, known, POLLUX if is_pollux(profiles) else PUBLISHED


@contextmanager
def _silent() -> Iterator[None]:
    """Lose what is written to the standard output: HiGHS writes remarks there, whatever its options say."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _retry_named(text: str) -> Retry | None:
    """The retry policies that need not know why an attempt failed: such traces do not say."""
    if text.partition(":")[0] not in ("recorded", "never", "always"):
        raise ConfigError(f"--retry {text}", "needs the causes of failures, which such traces do not record", _RETRIES)
    nothing = JobTable(np.empty(0, "U1"), np.empty(0), np.empty(0, np.int64), np.empty(0))
    return retry_named(text)(Failures(nothing, np.empty(0, np.int8), np.empty(0, object)), 0)


def _jobs(path: Path) -> AdaptiveJobs:
    """The jobs of a file, or of the workload behind its last colon."""
    numbered = re.fullmatch(r"(.+):(\d{1,6})", str(path))
    if numbered is not None and not path.exists():
        return read_adaptive(Path(numbered[1]), int(numbered[2]))
    return read_adaptive(path)


def _named_as_profiled(cluster: Cluster) -> Cluster:
    """With the names that profiles have for GPU types, in the place of usual ones."""
    names = [GPU_TYPES.get(name, name) for name in cluster.gpu_type.tolist()]
    return replace(cluster, gpu_type=np.array(names, np.str_))


def _figures(found: ElasticMetrics) -> tuple[object, ...]:
    return (
        found.policy, found.jobs, _hours(found.jct_mean_s), _hours(found.jct_p99_s), _hours(found.makespan_s),
        f"{found.gpu_h:.0f}", f"{found.utilisation:.1%}", f"{found.restarts:.1f}", f"{found.max_rho:.2f}",
        f"{found.jain:.3f}", f"{found.envy:.1%}", f"{found.success_rate:.1%}",
    )  # fmt: skip


def _app_figures(found: ElasticMetrics) -> tuple[object, ...]:
    mean_s, p99_s = found.app_jct_mean_s, found.app_jct_p99_s
    assert mean_s is not None
    assert p99_s is not None
    return found.policy, found.apps, _hours(mean_s), _hours(p99_s), found.stopped


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h"
