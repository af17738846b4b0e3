"""The same faults under plain Slurm, torchrun, both, and Perdure: ``python -m benchmarks.recovery``.

A real Slurm of four nodes (root and its packages), a job of one node and four GPUs that takes a step a second and saves
each, and one fault at its fourth step. ``--torchrun PYTHON`` names a Python that has PyTorch; without it there are no
rows of torchrun. Prints one row a run: whether the work was finished, starts by Slurm, steps that an older start wrote
beside a newer one, seconds from the fault until the node is DOWN and until the next new step, and GPU-seconds beyond
those of a run without fault.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.cluster import SlurmCluster, await_, missing
from tests.slurm.machine import NotReady
from tests.slurm.site import Site

STEPS, FAULT_STEP, GPUS = 12, 4, 4
PATIENCE_S = 150.0

# Takes steps, saves after each, fails as told; says what it wrote, when, and where, into one log.
TRAIN = """
import os, signal, sys, time
from pathlib import Path
folder, fault = Path(sys.argv[1]), sys.argv[2]
node, saved, log = os.environ["SLURMD_NODENAME"], folder / "saved", folder / "log"
if os.environ.get("LOCAL_RANK", "0") != "0":  # the other ranks wait for the first, and end with it
    while not saved.exists() or saved.read_text() != sys.argv[3]: time.sleep(0.2)
    sys.exit()
me = f"{os.environ['SLURM_JOB_ID']}.{time.time_ns()}"

def save(step):
    if os.environ.get("PERDURE_FENCE_DIR"):
        from perdure.job import checkpointed
        with checkpointed(saved) as draft:
            Path(draft).write_text(str(step))
    else:
        saved.write_text(str(step))

step = int(saved.read_text()) if saved.exists() else 0
while step < int(sys.argv[3]):
    if step == int(sys.argv[4]):
        first = not (folder / "met").exists()
        (folder / "met").touch()
        if fault == "rank" and first:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "link" and node == "node1":
            sys.exit("ConnectionResetError: [Errno 104] Connection reset by peer")
        if fault == "bug":
            sys.exit("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)")
    time.sleep(1)
    step += 1
    save(step)
    with log.open("a") as file: file.write(f"{time.time()} {me} {node} {step}\\n")
"""
FAULTS = {
    "rank": "a rank is killed, once",
    "link": "a node whose link fails each time",
    "dead": "a node loses power",
    "frozen": "a node freezes, and thaws once the job runs elsewhere",
    "bug": "shapes that never fit",
}


@dataclass(frozen=True, slots=True)
class Way:
    """How a job is started and recovered."""

    name: str
    options: tuple[str, ...]
    launcher: str  # before the program
    has_perdure: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one job."""

    finished: bool
    starts: int
    doubled: int
    down_s: float | None  # from the fault until the node is DOWN
    recovery_s: float | None
    lost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Write:
    """One line of the program's log."""

    time_s: float
    start: str
    node: str
    step: int


def ways(torchrun: str) -> Iterator[Way]:
    """All that can be tried here."""
    plain, no = ("--requeue",), ("--no-requeue",)
    yield Way("Slurm --requeue", plain, sys.executable)
    if torchrun:
        gang = f"{torchrun} -m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 3"
        yield Way("torchrun --max-restarts 3", no, gang)
        yield Way("both", plain, gang)
    yield Way("Perdure", plain, f"{sys.executable} -m perdure exec -- {sys.executable}", has_perdure=True)


def measure(cluster: SlurmCluster, site: Site, way: Way, fault: str) -> Result:
    """Run one job into one fault."""
    folder = cluster.output / f"run-{os.urandom(4).hex()}"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    script = f"{way.launcher} {folder}/train.py {folder} {fault} {STEPS} {FAULT_STEP}"
    options = ("-n", "1", f"--gpus-per-node={GPUS}", f"--chdir={folder}", *way.options)
    job = site.submit(script, *options) if way.has_perdure else cluster.submit(script, *options)
    await_("steps", lambda: len(writes(folder)) >= FAULT_STEP, PATIENCE_S)
    fault_s = time.time()
    down_s = _strike(cluster, job, folder, fault) - fault_s if fault in ("dead", "frozen") else None
    _await_end(cluster, site, job, way)
    await_("accounting", lambda: all(row["End"].isdecimal() for row in cluster.ends(job)), PATIENCE_S)
    return _result(cluster, job, folder, fault_s, down_s)


