"""``perdure emulate ...``: programs on GPUs that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.commands import RUNS_A_PROGRAM
from perdure.cli.emulate_options import (
    Carrier,
    Faults,
    Gpu,
    InsideNode,
    Jitter,
    Jobs,
    KernelLog,
    LimitS,
    LinkRate,
    Model,
    Pace,
    Profiles,
    Report,
    Seed,
    SeenGpus,
    ServedGpus,
    Share,
)
from perdure.cli.options import AsJson, Wide
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import text, word

PROFILE_COLUMNS = (
    word("GPU"), word("MODEL"), word("BATCH"), word("STEP"), word("FORWARD", leave=3), word("BACKWARD", leave=3),
    word("COPY", leave=2), word("PEAK MIB"), word("FITS"), text("TIMES ARE", leave=1),
)  # fmt: skip

app = typer.Typer(no_args_is_help=True)


@app.callback()
def emulate() -> None:
    """Run programs on emulated GPUs, in real or in virtual time, and break them.

    Exit codes: 0 done, 2 usage or bad input.
    """


@app.command("run", context_settings=RUNS_A_PROGRAM)
def run(
    command: Annotated[list[str], typer.Argument(metavar="PROGRAM", help="A script, or torchrun with its options.")],
    gpu: Gpu,
    model: Model,
    gpus: SeenGpus = None,
    time: Pace = "real",
    profiles: Profiles = None,
    fault: Faults = None,
    jitter: Jitter = 0,
    seed: Seed = 0,
    link: LinkRate = "100G",
    transport: Carrier = "tcp",
    inside: InsideNode = "pcie",
    share: Share = None,
    limit_s: LimitS = 86400.0,
    report: Report = None,
    kernel_log: KernelLog = None,
) -> int:
    """Run a PyTorch program on the CPU as if on GPUs: what GPUs would compute takes its time and gives zeros.

    Files, decoding, loaders, checkpoints and page-locked memory are real. A program that needs too much memory gets
    the framework's own error.

    Exit codes: those of the program; 2 usage or bad input, 124 ended at --limit-s.
    """
    import os

    from perdure.cli.emulate_run import run_program
    from perdure.cli.emulate_values import absolute, given_gpus, known, rate
    from perdure.emulation.settings import EmulationSettings
    from perdure.throughput.collectives import INSIDE, Transport

    numbers = given_gpus(os.environ)
    settings = EmulationSettings(
        gpu,
        model,
        gpus or len(numbers),
        known("--time", time, ("real", "virtual")) == "virtual",
        absolute(profiles),
        jitter,
        seed,
        tuple(fault or ()),
        rate("--link", link),
        known("--transport", transport, list(Transport)),
        known("--inside", inside, INSIDE),
        absolute(report),
        absolute(kernel_log),
        absolute(share),
        numbers,
    )
    return run_program(command, settings, limit_s)


@app.command("device")
def device(
    gpu: Gpu,
    socket: Annotated[Path, typer.Option(metavar="FILE", help="Unix socket, or folder, that --share names.")],
    order: Annotated[
        str,
        typer.Option(metavar="fifo|salus|muri", help="Who goes next: first come, least served, longest off the GPU."),
    ] = "fifo",
    for_s: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="End after so long; 0: at Ctrl-C.")] = 0.0,
    gpus: ServedGpus = None,
    fault: Faults = None,
    kernel_log: KernelLog = None,
    jobs: Jobs = None,
) -> int:
    """Share one emulated GPU, or those of a node, among programs that run with --share, a piece of work at a time.

    A fault given here is the device's: whichever program has the GPU then meets it. Its times count from this start.

    Exit codes: 0 ended, 2 usage or bad input.
    """
    from perdure.cli.emulate_devices import serve_devices

    return serve_devices(gpu, socket, order, for_s, gpus, fault or [], kernel_log, jobs)


@app.command("fleet")
def fleet(
    gpu: Gpu,
    model: Model,
    batch: Annotated[int, typer.Option(metavar="N", min=1, max=1 << 20, help="Examples of one GPU in a step.")] = 32,
    gpus: Annotated[int, typer.Option(metavar="N", min=1, max=65_536, help="GPUs of the fleet.")] = 1024,
    gang: Annotated[int, typer.Option(metavar="N", min=1, max=65_536, help="GPUs that train together.")] = 8,
    hours: Annotated[float, typer.Option(metavar="HOURS", min=0.01, max=8760, help="How long, in virtual time.")] = 1.0,
    jitter: Annotated[float, typer.Option(metavar="CV", min=0, max=2, help="Spread of a GPU's steps.")] = 0.02,
    fault: Annotated[
        list[str] | None, typer.Option(metavar="FAULT", help="As of emulate run; #N counts through the fleet.")
    ] = None,
    mtbf_hours: Annotated[
        float, typer.Option(metavar="HOURS", min=0, help="Mean time between failures of one GPU; 0: never.")
    ] = 0.0,
    checkpoint_s: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Between two checkpoints.")] = 600.0,
    link: Annotated[str, typer.Option(metavar="RATE", help="Network link of one node of 8 GPUs.")] = "400G",
    inside: Annotated[str, typer.Option(metavar="NAME", help="What connects a node's GPUs.")] = "nvlink",
    profiles: Profiles = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Train on thousands of emulated GPUs in virtual time, with faults: what they keep, and what they lose.

    Exit codes: 0 done, 2 usage or bad input.
    """
    from perdure.cli.emulate_fleet import show_fleet
    from perdure.cli.emulate_values import known, rate
    from perdure.throughput.collectives import INSIDE

    return show_fleet(
        gpu, model, batch, gpus, gang, hours, jitter, fault or [], mtbf_hours, checkpoint_s, rate("--link", link),
        known("--inside", inside, INSIDE), profiles, seed, as_json,
    )  # fmt: skip


