"""A comparison of policies, from the reading of the traces to the table, the files and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.comparison_options import ComparisonOptions
from perdure.cli.comparison_shown import print_comparison
from perdure.cli.progress import progress, tell_of_compiling
from perdure.cli.simulated import cluster_named, read_fitting, tell_of
from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.simulation.comparison import PolicyComparison
from perdure.simulation.fitting import accepted
from perdure.simulation.manifest import Manifest
from perdure.simulation.policy_file import is_policy_file
from perdure.simulation.sweep import (
    Run,
    Serial,
    Setting,
    SweepExecutor,
    as_it_was,
    at_load,
    cases,
    check_names,
    sweep,
)
from perdure.traces.trace import Trace

if TYPE_CHECKING:
    from perdure.scheduling.slurm.conf import SlurmSite  # reads configurations: loaded where one is named

_WORTH_A_PROCESS = 20_000  # jobs of a run: fewer are done before a process has begun
_MAX_SPANS = 50_000  # jobs of a trace: of more, each stretch of running is not kept


def compare(asked: ComparisonOptions, as_json: bool, *, wide: bool = False) -> None:
    """Run every case, write what is to be written, and print the figures."""
    if asked.jobs_out is not None:
        from perdure.cli.jobs_out import check_jobs_out

        check_jobs_out(asked.jobs_out)
    if asked.out is not None and asked.out.exists() and not asked.out.is_dir():
        raise InputError(str(asked.out), "cannot be written (it is not a folder)", "Name a folder that you may write")
    cluster, options, site, included = _cluster(asked)
    keep = asked.jobs_out is not None or asked.out is not None
    wanted = cases(len(asked.traces), asked.policies, asked.retries, asked.seeds)
    check_names(Setting(cluster, asked.placement, options, asked.failures), wanted)
    with progress(what="reading"):
        read = [read_fitting(path, asked.format, asked.skip_bad, cluster, asked.placement) for path in asked.traces]
    if site is not None and asked.slurm_conf is not None:
        from perdure.cli.slurm_conf import tell_of_partitions

        for path, trace in zip(asked.traces, read, strict=True):
            tell_of_partitions(asked.slurm_conf, site, path, trace.table)
    read = [_accepted(trace, path, cluster, asked, options) for trace, path in zip(read, asked.traces, strict=True)]
    tables = [trace.table if asked.load is None else at_load(trace.table, cluster, asked.load) for trace in read]
    learned = ""
    if asked.gittins_split is not None:
        tables, options, learned = _split(tables, options, asked.gittins_split)
    spans = asked.out is not None and max(map(len, tables)) <= _MAX_SPANS
    repeats = len(wanted) // len(asked.policies)
    named = tuple(name for name in asked.policies if not is_policy_file(name))
    setting = Setting(
        cluster, asked.placement, options, asked.failures, keep, spans, asked.cost, repeats, named, learned
    )
    if not spans and cluster.counts_gpus_alone:
        tell_of_compiling(max(map(len, tables)) * repeats, asked.policies, asked.placement)
    with progress(len(wanted) if len(wanted) > 1 else None, "replaying") as tell:
        runs = sweep(tables, setting, wanted, asked.executor or _fitting(read), tell)
    for path, trace in zip(asked.traces, read, strict=True):
        tell_of(trace, path)
    if asked.jobs_out is not None:
        from perdure.cli.jobs_out import write_jobs

        write_jobs(asked.jobs_out, asked.traces, tables, runs)
    beside = [path for trace in read for path in trace.beside]
    manifest = Manifest.of(asked.words, [*_inputs(asked), *included, *beside], cluster)
    found = PolicyComparison.of(
        [str(path) for path in asked.traces],
        tables,
        runs,
        setting,
        asked.cluster or str(asked.slurm_conf),
        asked.load,
        was=as_it_was(tables, cluster),
        slurm_conf=None if site is None else {"not_modelled": site.unmodelled, "ignored": site.ignored},
        manifest=manifest,
    )
    if asked.out is not None:
        from perdure.simulation.report import write_report

        write_report(asked.out, found)
    if asked.replay_error:
        _must_be_recorded(runs)
    print_comparison(found, as_json, asked.replay_error, wide=wide)


def _split(
    tables: Sequence[JobTable], options: PolicyOptions, share: float
) -> tuple[list[JobTable], PolicyOptions, str]:
    """The later jobs of each trace, options with what the earlier ones took, and a sentence on both."""
    from perdure.simulation.time_split import split_by_time

    parts = [split_by_time(table, share, "--gittins-split") for table in tables]
    later, services = [table for table, _ in parts], tuple(one for _, services in parts for one in services)
    left = sum(map(len, later))
    learned = (
        f"gittins-2d learned from the {len(services)} jobs that had ended in the first {share:.0%} of the time; "
        f"the {left} that came later are compared, on a cluster that is empty when the first of them comes"
    )
    return later, replace(options, gittins_samples=services), learned


def _inputs(asked: ComparisonOptions) -> list[Path]:
    """The files that were named, and that the figures are made from."""
    named = [asked.cluster, asked.words.get("vc_quota"), asked.words.get("gittins_samples"), asked.slurm_conf]
    policies = [name.partition(":")[0] for name in asked.policies if is_policy_file(name)]
    others = [Path(name) for name in (*named, *policies) if name is not None]
    return [*asked.traces, *(path for path in others if path.is_file())]


def _cluster(asked: ComparisonOptions) -> tuple[Cluster, PolicyOptions, SlurmSite | None, list[Path]]:
    """The cluster, and the options of policies with what a slurm.conf says, and the files that this includes; its keys
    that are left out are shown.
    """
    if asked.slurm_conf is None:
        assert asked.cluster is not None
        return cluster_named(asked.cluster), asked.options, None, []
    from perdure.cli.slurm_conf import cluster_in, site_in, tell_of_site
    from perdure.scheduling.slurm.conf import on_any_nodes, on_known_nodes

    site, included = site_in(asked.slurm_conf)
    if asked.cluster is None:
        cluster, site = cluster_in(asked.slurm_conf, site)
    else:
        cluster, site = cluster_named(asked.cluster), on_any_nodes(site)
    tell_of_site(asked.slurm_conf, site)
    if placement_named(asked.placement) is not None:
        site = on_known_nodes(site, len(cluster.gpus))
    return cluster, replace(asked.options, slurm=site.settings), site, included


def _must_be_recorded(runs: Sequence[Run]) -> None:
    """Raises `InputError` where a trace records no starts."""
    if any(run.error is None for run in runs):
        what = "the trace records no starts, or --load has moved them"
        raise InputError("--replay-error", what, "Use a trace with starts, and omit --load")


def _accepted(trace: Trace, path: Path, cluster: Cluster, asked: ComparisonOptions, options: PolicyOptions) -> Trace:
    """The jobs that each of the policies starts at some time."""
    for name in asked.policies:
        if not is_policy_file(name):
            policy = policy_named(name, options)
            trace = accepted(trace, str(path), cluster, asked.skip_bad, policy, placement_named(asked.placement))
    return trace


def _fitting(found: Sequence[Trace]) -> SweepExecutor:
    if max(len(trace.table) for trace in found) < _WORTH_A_PROCESS:
        return Serial()
    from perdure.cli.workers import default_executor

    return default_executor()
