"""All solvers on the same windows: python benchmarks/blame.py FOLDER [--solver NAME ...] [--components 40000]

FOLDER holds `cases/*.paths.parquet` and `truth.json`. Each solver runs in a process of its own; seconds are those of
the processor, of solving alone (the incidence is built); the peak is that of the process, reading included. Solvers
but the default are given cases of up to `--components` components. Exits with 1 where the default misses a bar.
With `--times` the seconds of the default alone: each case five times, its median, and of the cases of a size the median
and the most.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

FINDABLE = 12  # nats of log likelihood ratio; below, nobody can find a culprit
BARS = {"F1": 0.95, "P": 0.98, "findable": 0.97}
SIZES = (400, 4_000, 30_000, 40_000, 10**9)
REPEATS = 5


def measure(folder: Path, solver: str, most: int) -> dict[str, float]:
    """What a solver names on every case, against the truth."""
    from perdure.blame.read import cases, read_window
    from perdure.blame.registry import localise

    truth = {case["case"]: case for case in json.loads((folder / "truth.json").read_text())}
    hits = misses = wrong = found = findable = in_vain = 0
    seconds = []
    for case in cases(folder):
        record = truth[case.name]
        if record["n_components"] > most:
            continue
        window = read_window(case.paths, case.components)
        window.by_component  # noqa: B018
        begun = time.process_time()
        named = {suspect.component for suspect in localise(window, solver)}
        seconds.append(time.process_time() - begun)
        groups = [{one["component"], *one["equivalent"]} for one in record["truth"]]
        hit = [bool(group & named) for group in groups]
        false = sum(not any(one in group for group in groups) for one in named)
        strong = [one["llr"] >= FINDABLE for one in record["truth"]]
        hits, misses, wrong = hits + sum(hit), misses + len(hit) - sum(hit), wrong + false
        findable += sum(strong)
        found += sum(a and b for a, b in zip(hit, strong, strict=True))
        in_vain += false * (not groups)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "cases": len(seconds), "P": hits / max(1, hits + wrong), "R": hits / max(1, hits + misses),
        "F1": 2 * hits / max(1, 2 * hits + wrong + misses), "findable": found / max(1, findable), "FP": wrong,
        "FP none": in_vain, "mean s": sum(seconds) / len(seconds), "most s": max(seconds), "MB": peak / 1e6,
    }  # fmt: skip


def times(folder: Path) -> None:
    """The seconds of the default by the number of components."""
    from perdure.blame.read import cases, read_window
    from perdure.blame.registry import localise

    took: dict[int, list[tuple[float, int, int]]] = {}
    for case in cases(folder):
        window = read_window(case.paths, case.components)
        window.by_component  # noqa: B018
        seconds = []
        for _ in range(REPEATS):
            begun = time.process_time()
            localise(window)
            seconds.append(time.process_time() - begun)
        size = next(size for size in SIZES if window.n_components <= size)
        took.setdefault(size, []).append((statistics.median(seconds), window.n_components, window.n_paths))
    print("| components | paths, up to | cases | median s | most s |\n|---|---|---|---|---|")
    for size in sorted(took):
        found, components, paths = zip(*took[size], strict=True)
        span = f"{min(components)} to {max(components)}"
        print(f"| {span} | {max(paths)} | {len(found)} | {statistics.median(found):.3f} | {max(found):.3f} |")


def main() -> int:
    from perdure.blame.registry import DEFAULT, SOLVERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--solver", action="append", choices=list(SOLVERS))
    parser.add_argument("--components", type=int, default=4000)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--alone", choices=list(SOLVERS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(measure(asked.folder, asked.alone, asked.components)))
        return 0
    if asked.times:
        times(asked.folder)
        return 0
    good, head = True, False
    for solver in asked.solver or SOLVERS:
        most = 10**9 if solver == DEFAULT else asked.components
        command = [sys.executable, __file__, str(asked.folder), "--alone", solver, "--components", str(most)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        figures = json.loads(ran.stdout)
        if not head:
            print(f"| solver | {' | '.join(figures)} |\n|---|{'---|' * len(figures)}")
            head = True
        cells = (
            f"{value:.3f}" if isinstance(value, float) and value < 100 else f"{value:.0f}" for value in figures.values()
        )
        print(f"| {solver} | {' | '.join(cells)} |", flush=True)
        if solver == DEFAULT:
            good = all(figures[name] >= bar for name, bar in BARS.items()) and figures["FP none"] <= 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
