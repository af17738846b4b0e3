"""What a replay in rounds needs beside a policy: jobs that name an application, and what was measured of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.errors import ConfigError, InputError
from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, RateProfile
from perdure.model.table import JobTable
from perdure.scheduling.elastic import ElasticPolicy
from perdure.scheduling.elastic_policies import POOLED, SHARING
from perdure.simulation.elastic import PreparedReplay, gpu_types, prepared_elastic
from perdure.simulation.elastic_job import MOST_GPUS, alone_on_s
from perdure.simulation.failures import Failures
from perdure.simulation.retries import retry_named
from perdure.simulation.retry_hook import Retry
from perdure.throughput.application import Application, applications, rated_applications
from perdure.throughput.colocation import Colocation, colocation
from perdure.throughput.pipeline import PUBLISHED as PUBLISHED_PIPELINES
from perdure.throughput.pipeline import pipelines
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
    read_pipelines,
    read_profiles,
    read_rates,
)
from perdure.traces.read import read

RETRIES = ("recorded", "never", "always")
_ALONE = "recorded"  # the application of a job that is of no virtual cluster
_AS_RECORDED = (
    "The trace names no applications: each job keeps the GPUs that it had, and its recorded time on any GPU type; "
    "a restart takes 30 s, and attempts that failed count as running."
)


@dataclass(frozen=True, slots=True)
class ElasticInput:
    """Jobs, their applications by the cluster's names of GPU types, and the cluster."""

    profiles: Path | None  # None: jobs are taken as a trace recorded them
    cluster: Cluster
    jobs: AdaptiveJobs
    known: Mapping[str, Application]
    traits: Mapping[str, Traits]  # what is known of restarts
    pairs: Colocation | None  # None: no table of pairs
    whole_seconds: bool
    left_out: Mapping[str, int] = field(default_factory=dict)  # jobs of the trace, by why

    def prepared(self, policy: ElasticPolicy, retry: Retry | None) -> PreparedReplay:
        """As `prepared_elastic`."""
        return prepared_elastic(
            self.jobs,
            self.cluster,
            policy,
            self.known,
            self.traits,
            retry,
            pairs=self.pairs,
            whole_seconds=self.whole_seconds,
        )

    def fitting(self) -> ElasticInput:
        """Without jobs of a fixed number of GPUs that no type of the cluster has, or on which none was measured."""
        types = gpu_types(self.cluster)
        asked = list(zip(self.jobs.application.tolist(), self.jobs.gpus.tolist(), strict=True))
        alone = {
            (name, gpus): any(np.isfinite(alone_on_s(self.known[name], gpus, gpus, kind)) for kind in types)
            for name, gpus in set(asked)
        }
        fits = np.array([alone[each] for each in asked])
        if self.jobs.steps is None or fits.all():
            return self
        if not fits.any():
            raise InputError("TRACE", "no job of it fits", "Name more nodes in --cluster")
        why = "no GPU type has so many GPUs, or none was measured on them"
        left_out = {**self.left_out, why: int((~fits).sum())}
        return replace(self, jobs=self.jobs.those(np.flatnonzero(fits)), left_out=left_out)

    def unpublished(self) -> list[str]:
        """Applications of which a restart is taken to last 30 s."""
        return sorted(set(self.known) - set(self.traits))

    def in_turns(self, policies: Iterable[str]) -> list[str]:
        """Policies under which two jobs that share GPUs are taken to take turns, as no table tells their speed."""
        return [name for name in policies if name in SHARING] if self.pairs is None else []

    def in_pools(self, policies: Iterable[str]) -> list[str]:
        """Policies that keep the GPU types of this cluster apart."""
        return [name for name in policies if name in POOLED] if len(gpu_types(self.cluster)) > 1 else []

    def beyond_reach(self) -> list[str]:
        """Applications that were measured on fewer GPUs of a type than the cluster and they themselves could use."""
        found = []
        for name, application in self.known.items():
            for kind in gpu_types(self.cluster) if self.jobs.steps is None else ():
                if application.pipeline is not None:
                    continue
                most = application.speed[kind.name].most_gpus
                if most < min(MOST_GPUS, kind.gpus, application.largest_batch):
                    found.append(f"{most} GPUs of {kind.name} ({name})")
        return found

    def assumed(self, policies: Iterable[str]) -> list[str]:
        """Sentences on what is assumed."""
        found = [] if self.profiles is not None else [_AS_RECORDED]
        found += [f"Jobs left out: {count}: {why}." for why, count in self.left_out.items()]
        if turns := self.in_turns(policies):
            where = f"{self.profiles or 'The trace'} has no *{PAIRS} of pairs"
            found.append(f"{', '.join(turns)}: {where}, so two jobs that share GPUs are taken to take turns.")
        if pooled := self.in_pools(policies):
            said = "each knows one GPU type, so that each type is a pool, and a job stays in that with least asked for"
            found.append(f"{', '.join(pooled)}: {said}.")
        if short := self.beyond_reach():
            found.append(f"Measured on up to {', '.join(short)}: no job of these gets more.")
        if names := self.unpublished():
            found.append(f"A restart of {', '.join(names)} is taken to last 30 s.")
        return found + [self._cut(each) for each in self.known.values() if each.pipeline is not None]

    def _cut(self, application: Application) -> str:
        """How a pipeline is cut, and where it does not run."""
        assert application.pipeline is not None
        kinds = [kind.name for kind in gpu_types(self.cluster)]
        runs = {kind: application.stages(kind) for kind in kinds if kind in application.speed}
        each = " or ".join(f"{stages} GPUs of {kind}" for kind, stages in runs.items()) or "GPUs that are not there"
        said = f"{application.name} is a pipeline: a replica takes {each}."
        if never := [kind for kind in kinds if kind not in runs]:
            said += f" It never runs on {', '.join(never)}."
        return said + " Its steps are made by a formula, not measured." * application.pipeline.by_formula