def _strike(cluster: SlurmCluster, job: str, folder: Path, fault: str) -> float:
    """Take the job's node away until the job runs elsewhere, if it ever does; the instant at which it was DOWN."""
    node = writes(folder)[0].node
    (cluster.fail_node if fault == "dead" else cluster.freeze_node)(node)
    before = {write.start for write in writes(folder)}
    try:
        await_(f"{node} down", lambda: cluster.node_states()[node].startswith("down"), PATIENCE_S)
        down_s = time.time()
        await_("a new start", lambda: {w.start for w in writes(folder)} - before or _is_over(cluster, job), PATIENCE_S)
        if fault == "frozen":
            time.sleep(2)
        return down_s
    finally:
        cluster.return_node(node)


def _await_end(cluster: SlurmCluster, site: Site, job: str, way: Way) -> None:
    """Until the job is over and nobody will put it back."""
    seen_s: list[float] = []

    def settled() -> bool:
        if not _is_over(cluster, job):
            seen_s.clear()
            return False
        if cluster.job(job)["JobState"] == "COMPLETED":
            return True
        if way.has_perdure:
            return any(record["outcome"] == "stopped" for record in site.records(job))
        seen_s.append(time.time())
        return time.time() - seen_s[0] > 8  # longer than Slurm's requeue takes

    await_(f"the end of job {job}", settled, PATIENCE_S)


def _is_over(cluster: SlurmCluster, job: str) -> bool:
    return cluster.job(job).get("JobState") in ("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT")


def _result(cluster: SlurmCluster, job: str, folder: Path, fault_s: float, down_s: float | None) -> Result:
    written, rows = writes(folder), cluster.ends(job)
    starts = list(dict.fromkeys(write.start for write in written))
    begun = {start: min(w.time_s for w in written if w.start == start) for start in starts}
    newest = begun[starts[-1]]
    doubled = sum(w.time_s > newest and w.start != starts[-1] for w in written)
    after = [w.time_s for w in written if w.start != starts[0] and w.time_s > fault_s]
    held_s = sum(int(row["End"]) - int(row["Start"]) for row in rows)
    finished = any(write.step == STEPS for write in written)
    useful = max(write.step for write in written) if finished else 0
    recovery_s = min(after) - fault_s if after and finished else None
    return Result(finished, len(rows), doubled, down_s, recovery_s, GPUS * max(0, held_s - useful))


def writes(folder: Path) -> list[Write]:
    """What the program has said so far."""
    log = folder / "log"
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [Write(float(t), start, node, int(step)) for t, start, node, step in lines]


@contextmanager
def site_on(cluster: SlurmCluster, way: Way) -> Iterator[Site]:
    """Perdure beside it, where this way has it."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as home:
        site = Site(cluster, Path(home))
        if way.has_perdure:
            site.start()
            for node in cluster.nodes:
                site.start_agent(node)
        try:
            yield site
        finally:
            site.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torchrun", default="", metavar="PYTHON", help="a Python that has PyTorch")
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--ways", default="", help="only those whose name begins so")
    parser.add_argument("--slurmd-timeout", type=int, default=10, metavar="SECONDS")
    asked = parser.parse_args()
    if why := missing():
        sys.exit(why)
    directory = Path(tempfile.mkdtemp(prefix="perdure-slurm-", dir="/tmp"))
    cluster = SlurmCluster(directory, extra_conf=f"SlurmdTimeout={asked.slurmd_timeout}")
    print("| fault | way | finished | starts | doubled steps | s to DOWN | s to the next step | GPU-s lost |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    try:
        cluster.start()
        for way in ways(asked.torchrun):
            if way.name.startswith(asked.ways):
                with site_on(cluster, way) as site:
                    for fault in asked.faults.split(","):
                        _print(fault, way, cluster, site)
    finally:
        cluster.stop()


def _print(fault: str, way: Way, cluster: SlurmCluster, site: Site) -> None:
    try:
        found = measure(cluster, site, way, fault)
    except NotReady as err:
        print(f"| {FAULTS[fault]} | {way.name} | not measured: {str(err)[:200]} | | | | | |", flush=True)
    else:
        waits = ("" if seconds is None else f"{seconds:.0f}" for seconds in (found.down_s, found.recovery_s))
        cells = ("yes" if found.finished else "no", found.starts, found.doubled, *waits, f"{found.lost_gpu_s:.0f}")
        print(f"| {FAULTS[fault]} | {way.name} | {' | '.join(map(str, cells))} |", flush=True)
    cluster.cancel_all()


if __name__ == "__main__":
    main()
