"""The options of ``perdure emulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Option(metavar="NAME", help="Model whose times are taken, such as resnet50.")]
Gpu = Annotated[str, typer.Option(metavar="NAME", help="GPU, such as a100 or h100.")]
Profiles = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Your own table of profiles, as Parquet or CSV.", show_default=False),
]
SeenGpus = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=1024,
        show_default=False,
        help="GPUs that the program sees. [default: as many as CUDA_VISIBLE_DEVICES names, or 1]",
    ),
]
Pace = Annotated[str, typer.Option(metavar="real|virtual", help="Sleep as long as a GPU computes, or jump over it.")]
Faults = Annotated[
    list[str] | None,
    typer.Option(metavar="FAULT", help="What goes wrong when, as xid79@30s or slow2@10s+60s#1; several times."),
]
Jitter = Annotated[float, typer.Option(metavar="CV", min=0, max=2, help="Spread of times, as a share of them.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of what is random.")]
LinkRate = Annotated[str, typer.Option(metavar="RATE", help="Network link of one node, such as 25G.")]
Carrier = Annotated[str, typer.Option(metavar="tcp|rdma", help="What carries messages between nodes.")]
InsideNode = Annotated[str, typer.Option(metavar="NAME", help="What connects a node's GPUs: pcie, nvlink, nvswitch.")]
Share = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Share a GPU with other programs: the socket of `emulate device`, or its folder for a node's GPUs.",
        show_default=False,
    ),
]
ServedGpus = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, max=64, show_default=False, help="Serve so many GPUs of a node, in the folder --socket."
    ),
]
Jobs = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        show_default=False,
        help="Serve other users too, each the GPUs of own jobs, by what Slurm's prolog writes there.",
    ),
]
LimitS = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="End a program after so long.")]
Report = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write what was emulated, as JSON.", show_default=False)
]
KernelLog = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Append what a driver would write of faults.", show_default=False)
]
