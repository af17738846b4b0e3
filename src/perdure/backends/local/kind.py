"""The embedded cluster as a kind of resource manager: its settings, and how it is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from perdure.backends.kind import BackendKind
from perdure.backends.protocol import Backend
from perdure.model.jobs import Job


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The embedded cluster."""

    nodes: Annotated[int, Meta(ge=1, le=64)] = 4
    """Virtual nodes on this machine."""
    gpus: Annotated[int, Meta(ge=0, le=64)] = 8
    """Emulated GPUs of each node."""
    demo: bool = True
    """Submit the demonstration workload."""


class LocalKind(BackendKind[LocalSettings]):
    """One of its own for each service: started, and ended, with it."""

    name, label, says = "local", "embedded backend", "the embedded one"
    settings = LocalSettings
    acts_by_default = is_playground = True

    @contextmanager
    def open(self, settings: LocalSettings, cluster: str, state: Path) -> Iterator[Backend]:
        from perdure.backends import local

        home = state / "cluster"
        try:
            local.start_daemon(home, cluster=cluster, nodes=settings.nodes, gpus=settings.gpus)
            yield local.LocalBackend(home, cluster)
        finally:
            local.stop_daemon(home)

    def fences(self, state: Path) -> tuple[Path, ...]:
        from perdure.backends.local import paths

        return (paths.fence(state / "cluster", "job").parent,)

    def demo_nodes(self, settings: LocalSettings) -> tuple[tuple[str, ...], int] | None:
        names = tuple(f"n{i}" for i in range(1, settings.nodes + 1))
        return (names, settings.gpus) if settings.demo else None

    def command_elsewhere(self, job: Job, nodes: Sequence[str]) -> str:
        from perdure.installation import program

        given = " ".join(f"--exclude {node}" for node in nodes)
        return f"{program()} submit {given} -- PROGRAM" if job.state.is_over else ""
