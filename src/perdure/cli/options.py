"""Options that several commands share, and the settings and the service they lead to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from perdure.cli.service_client import Client
    from perdure.service.settings import Loaded

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with the version of its form in `schema`.")]
Wide = Annotated[bool, typer.Option("--wide", help="Print tables in full, however wide the terminal is.")]
Limit = Annotated[int, typer.Option(min=1, max=100_000, help="At most N, the latest first.")]
StateDir = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="State directory of the service.", show_default=False)
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Also read this file.", show_default=False)
]


def load_settings(config: Path | None = None, flags: Mapping[str, object] | None = None) -> Loaded:
    """The settings in force for this command. Raises `ConfigError`."""
    from perdure.service.settings import load

    return load(os.environ, config, flags)


def service(state: Path | None) -> Client:
    """The running service. Raises `NotFound` where none runs."""
    from perdure.cli.service_client import Client

    return Client.of(load_settings(flags={"service.state": state}).settings.service.state, os.environ)
