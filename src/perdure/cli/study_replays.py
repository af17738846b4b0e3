"""``perdure study retry`` and ``delay``: published experiments again, next to what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.progress import progress
from perdure.cli.table import word
from perdure.errors import ConfigError

if TYPE_CHECKING:
    from perdure.studies.delay import DelayStudy
    from perdure.studies.estimate import Estimate
    from perdure.studies.retry import RetryStudy

RETRY_COLUMNS = (
    word("LOAD"), word("POLICY"), word("RETRY"), word("JCT"), word("SAVED (95%)"), word("PUBLISHED", leave=1),
    word("BY RUNNING", leave=6), word("BY WAITING", leave=5), word("OF PASSED", leave=7), word("OVER ORACLE", leave=4),
    word("PASSED", leave=3), word("POINTS LOST", leave=8), word("WASTED GPU h", leave=2),
)  # fmt: skip
DELAY_COLUMNS = (
    word("GPUS"), word("JOBS", leave=4), word("WAIT", leave=3), word("SCATTERED (95%)", leave=5),
    word("OF SECONDS (95%)", leave=2), word("OF JOBS (95%)", leave=6), word("OF TRIES (95%)"),
    word("PUBLISHED", leave=1),
)  # fmt: skip


def repeat_retry(
    loads: Sequence[float],
    policies: Sequence[str],
    seeds: int | None,
    workers: str | None,
    as_json: bool,
    *,
    wide: bool = False,
) -> int:
    """Run Sibylla's experiment and print it; what is not given is as published."""
    from perdure.studies.retry import retry

    more: dict[str, Any] = {"loads": tuple(loads)} if loads else {}
    more |= {"policies": tuple(policies)} if policies else {}
    with progress(what="replaying") as tell:
        study = retry(**given(seeds, workers), **more, progress=tell)
    if as_json:
        print_json("whatif-study", 1, study="retry", **study.to_json())
    else:
        _show_retry(study, wide=wide)
    return 0


def repeat_delay(
    loads: Sequence[float],
    cluster: str | None,
    seeds: int | None,
    workers: str | None,
    as_json: bool,
    *,
    wide: bool = False,
) -> int:
    """Run Philly's experiment and print it; what is not given is as published. Raises `ConfigError` for two loads."""
    from perdure.studies.delay import delay

    if len(loads) > 1:
        raise ConfigError("study delay", f"{len(loads)} loads, and it runs at one", "Give one --load")
    more: dict[str, Any] = {"load": loads[0]} if loads else {}
    more |= {"cluster": cluster} if cluster is not None else {}
    with progress(what="replaying") as tell:
        study = delay(**given(seeds, workers), **more, progress=tell)
    if as_json:
        print_json("whatif-study", 1, study="delay", **study.to_json())
    else:
        _show_delay(study, wide=wide)
    return 0


def given(seeds: int | None, workers: str | None) -> Mapping[str, Any]:
    """Seeds and processes as arguments of a study; what is not given is left to it."""
    from perdure.cli.workers import processes_at_hand, processes_named

    number: dict[str, Any] = {"workers": processes_at_hand() if workers is None else processes_named(workers)}
    return number if seeds is None else number | {"seeds": seeds}


def _show_retry(study: RetryStudy, *, wide: bool) -> None:
    tpr, fpr = study.classifier
    print_line(
        f"{study.jobs} drawn jobs on {study.cluster}, {study.seeds} seeds; {study.failing:.1%} fail at least once. "
        f"The classifier tells {tpr:.1%} of the failures that heal, and takes {fpr:.1%} of the others for such."
    )
    mix = ", ".join(f"{name.replace('_', ' ')} {share:.1%}" for name, share in study.gpu_time.items())
    print_line(f"GPU time of attempts, under full retry (recorded): {mix}.")
    print_line(f"Of their running time {study.repeated:.1%} are retries of jobs that fail for good.")
    said = study.published
    rows = []
    for each in study.figures:
        published = said["jct_saved"].get(each.policy) if each.retry == "predicted" else None
        rows.append(
            (
                f"{each.load:g}", each.policy, each.retry, f"{each.jct_s.mean / 3600:.2f} h", _percent(each.jct_saved),
                "" if published is None else f"{published:.1%}", f"{each.saved_running.mean:z.1%}",
                f"{each.saved_waiting.mean:z.1%}", f"{each.jct_saved_passed.mean:z.1%}",
                f"{each.jct_over_oracle.mean:z.2%}", f"{each.success_rate.mean:.2%}",
                f"{100 * each.success_lost.mean:.2f}", f"{each.wasted_gpu_h.mean:.0f}",
            )
        )  # fmt: skip
    print_table(RETRY_COLUMNS, rows, wide=wide)
    print_line(
        "Saved: of the mean JCT under full retry, by fewer futile runs and shorter waits; of passed: over jobs that "
        "pass alone."
    )
    print_line(
        f"Published: within {said['jct_over_oracle']:.1%} of the oracle; {said['success_rate_full']:.2%} pass under "
        f"full retry, {100 * said['success_rate_lost']:.2f} points fewer when predicted ({said['source']})."
    )


def _show_delay(study: DelayStudy, *, wide: bool) -> None:
    said = study.published
    print_line(
        f"{study.jobs} drawn jobs on {study.cluster} in racks of {study.rack_nodes} nodes, {study.placement}, load "
        f"{study.load:g}, quotas {study.slack:g} times the demand, {study.seeds} seeds."
    )
    print_line(
        f"In use: {study.gpus_in_use.mean:.1%} of the GPUs, {study.nodes_in_use.mean:.1%} of the nodes (published "
        f"{said['nodes_in_use']:.1%}). Wholly free while two thirds of the GPUs are in use: "
        f"{study.free_nodes_at_two_thirds.mean:.1%} of the nodes (published: under "
        f"{said['free_nodes_at_two_thirds']:.1%}). Mean wait {study.wait_s.mean / 60:.0f} min (published "
        f"{said['wait_s']['mean'] / 60:.0f} min)."
    )
    rows = []
    for each in study.figures:
        shares = each.scattered, each.fragmentation_seconds, each.fragmentation_jobs, each.fragmentation_tries
        published = f"{said['fragmentation_tries'][each.gpus]:.1%}" if each.gpus in said["fragmentation_tries"] else ""
        wait = f"{each.wait_s.mean / 60:.1f} min"
        rows.append((each.gpus, f"{each.jobs.mean:.0f}", wait, *map(_percent, shares), published))
    print_table(DELAY_COLUMNS, rows, wide=wide)
    print_line(
        "Fragmentation's share, as against fair share, in the seconds of waiting, in the jobs that waited for over a "
        "minute, and in the tries that did not start a job. Scattered: seconds in which GPUs enough were free."
    )
    print_line(f"Published, of tries: {said['source'].removeprefix('published: ')}.")


def _percent(share: Estimate) -> str:
    """The mean, and the interval where there is more than one seed."""
    if share.low == share.high:
        return f"{share.mean:z.1%}"
    return f"{share.mean:z.1%} ({share.low:z.1%} to {share.high:z.1%})"
