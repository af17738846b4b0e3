"""Which stories there are, and how each is told."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from importlib import import_module

from tests.recorded.line import Line, hash_of

NAMES = (
    "condor_pool", "exception_chain", "exec_runs", "job_files", "kubernetes_cluster", "local_cluster", "local_daemon",
    "simulated_cluster", "slurm_cluster", "texts",
)  # fmt: skip
STORIES = {name: import_module(f"tests.recorded.stories.{name}") for name in NAMES}


def names() -> Iterable[str]:
    return NAMES


def lines_of(name: str) -> Iterator[Line]:
    """A line for each case: how many lines its story has, and a hash of them."""
    for case in range(STORIES[name].CASES):
        lines = list(STORIES[name].story(case, random.Random(f"{name} {case}")))
        words = "\n".join(lines)
        yield Line(f"{len(lines)} {hash_of(words, 12)}", f"## case {case}\n{words}")
