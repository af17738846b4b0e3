"""How fast traces are read, written and generated, and in how much memory: python benchmarks/traces.py [--jobs 1000000]

Each row is the median of runs in processes of their own, imports included in the memory and not in the time. The bare
floor beside the readers of CSV is DuckDB turning the same columns into NumPy arrays, with nothing judged or sorted.
Exits with 1 where reading is over its budget of 3 s or 500 bytes a job and 250 MB, for a million jobs; the seconds
judged are those of the CPU, for neighbours on the machine stretch the others.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

BUDGET_S, BUDGET_MB, BUDGET_JOB_B = 3.0, 250.0, 500.0
FORMS = ("philly.csv", "own.csv", "own.parquet", "sacct.txt", "swf")
CLUSTER, LOAD = "321x2+231x8", 0.6


def generated(jobs: int) -> object:
    from perdure.model.cluster import Cluster
    from perdure.traces.generate import generate

    return generate(jobs, Cluster.parse(CLUSTER), LOAD, np.random.default_rng(0))


def read(path: Path) -> object:
    from perdure.traces.read import read as read_trace

    return read_trace(path)


def bare(path: Path) -> object:
    """The floor of Philly's form: its columns as arrays."""
    import duckdb

    columns = {"t": "TIMESTAMP", "d": "DOUBLE", "g": "DOUBLE", "s": "DOUBLE", "c": "VARCHAR"}
    with duckdb.connect(config={"threads": 1}) as db:
        query = f"SELECT epoch(t), d, g, c FROM read_csv(?, columns={columns}, header=true, auto_detect=false)"
        return db.execute(query, [str(path)]).fetchnumpy()


def measured(work: Callable[[], object]) -> None:
    """Print the seconds that the work took and the peak of this process as JSON."""
    import perdure.traces.generate
    import perdure.traces.read  # noqa: F401  (imports are not part of the time)

    try:
        import duckdb  # noqa: F401
    except ImportError:
        sys.exit("benchmarks/traces.py: DuckDB is not installed. Install it: pip install 'perdure[sim]'.")
    started, used = time.perf_counter(), time.process_time()
    kept = work()
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"s": seconds, "cpu_s": cpu_s, "mb": peak / 1e6, "kept": kept is not None}))


def make_files(folder: Path, jobs: int) -> None:
    """The same generated jobs in several forms."""
    from perdure.model.table import JobTable
    from perdure.traces.own import write

    table = generated(jobs)
    assert isinstance(table, JobTable)
    files = {name: folder / f"jobs.{name}" for name in FORMS}
    write(table, files["own.csv"])
    write(table, files["own.parquet"])
    order = np.random.default_rng(1).permutation(jobs)
    times = np.datetime_as_string(np.datetime64("2017-08-07", "s") + table.submit_s[order].astype("m8[s]"))
    rows = list(zip(order.tolist(), times, table.duration_s[order].tolist(), table.gpus[order].tolist(),
                    table.vc[order], table.user[order], strict=True))  # fmt: skip
    with files["philly.csv"].open("w") as out:
        out.write("timestamp,duration,num_gpus,gpu_time,cluster\n")
        out.writelines(f"{t.replace('T', ' ')},{d},{g},{d * g},{vc}\n" for _, t, d, g, vc, _ in rows)
    with files["sacct.txt"].open("w") as out:
        out.write("JobID|User|Account|Submit|Start|ElapsedRaw|TimelimitRaw|State|NNodes|AllocTRES\n")
        out.writelines(
            f"{n}|{user}|{vc}|{t}|{t}|{d:.0f}|1440|COMPLETED|1|billing={g},cpu={4 * g},gres/gpu={g},mem=64G,node=1\n"
            for n, t, d, g, vc, user in rows
        )
    with files["swf"].open("w") as out:
        out.writelines(
            f"{n + 1} {n * 60} 5 {d:.0f} {g} -1 -1 {g} 86400 -1 1 7 1 -1 1 -1 -1 -1\n" for n, _, d, g, _, _ in rows
        )


def row(name: str, argument: str, runs: int) -> tuple[float, float]:
    """Run one operation several times; print the medians; return seconds of CPU and megabytes."""
    command = [sys.executable, __file__, "--run", name, argument]
    said = [json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(runs)]
    seconds, cpu_s, mb = (statistics.median(each[key] for each in said) for key in ("s", "cpu_s", "mb"))
    print(f"{name:10}{Path(argument).name:16}{seconds:8.2f} s{cpu_s:8.2f} s of CPU{mb:9.0f} MB", flush=True)
    return cpu_s, mb


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        name, argument = given.run
        if name == "files":
            make_files(Path(argument), given.jobs)
            return 0
        works = {"read": lambda: read(Path(argument)), "bare": lambda: bare(Path(argument)),
                 "generate": lambda: generated(int(argument))}  # fmt: skip
        measured(works[name])
        return 0
    over = False
    with tempfile.TemporaryDirectory() as folder:
        row("generate", str(given.jobs), given.runs)
        # In a process of its own too: a child begins with its parent's peak of memory.
        subprocess.run([sys.executable, __file__, "--jobs", str(given.jobs), "--run", "files", folder], check=True)
        row("bare", f"{folder}/jobs.philly.csv", given.runs)
        for form in FORMS:
            seconds, mb = row("read", f"{folder}/jobs.{form}", given.runs)
            budget_mb = BUDGET_MB + BUDGET_JOB_B * given.jobs / 1e6
            over |= seconds > BUDGET_S * given.jobs / 1e6 or mb > budget_mb
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