@app.command("study")
def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="data-stall, coordl, locality, ffcv, synergy, salus, muri, allox or small-files."
        ),
    ],
    profiles: Profiles = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    wide: Wide = False,
) -> int:
    """Reproduce a published result about data loading or sharing on emulated GPUs in virtual time.

    Exit codes: 0 done, 2 usage or bad input.
    """
    from perdure.cli.emulate_study import show_study

    return show_study(name, profiles, seed, as_json, wide=wide)


@app.command("demo")
def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the dashboard; 0 takes any free one.")] = 0,
    stay: Annotated[bool, typer.Option("--stay", help="Keep the dashboard until Ctrl-C.")] = False,
) -> int:
    """Show 64 emulated GPUs of which two nodes break: found, blamed and recovered within two minutes.

    Exit codes: 0 all of it was seen, 1 something was not, 2 it could not start.
    """
    from perdure.cli.emulate_demo import demonstrate

    return demonstrate(port, stay)


@app.command("profile")
def profile(
    gpu: Annotated[str, typer.Option(metavar="NAME,...", help="GPUs.")],
    model: Annotated[str, typer.Option(metavar="NAME,...", help="Models.")],
    batch: Annotated[str, typer.Option(metavar="N,...", help="Examples of one GPU in a step.")] = "32",
    profiles: Profiles = None,
    as_json: AsJson = False,
    wide: Wide = False,
) -> int:
    """Show what a step takes and needs, whether it fits, and how that is known.

    Exit codes: 0 shown, 2 usage or bad input.
    """
    from perdure.cli.emulate_values import names, numbers
    from perdure.emulation.known_profiles import profile_of, read_profiles

    table = read_profiles(profiles) if profiles else None
    found = [
        profile_of(each, name, size, table)
        for each in names("--gpu", gpu)
        for name in names("--model", model)
        for size in numbers("--batch", batch, 1 << 20)
    ]
    if as_json:
        rows = [
            {
                **{name: getattr(each, name) for name in each.__dataclass_fields__},
                "step_s": each.step_s,
                "fits": each.fits,
            }
            for each in found
        ]
        print_json("emulate.profile", 1, profiles=rows)
        return 0
    cells = (
        (each.gpu, each.model, str(each.batch),
         *(f"{1e3 * s:.2f} ms" for s in (each.step_s, each.forward_s, each.backward_s, each.transfer_s)),
         f"{each.peak_mib:,.0f}", "yes" if each.fits else "no", each.origin.value)
        for each in found
    )  # fmt: skip
    print_table(PROFILE_COLUMNS, cells, wide=wide)
    if table is not None and table.holes:
        print_line(f"{table.source}: {table.holes:,} rows with holes are left out.")
    return 0
