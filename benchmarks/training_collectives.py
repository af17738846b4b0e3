"""How far the three ranges of sizes are off measured all-reduces, with sizes and with numbers of GPUs held out.

    python -m benchmarks.training_collectives [--links]

DIR/gpu-profiles (default of DIR: PERDURE_DATA, or ../shared/data) holds Vidur's tables of NCCL (microsoft/vidur
7d47513, MIT). With `--links`, prints the constants of `measured_links` as fitted to all of them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

from perdure.throughput.link_fit import fit_ranges
from perdure.throughput.speed import Floats

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("PERDURE_DATA", ROOT.parent / "shared" / "data"))
LINKS = {  # what is fitted as one link: Vidur's cluster, and GPUs of all and of each node
    ("nvswitch", "a100"): ("a100_dgx", ((2, 2), (4, 4), (8, 8))),
    ("nvswitch", "h100"): ("h100_dgx", ((2, 2), (4, 4), (8, 8))),
    ("nvlink", "a100"): ("a100_pairwise_nvlink", ((2, 2),)),
    ("nvlink", "h100"): ("h100_pairwise_nvlink", ((2, 2),)),
    ("pcie", "a100"): ("a100_pairwise_nvlink", ((4, 4),)),
    ("pcie", "h100"): ("h100_pairwise_nvlink", ((4, 4),)),
    ("2 nodes of 1", "a100"): ("a100_dgx", ((2, 1),)),
    ("2 nodes of 2", "a100"): ("a100_dgx", ((4, 2),)),
    ("2 nodes of 4", "a100"): ("a100_dgx", ((8, 4),)),
    ("2 nodes of 8", "a100"): ("a100_dgx", ((16, 8),)),
}
SHIPPED = ("nvswitch", "nvlink", "pcie")
SMALL, MIDDLE = 1 << 17, 1 << 22  # bytes: the table's columns

Measured = tuple[Floats, Floats, Floats]  # bytes, members, seconds


def measured(data: Path, cluster: str, layouts: tuple[tuple[int, int], ...]) -> Measured:
    """All-reduces of a link."""
    query = (
        "select size, num_workers, time_ms_median / 1e3 from "
        f"'{data}/gpu-profiles/vidur-network/network_collectives.parquet' where op = 'all_reduce' "
        f"and cluster = '{cluster}' and (num_workers, devices_per_node) in ({', '.join(map(str, layouts))})"
    )
    size, members, seconds = np.array(duckdb.connect().execute(f"{query} order by all").fetchall(), float).T
    return size, members, seconds


def errors(known: Measured, asked: Measured) -> Floats:
    return np.abs(fit_ranges(*known).all_reduce_s(asked[0], asked[1]) / asked[2] - 1)


def part(rows: Measured, which: NDArray[np.bool_]) -> Measured:
    return rows[0][which], rows[1][which], rows[2][which]


def held_out(rows: Measured, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A third of the sizes, drawn at random."""
    sizes = np.unique(rows[0])
    return np.isin(rows[0], rng.choice(sizes, len(sizes) // 3, replace=False))


def without_a_number(rows: Measured) -> Iterator[tuple[int, float]]:
    """The median error at each number of GPUs, from a fit to the others."""
    counts = np.unique(rows[1])
    for each in counts if len(counts) > 1 else ():
        yield int(each), float(np.median(errors(part(rows, rows[1] != each), part(rows, rows[1] == each))))


def of_collectives(data: Path) -> Iterator[str]:
    """The table's lines."""
    yield "All-reduces of Vidur's tables, a third of the sizes held out: median error (90th percentile).\n"
    yield "| link, GPU | rows | up to 128 KB | to 4 MB | above | all | a number of GPUs held out |"
    yield "|---" * 7 + "|"
    everything = list[Floats]()
    for (name, gpu), (cluster, layouts) in LINKS.items():
        rows = measured(data, cluster, layouts)
        held = held_out(rows, np.random.default_rng(0))
        error, size = errors(part(rows, ~held), part(rows, held)), rows[0][held]
        everything.append(error)
        bands = (size <= SMALL, (size > SMALL) & (size <= MIDDLE), size > MIDDLE, size > 0)
        cells = [f"{np.median(error[band]):.1%} ({np.quantile(error[band], 0.9):.0%})" for band in bands]
        away = ", ".join(f"{each}: {error:.0%}" for each, error in without_a_number(rows))
        yield f"| {name}, {gpu} | {len(rows[0]):,} | {' | '.join(cells)} | {away} |"
    yield f"\nAll held-out rows: median error {np.median(np.concatenate(everything)):.1%} (bar: 10 %).\n"


def links(data: Path) -> Iterator[str]:
    """The constants as source text."""
    for (name, gpu), (cluster, layouts) in LINKS.items():
        if name not in SHIPPED:
            continue
        found = fit_ranges(*measured(data, cluster, layouts))
        ranges = ", ".join(
            f"({each.start_s * 1e6:.2f}, {each.hop_s * 1e6:.2f}, {each.bytes_per_s / 1e9:.4g})" for each in found.ranges
        )
        yield f'("{name}", "{gpu}", ({found.bounds[0]:.0f}, {found.bounds[1]:.0f}), ({ranges})),'


def main() -> None:
    """Print the table, or the constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--links", action="store_true")
    options = parser.parse_args()
    for line in links(options.data) if options.links else of_collectives(options.data):
        print(line, flush=True)


if __name__ == "__main__":
    main()
