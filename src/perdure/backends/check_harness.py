"""What the checks of backends run, and what they need of a cluster to run it on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from perdure.backends.protocol import Backend


@dataclass(frozen=True, slots=True)
class Program:
    """What a check lets run: each task prints `says`, works for `run_s` seconds and ends with `exit_code`."""

    says: str = ""
    run_s: float = 0.0
    exit_code: int = 0
    node_count: int = 1
    min_nodes: int = 0  # that a restart may have; 0: none fewer than `node_count`
    may_requeue: bool = True


class Harness(Protocol):
    """A cluster to try a backend on, with at least three nodes that nobody else uses."""

    backend: Backend
    nodes: tuple[str, ...]
    since_s: float  # when it was set up, by the cluster's clock

    def submit(self, program: Program) -> str:
        """Submit a job that runs on one task a node; returns its id."""

    def moments(self) -> Iterator[None]:
        """Wait a little at each step, in real or virtual time, and end when all patience is used up."""

    def fail_node(self, node: str) -> None:
        """Fail a node, so that the resource manager itself finds out."""

    def return_node(self, node: str) -> None:
        """Bring a dead node back into service."""

    def cut_off(self) -> AbstractContextManager[None]:
        """Make the resource manager unreachable for a while."""
