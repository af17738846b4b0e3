"""``perdure whatif elastic``: policies that choose GPU types, GPUs and batches, on jobs that name an application."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.progress import progress
from perdure.cli.simulated import cluster_named
from perdure.cli.table import word
from perdure.scheduling.elastic_policies import elastic_named
from perdure.simulation.elastic import ElasticResult
from perdure.simulation.elastic_input import elastic_retry, read_elastic, read_recorded
from perdure.simulation.elastic_metrics import ElasticMetrics

FIGURES = (
    word("POLICY"), word("JOBS", leave=9), word("JCT"), word("P99", leave=2), word("MAKESPAN", leave=3),
    word("GPU H", leave=1), word("USED", leave=7), word("RESTARTS", leave=4), word("MAX RHO", leave=5),
    word("JAIN", leave=6), word("ENVY", leave=10), word("PASSED", leave=8),
)  # fmt: skip
APP_FIGURES = (word("POLICY"), word("APPS"), word("APP JCT"), word("APP P99"), word("STOPPED JOBS"))


def compare_elastic(
    trace: Path,
    profiles: Path | None,
    spec: str,
    policies: Sequence[str],
    retry: str,
    skip_bad: bool,
    out: Path | None,
    as_json: bool,
    *,
    wide: bool,
) -> int:
    """Replay a trace under each policy, and print the figures; without profiles its jobs are as it recorded them."""
    chosen, again = [elastic_named(name) for name in policies], elastic_retry(retry)
    with progress(what="reading"):
        cluster = cluster_named(spec)
        if profiles is None:
            given = read_recorded(trace, cluster, skip_bad=skip_bad)
        else:
            given = read_elastic(trace, profiles, cluster, skip_bad=skip_bad)
        replays = [given.prepared(policy, again) for policy in chosen]
    results = list[ElasticResult]()
    with progress(len(chosen) if len(chosen) > 1 else None, "replaying") as tell, _silent():
        for each in replays:
            results.append(each.run())
            tell(len(results))
    found = [ElasticMetrics.of(each) for each in results]
    told = {
        "runs": [each.to_json() for each in found],
        "assumed_restarts": given.unpublished(),
        "as_recorded": given.profiles is None,
        "left_out": dict(given.left_out),
        "assumed_turns": given.in_turns(policies),
        "pools_by_type": given.in_pools(policies),
        "measured_up_to": given.beyond_reach(),
    }
    says = [*chain.from_iterable(each.cut_short() for each in found), *given.assumed(policies)]
    page = None if out is None else _reported(out, results, told, says)
    if as_json:
        print_json("whatif-elastic", 1, **told)
        return 0
    print_table(FIGURES, map(_figures, found), wide=wide)
    if any(each.apps is not None for each in found):
        print_table(APP_FIGURES, map(_app_figures, found), wide=wide)
    for sentence in says:
        print_line(sentence)
    if page is not None:
        print_line(f"A page with pictures: {page}")
    return 0


def _reported(folder: Path, results: Sequence[ElasticResult], told: Mapping[str, Any], says: Sequence[str]) -> Path:
    from perdure.simulation.elastic_report import write_elastic_report

    with progress(what="drawing"):
        return write_elastic_report(folder, results, {"schema": "perdure.whatif-elastic/1", **told}, says)


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
