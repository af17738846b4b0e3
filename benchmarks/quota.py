"""The quota case study of the exception model: who moves how much where a shared tree is over its quota.

Run: python benchmarks/quota.py [DIRECTORY] [--out PLOT.svg]. Prints Markdown. Real files below DIRECTORY, say on a
tmpfs; each job is a thread with its own output, and every byte that is moved is read, written and counted.

- *each for itself*: whoever hears of the quota moves its output away, and its launcher repeats the write that failed.
- *bus without owner*: everybody hears of it, looks whether the tree is still over, and if so moves its own output.
- *Perdure*: the exception goes along the chain once; the scheduler's seat picks the least that covers, and tells those.

After the case study of "Multi-level cooperative exception model for HPC workflows" (LLNL, ROSS 2019).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from perdure.coordination.chain import advance
from perdure.coordination.chain_state import Chain
from perdure.coordination.handler_set import PlaybookHandlers
from perdure.coordination.handlers.quota import USAGE
from perdure.coordination.messages import ExceptionRaised
from perdure.coordination.playbook import Playbook, own_playbook
from perdure.coordination.record import Annotation, Component, ExceptionRecord, Scope, Subject
from perdure.coordination.ruling import Ruling
from perdure.coordination.site import Resource
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node

WRITERS, OVERRUNS, SEEDS = (4, 16, 64, 256), (0.02, 0.1, 0.3), 3
TOTAL_BYTES = 96 << 20
LAST_WRITE = 64 << 10  # the write that failed, repeated by the launcher
CHUNK = 1 << 20


@dataclass
class Tree:
    """Outputs of jobs on a file system that is over its quota, and an archive beside it."""

    root: Path
    limit: int
    names: tuple[str, ...]
    moved: int = 0
    moves: int = 0
    _count: threading.Lock = field(default_factory=threading.Lock)

    @property
    def used(self) -> int:
        return sum(self.size(name) for name in self.names)

    def size(self, name: str) -> int:
        try:
            return (self.root / name).stat().st_size
        except FileNotFoundError:
            return 0

    def move(self, name: str) -> None:
        """Copy a job's output into the archive, through to the disk, then take it away here."""
        source, copied = self.root / name, 0
        with source.open("rb") as old, (self.root / "archive" / name).open("wb") as new:
            while data := old.read(CHUNK):
                new.write(data)
                copied += len(data)
        source.unlink()
        with self._count:
            self.moved, self.moves = self.moved + copied, self.moves + 1

    def write_again(self, name: str) -> None:
        """The launcher repeats the write that failed."""
        with (self.root / name).open("ab") as file:
            file.write(b"x" * LAST_WRITE)
        with self._count:
            self.moved += LAST_WRITE


def filled(root: Path, n: int, overrun: float, seed: int) -> Tree:
    """`n` outputs of sizes as those of jobs are, log-normal, together `overrun` above the quota."""
    sizes = np.random.default_rng(seed).lognormal(0.0, 1.0, n)
    sizes = np.maximum(1, sizes / sizes.sum() * TOTAL_BYTES).astype(int)
    (root / "archive").mkdir(parents=True)
    for i, size in enumerate(sizes):
        with (root / str(i)).open("wb") as file:
            file.truncate(0)
            file.write(bytes(int(size)))
    return Tree(root, int(sizes.sum() / (1 + overrun)), tuple(map(str, range(n))))


def each_for_itself(tree: Tree) -> None:
    def job(name: str) -> None:
        tree.move(name)
        tree.write_again(name)

    at_once(tree.names, job)


def bus_without_owner(tree: Tree) -> None:
    def job(name: str) -> None:
        if tree.used > tree.limit:
            tree.move(name)

    at_once(tree.names, job)


def perdure(tree: Tree) -> None:
    usage = {"limit": tree.limit, "used": tree.used, "by": {name: tree.size(name) for name in tree.names}}
    note = Annotation("pfs", 0.0, USAGE, json.dumps(usage))
    record = ExceptionRecord(
        "over", "storage.quota.over", 1, Scope.GLOBAL, Subject("c", resource="home"), 0.0, detected_by="perdure",
        annotations=(note,),
    )  # fmt: skip
    site = Users(tree.names, own_playbook())
    chain, _ = advance(Chain(), [ExceptionRaised(record)], PlaybookHandlers(own_playbook(), site, 0.0), 0.0)
    told = [r for r in (*chain.open.values(), *chain.ended.values()) if r.type == "job.move"]
    at_once(tuple(r.subject.job_id for r in told), tree.move)


