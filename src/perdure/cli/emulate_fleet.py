"""``perdure emulate fleet``: many emulated GPUs in virtual time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from perdure.cli.output import print_json, print_line
from perdure.emulation.faults import read_faults
from perdure.emulation.fleet import GangPlan, run_fleet
from perdure.emulation.known_profiles import profile_of, read_profiles
from perdure.emulation.profiles import known_name
from perdure.errors import InputError
from perdure.throughput.collectives import GpuLayout, GpuNetwork, Transport
from perdure.throughput.compute import GPUS, passes_on
from perdure.throughput.layers import KNOWN_MODELS, layers_of
from perdure.throughput.overlap import step_of

MOST_GPUS = 65_536
GPUS_OF_NODE = 8


def show_fleet(
    gpu: str, model: str, batch: int, gpus: int, gang: int, hours: float, jitter: float, faults: Sequence[str],
    mtbf_hours: float, checkpoint_s: float, link_gbit: float, inside: str, profiles: Path | None, seed: int,
    as_json: bool,
) -> int:  # fmt: skip
    """Run it, and print what it did. Raises `InputError`."""
    if gpus % gang:
        raise InputError("--gpus", f"{gpus} GPUs are no whole number of gangs of {gang}", "Give a multiple of --gang")
    planned = read_faults(faults, gpus)
    if any(each.step is not None for each in planned):
        raise InputError("--fault", "gangs of a fleet count no steps alike", "Say when, as slow2@60s")
    profile = profile_of(gpu, model, batch, read_profiles(profiles) if profiles else None)
    if not profile.fits:
        what = f"{batch} examples need {profile.peak_mib:,.0f} MiB of {profile.capacity_mib:,.0f}"
        raise InputError("--batch", what, "Give a smaller batch, or a larger GPU")
    per_node = min(gang, GPUS_OF_NODE)
    layout = GpuLayout(-(-gang // per_node), per_node)
    exchange_s, name = 0.0, model.removesuffix("-bf16")
    if gang > 1:
        if name not in KNOWN_MODELS:
            raise InputError(
                "--gang", f"the layers of {model} are not known", f"Use --gang 1, or: {KNOWN_MODELS[0]}, ..."
            )
        layers, known = layers_of(name), known_name(profile.gpu)
        network = GpuNetwork(link_gbit, Transport.RDMA, inside, known)
        passes = passes_on(layers, GPUS[known], batch).calibrated(profile.forward_s + profile.backward_s)
        exchange_s = step_of(layers, passes, lambda size: network.all_reduce_s(size, layout)).exposed_s
    plan = GangPlan(gang, profile.step_s, exchange_s, jitter, checkpoint_s)
    begun = time.perf_counter()
    found = run_fleet(
        gpus // gang, plan, planned, hours * 3600,
        mtbf_hours * 3600 if mtbf_hours else float("inf"), np.random.default_rng(seed),
    )  # fmt: skip
    wall_s = time.perf_counter() - begun
    examples = found.kept_steps * batch / found.elapsed_s
    if as_json:
        print_json(
            "emulate.fleet", 1, gpus=gpus, gang=gang, elapsed_s=found.elapsed_s, gpu_steps=found.gpu_steps,
            kept_steps=found.kept_steps, goodput=found.goodput, breaks=found.breaks, slowed_gpu_s=found.slowed_s,
            step_s=plan.compute_s + plan.exchange_s, exchange_s=plan.exchange_s, examples_per_s=examples,
            origin=profile.origin.value, wall_s=wall_s, gpu_steps_per_wall_s=found.gpu_steps / wall_s,
        )  # fmt: skip
        return 0
    print_line(
        f"{gpus:,} {profile.gpu} in gangs of {gang}: {hours:g} h in {wall_s:.2f} s, {found.gpu_steps:,} steps of GPUs "
        f"({found.gpu_steps / wall_s:,.0f} a second)"
    )
    print_line(
        f"A step takes {1e3 * (plan.compute_s + exchange_s):.1f} ms, {1e3 * exchange_s:.1f} of them for gradients; "
        f"{examples:,.0f} examples a second are kept."
    )
    print_line(
        f"{found.breaks:,} failures, {found.goodput:.1%} of the steps kept, {found.slowed_s / 3600:,.1f} GPU-h lost to "
        "slow GPUs."
    )
    print_line(f"Times are {profile.origin.value}.")
    return 0
