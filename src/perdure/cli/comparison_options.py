"""What a comparison of policies is asked to do: by the options of a command line, or by a manifest that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from perdure.cli.simulated import loads_of, names_of, numbers, quotas, samples
from perdure.errors import ConfigError, InputError
from perdure.model.validation import read
from perdure.scheduling.las import QUEUE_LIMITS
from perdure.scheduling.policies import PolicyOptions
from perdure.simulation.foresight import learns_from_samples
from perdure.simulation.manifest import Options, read_manifest
from perdure.simulation.policy_file import is_policy_file
from perdure.simulation.restart_cost import FREE, PUBLISHED, RestartCost, restart_cost
from perdure.simulation.sweep import SweepExecutor


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """What a user asked for, in their own words where these are names."""

    traces: Sequence[Path]
    cluster: str | None  # None: the nodes of the slurm.conf
    policies: Sequence[str]
    retries: Sequence[str]
    seeds: int
    placement: str
    failures: str
    load: float | None
    options: PolicyOptions
    format: str | None
    skip_bad: bool
    jobs_out: Path | None
    out: Path | None
    executor: SweepExecutor | None  # None: this process, or one a core where jobs are many
    slurm_conf: Path | None = None
    replay_error: bool = False
    cost: RestartCost = PUBLISHED  # of a preemption
    gittins_split: float | None = None  # the share of the time that gittins-2d learns from
    words: Options = field(default_factory=dict)  # the options as they were given


class _WrittenOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a manifest, by the types that the command line gives them."""

    traces: Annotated[list[str], msgspec.Meta(min_length=1)]
    policy: str
    placement: str
    retry: str
    failures: str
    skip_bad: bool
    cluster: str | None = None
    load: str | None = None
    seeds: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    preemption_cost: str | None = None
    compat: str | None = None
    queue_limits: str | None = None
    gittins_samples: str | None = None
    gittins_split: float | None = None
    vc_quota: str | None = None
    slurm_conf: str | None = None
    format: str | None = None


def comparison_options(
    words: Mapping[str, Any], replay_error: bool, jobs_out: Path | None, out: Path | None, workers: str | None
) -> ComparisonOptions:
    """A comparison in the words of its options, as the command line or a manifest has them."""
    told = {name: _plain(value) for name, value in words.items() if value is not None}
    policies = names_of("--policy", told["policy"])
    split = _split(told, policies)
    files = {name: Path(told[name]) if name in told else None for name in ("gittins_samples", "slurm_conf")}
    return ComparisonOptions(
        [Path(trace) for trace in told["traces"]],
        told.get("cluster"),
        policies,
        names_of("--retry", told["retry"]),
        told.get("seeds", 1),
        told["placement"],
        told["failures"],
        _load(told["load"]) if "load" in told else None,
        _options(told.get("compat"), told.get("queue_limits"), files["gittins_samples"], told.get("vc_quota")),
        told.get("format"),
        told["skip_bad"],
        jobs_out,
        out,
        _executor(workers),
        files["slurm_conf"],
        replay_error,
        _cost(told.get("preemption_cost"), told.get("compat")),
        split,
        told,
    )


def words_of_manifest(path: Path) -> Mapping[str, Any]:
    """The options in a manifest. Raises `InputError`, too for a policy that is code: nobody said that it may run."""
    words = read_manifest(path)
    read(_WrittenOptions, words, f"{path}: manifest.options")
    if any(map(is_policy_file, names_of("--policy", words["policy"]))):
        what = f"it asks for a policy that is code ({words['policy']})"
        raise InputError(str(path), what, "Look at that file, and give the command that stands in the manifest")
    return words


def _plain(value: Any) -> Any:
    """An option's value as JSON holds it."""
    if isinstance(value, list):
        return [str(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _load(text: str) -> float:
    loads = loads_of(text)
    if len(loads) > 1:
        what = f"{len(loads)} loads, and at most one --load is taken"
        raise InputError("whatif", what, "See perdure whatif compare -h")
    return loads[0]


def _options(
    compat: str | None, queue_limits: str | None, gittins_samples: Path | None, vc_quota: str | None
) -> PolicyOptions:
    if compat not in (None, "tiresias"):
        raise ConfigError(f"--compat {compat!r}", "no simulator of that name is followed", "Use tiresias")
    return PolicyOptions(
        queue_limits=QUEUE_LIMITS if queue_limits is None else numbers("--queue-limits", queue_limits),
        gittins_samples=() if gittins_samples is None else samples(gittins_samples),
        quotas={} if vc_quota is None else quotas(vc_quota),
        compat="tiresias" if compat else None,
    )


def _split(told: Mapping[str, Any], policies: Sequence[str]) -> float | None:
    if "gittins_split" not in told:
        return None
    if "gittins_samples" in told:
        what = "it is given with --gittins-samples, and gittins-2d learns from one of them"
        raise InputError("--gittins-split", what, "Omit one of both")
    if not any(map(learns_from_samples, policies)):
        what = "none of the policies is gittins-2d, which alone learns; it would only leave jobs out"
        raise InputError("--gittins-split", what, "Omit it, or add gittins-2d to --policy")
    return float(told["gittins_split"])


def _cost(text: str | None, compat: str | None) -> RestartCost:
    if text is not None:
        return restart_cost(text)
    return FREE if compat else PUBLISHED


def _executor(workers: str | None) -> SweepExecutor | None:
    if workers is None:
        return None
    from perdure.cli.workers import executor_named

    return executor_named(workers)