def at_once(names: tuple[str, ...], job: Callable[[str], None]) -> None:
    """Every job in a thread, begun together."""
    start = threading.Barrier(len(names) + 1)

    def run(name: str) -> None:
        start.wait()
        job(name)

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join()


@dataclass(frozen=True)
class Users:
    """A site of which only the writers are known."""

    names: tuple[str, ...]
    playbook: Playbook

    def job(self, job_id: str) -> Job | None:
        return Job("c", job_id, job_id, "ada", JobState.RUNNING, 0.0)

    def latest(self, job_id: str) -> int:
        return 1 if job_id in self.names else 0

    def node(self, name: str) -> Node | None:
        del name
        return None

    def waiting(self) -> tuple[Job, ...]:
        return ()

    def running(self) -> list[Attempt]:
        return [Attempt(AttemptId("c", name, 1), AttemptState.RUNNING, ("n1",), 0.0) for name in self.names]

    def resource(self, name: str) -> Resource:
        return self.playbook.resource(name)

    def recovery(self, record: ExceptionRecord) -> tuple[Component, Ruling] | None:
        del record
        return None

    def failure_of(self, attempt: AttemptId) -> str:
        del attempt
        return ""

    def holding(self, resource: str) -> tuple[tuple[str, tuple[AttemptId, ...]], ...]:
        del resource
        return ()


WAYS: Mapping[str, Callable[[Tree], None]] = {
    "each for itself": each_for_itself, "bus without owner": bus_without_owner, "Perdure": perdure,
}  # fmt: skip


def measure(where: Path, n: int, overrun: float, way: str, seed: int) -> tuple[float, float, bool]:
    """MiB moved, files moved, and whether the tree is below its quota now."""
    root = where / "tree"
    try:
        tree = filled(root, n, overrun, seed)
        WAYS[way](tree)
        return tree.moved / 2**20, tree.moves, tree.used <= tree.limit
    finally:
        shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as temporary:
        found = {
            (n, overrun, way): np.mean([measure(Path(temporary), n, overrun, way, s) for s in range(SEEDS)], axis=0)
            for n in WRITERS
            for overrun in OVERRUNS
            for way in WAYS
        }
    print(
        f"MiB moved (files) of {TOTAL_BYTES >> 20} MiB in all; means of {SEEDS} draws. `python benchmarks/quota.py`\n"
    )
    print(f"| writers | over by | {' | '.join(WAYS)} | less than each for itself | less than the bus |")
    print(f"|{'---|' * (len(WAYS) + 4)}")
    for n in WRITERS:
        for overrun in OVERRUNS:
            rows = [found[n, overrun, way] for way in WAYS]
            cells = [f"{moved:.1f} ({files:.0f}){'' if below == 1 else ' still over'}" for moved, files, below in rows]
            alone, bus, ours = (row[0] for row in rows)
            saved = f"{1 - ours / alone:.0%} | {1 - ours / max(bus, 1e-9):.0%}"
            print(f"| {n} | {overrun:.0%} | {' | '.join(cells)} | {saved} |")
    if given.out:
        plot(found, given.out)


def plot(found: Mapping[tuple[int, float, str], np.ndarray], out: Path) -> None:
    """MiB moved over the number of writers, one panel an overrun."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for overrun, axes in zip(OVERRUNS, figure.subplots(1, len(OVERRUNS), sharey=True), strict=True):
        for way, style in zip(WAYS, ("s--", "^:", "o-"), strict=True):
            axes.plot(WRITERS, [found[n, overrun, way][0] for n in WRITERS], style, label=way)
        axes.set(title=f"{overrun:.0%} over the quota", xlabel="writers", xscale="log", yscale="log")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("MiB moved")
    figure.axes[0].legend()
    figure.savefig(out)


if __name__ == "__main__":
    main()
