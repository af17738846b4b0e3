"""Which stories there are, and what was written down of them: ``python -m tests.recorded.stories.telling [NAME ...]``.

A line is a case: how many lines it has, and a hash of them. ``NAME --case 7`` prints that one with all its words, to be
compared with what another version prints.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.recorded.stories import (
    condor_pool,
    exec_runs,
    kubernetes_cluster,
    local_cluster,
    local_daemon,
    simulated_cluster,
    slurm_cluster,
    texts,
)

PLACE = Path(__file__).parents[1] / "answers" / "stories"
STORIES = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        condor_pool,
        exec_runs,
        kubernetes_cluster,
        local_cluster,
        local_daemon,
        simulated_cluster,
        slurm_cluster,
        texts,
    )
}  # fmt: skip


def story(name: str, case: int) -> Iterator[str]:
    """The lines of a case, which are always the same."""
    return STORIES[name].story(case, random.Random(f"{name} {case}"))


def in_short(name: str, case: int) -> str:
    lines = list(story(name, case))
    return f"{len(lines)} {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:12]}"


def path_of(name: str) -> Path:
    return PLACE / f"{name}.txt"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.recorded.stories.telling", description="write stories down")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--case", type=int, help="print this one with all its words instead")
    given = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    logging.getLogger("perdure").addHandler(logging.NullHandler())
    PLACE.mkdir(exist_ok=True)
    for name in given.names or STORIES:
        if given.case is not None:
            sys.stdout.writelines(f"{line}\n" for line in story(name, given.case))
            continue
        path_of(name).write_text("".join(f"{in_short(name, case)}\n" for case in range(STORIES[name].CASES)))


if __name__ == "__main__":
    main()