def read_elastic(trace: Path, profiles: Path, cluster: Cluster, *, skip_bad: bool = False) -> ElasticInput:
    """Read a trace, and a folder of profiles; with `skip_bad`, without the jobs that rates do not tell of.

    Raises `InputError`, and `MissingExtra` without DuckDB.
    """
    if not cluster.counts_gpus_alone:
        raise InputError("--cluster", "CPUs and memory are not counted here", "Name GPUs alone")
    measured = read_pairs(profiles)
    if has_rates(profiles):
        jobs = read_steps(trace)
        known = rated_applications(read_rates(profiles), jobs.application.tolist())
        traits: Mapping[str, Traits] = dict.fromkeys(known, Traits(0.0, 0.0))
    elif is_gavel(trace):
        raise InputError(str(profiles), f"no *{RATES}.csv, and a trace in steps needs rates", "Name a folder with one")
    else:
        jobs = _jobs(trace)
        steps, epochs = read_profiles(profiles)
        names = _names(cluster, set(steps.gpu_type.tolist()))
        cut = {**PUBLISHED_PIPELINES, **pipelines(read_pipelines(profiles))}
        cut = {name: each.named(names) for name, each in cut.items()}
        measured = None if measured is None else replace(measured, gpu_type=_renamed(measured.gpu_type, names))
        steps = replace(steps, gpu_type=_renamed(steps.gpu_type, names))
        known = applications(steps, epochs, jobs.application.tolist(), cut)
        traits = POLLUX if is_pollux(profiles) else PUBLISHED
    pairs = None if measured is None else colocation(measured, known)
    whole = is_pollux(profiles)  # its simulator counts in seconds
    given = ElasticInput(profiles, cluster, jobs, known, traits, pairs, whole)
    return given.fitting() if skip_bad else given


def read_recorded(trace: Path, cluster: Cluster, *, skip_bad: bool = False) -> ElasticInput:
    """Read a trace of any known form, whose jobs have durations and no applications: none of them may be resized.

    Jobs without GPUs, or that never ran, are left out; with `skip_bad` also those that fit nowhere, and broken rows. A
    virtual cluster counts as an application. Raises `InputError`.
    """
    if not cluster.counts_gpus_alone:
        raise InputError("--cluster", "CPUs and memory are not counted here", "Name GPUs alone")
    found = read(trace, skip_bad=skip_bad)
    table, left_out = found.table, dict(found.left_out)
    rows = np.flatnonzero((table.gpus > 0) & (table.duration_s > 0))
    if not len(rows):
        raise InputError(str(trace), "no job of it ran on GPUs", "Name another trace")
    if len(rows) < len(table):
        left_out["no GPUs, or no running time"] = len(table) - len(rows)
    vc, gpus = table.vc[rows], table.gpus[rows]
    name = np.where(vc == "", _ALONE, vc)
    jobs = AdaptiveJobs(table.job_id[rows], table.submit_s[rows], name, gpus, gpus, steps=table.duration_s[rows])
    told = list(product(np.unique(name).tolist(), dict.fromkeys(cluster.gpu_type.tolist()), np.unique(gpus).tolist()))
    names, kinds, counts = (np.array(column) for column in zip(*told, strict=True))
    rates = RateProfile(names, kinds, counts, np.ones(len(told), bool), np.ones(len(told)))
    known = rated_applications(rates, name.tolist())
    traits = dict.fromkeys(known, Traits())
    given = ElasticInput(None, cluster, jobs, known, traits, None, whole_seconds=False, left_out=left_out)
    return given.fitting() if skip_bad else given


def elastic_retry(text: str) -> Retry | None:
    """Of the retry policies those that need not know why an attempt failed: such traces do not say."""
    if text.partition(":")[0] not in RETRIES:
        what = "needs the causes of failures, which such traces do not record"
        raise ConfigError(f"--retry {text}", what, "Use one of: recorded, never, always:K")
    nothing = JobTable(np.empty(0, "U1"), np.empty(0), np.empty(0, np.int64), np.empty(0))
    return retry_named(text)(Failures(nothing, np.empty(0, np.int8), np.empty(0, object)), 0)


def _jobs(path: Path) -> AdaptiveJobs:
    """The jobs of a file, or of the workload behind its last colon."""
    numbered = re.fullmatch(r"(.+):(\d{1,6})", str(path))
    if numbered is not None and not path.exists():
        return read_adaptive(Path(numbered[1]), int(numbered[2]))
    return read_adaptive(path)


def _names(cluster: Cluster, profiled: set[str]) -> Mapping[str, str]:
    """What to call each GPU type of the profiles: as the cluster does, else by its usual name.

    Raises `InputError` where the cluster has two names for one.
    """
    called: dict[str, str] = {}
    for name in dict.fromkeys(cluster.gpu_type.tolist()):
        kind = name if name in profiled else GPU_TYPES.get(name, name)
        if kind in called:
            what = f"{called[kind]} and {name} are the same GPU type in the profiles"
            raise InputError("--cluster", what, "Use one name for both")
        called[kind] = name
    return {kind: name for name, kind in GPU_TYPES.items() if name not in profiled} | called


def _renamed(kinds: NDArray[np.str_], names: Mapping[str, str]) -> NDArray[np.str_]:
    return np.array([names.get(kind, kind) for kind in kinds.tolist()], np.str_)
