"""Who stopped first, beside PyTorch's own analyser: python -m benchmarks.hangs [--data DIR] [--ranks 1024]

DIR/flight-recorder holds incidents, each a folder of dumps with the ranks that were made to fail in
``fault_injection.log`` (default of DIR: PERDURE_DATA, or ../shared/data); to these comes a made one of `--ranks` ranks
of which one stopped. For each: the ranks named by Perdure (``perdure why ranks``, whole process) and by
``torch.distributed.flight_recorder.fr_trace`` (the ranks of its "missing ranks"), and the median seconds of three runs.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CULPRIT, OF_A_GROUP, PENDING = 517, 8, 20
MISSING = re.compile(r"missing ranks: \{([\d, ]*)\}")
PERDURE = [sys.executable, "-c", "import sys; from perdure.cli.main import main; sys.exit(main(sys.argv[1:]))"]


def make_incident(folder: Path, ranks: int) -> None:
    """Dumps of a program in groups of eight; in the group of one rank that stopped, the others wait for it there."""
    world = str(list(range(ranks)))
    for rank in range(ranks):
        if rank == CULPRIT % ranks:
            entries = []
        else:
            near = rank // OF_A_GROUP == CULPRIT % ranks // OF_A_GROUP
            group = (str(1 + rank // OF_A_GROUP), "TENSOR_MODEL_PARALLEL_GROUP") if near else ("0", "default_pg")
            entries = [entry(group, 1000 + n) for n in range(PENDING)]
        mine = list(range(rank // OF_A_GROUP * OF_A_GROUP, rank // OF_A_GROUP * OF_A_GROUP + OF_A_GROUP))
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": world}}
        config[str(1 + rank // OF_A_GROUP)] = {"name": str(1 + rank // OF_A_GROUP), "desc": "tp", "ranks": str(mine)}
        dump = {"version": "2.9", "pg_config": config, "pg_status": {}, "nccl_version": "2.27.3", "entries": entries}
        (folder / f"_dump_{rank}").write_bytes(pickle.dumps(dump, protocol=2))


def entry(group: tuple[str, str], seq: int) -> dict[str, object]:
    """One operation as the recorder keeps it."""
    return {
        "record_id": seq, "pg_id": int(group[0]), "process_group": group, "collective_seq_id": seq, "p2p_seq_id": 0,
        "op_id": seq, "profiling_name": "nccl:all_reduce", "time_created_ns": 1758610505592849034 + seq,
        "input_sizes": [[4096, 1, 5120]], "input_dtypes": ["BFloat16"], "output_sizes": [[4096, 1, 5120]],
        "output_dtypes": ["BFloat16"], "state": "scheduled", "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 180000, "is_p2p": False, "frames": [],
    }  # fmt: skip


def timed(command: list[str], repeats: int = 3) -> tuple[str, float]:
    """What a command prints, and the median of its seconds."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - began)
    return done.stdout + done.stderr, statistics.median(seconds)


def compare(name: str, folder: Path, truth: list[int]) -> None:
    """Print a row."""
    ours, our_s = timed([*PERDURE, "why", "--ranks", str(folder), "--json"])
    rival = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "-p", "_dump_"]
    theirs, their_s = timed([*rival, "--allow-incomplete-ranks", str(folder)])
    missing = sorted({int(rank) for found in MISSING.findall(theirs) for rank in found.split(",") if rank.strip()})
    named = json.loads(ours.splitlines()[0])["ranks"]
    print(f"| {name} | {truth} | {named} | {missing} | {our_s:.2f} | {their_s:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("PERDURE_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--ranks", type=int, default=1024)
    options = parser.parse_args()
    print("| incident | injected | Perdure | PyTorch's fr_trace | s | s |\n|---|---|---|---|---|---|")
    for log in sorted(options.data.glob("flight-recorder/*/fault_injection.log")):
        truth = [int(rank) for rank in re.findall(r"^Rank (\d+),", log.read_text(), re.M)]
        compare(log.parent.name, log.parent, truth)
    with tempfile.TemporaryDirectory() as made:
        make_incident(Path(made), options.ranks)
        compare(f"{options.ranks} ranks, made", Path(made), [CULPRIT % options.ranks])


if __name__ == "__main__":
    main()
