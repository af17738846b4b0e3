"""Makes ``src/perdure/emulation/h100.csv`` of our own measurements in ``gpu_profiles``.

    python benchmarks/emulation_profiles.py

Seconds and MiB; `transfer_s` is of as many images of 224 x 224 in single precision, pinned; memory with 500 MiB for the
driver's context, which the measurements leave out.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from perdure.emulation.profiles import COLUMNS, CONTEXT_MIB, IMAGE_BYTES, MIB

HERE = Path(__file__).parent / "gpu_profiles"
TO = Path(__file__).parents[1] / "src/perdure/emulation/h100.csv"


def main() -> None:
    with (HERE / "copies.csv").open(newline="") as file:
        copies = [
            (float(row["bytes"]), float(row["median_ms"]) / 1e3)
            for row in csv.DictReader(file)
            if (row["direction"], row["host_memory"]) == ("h2d", "pinned")
        ]
    sizes, seconds = np.array(copies).T
    with (HERE / "steps.csv").open(newline="") as file, TO.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["gpu", "model", "batch", *COLUMNS])
        for row in csv.DictReader(file):
            if row["state"] != "ok":
                continue
            model = row["model"].replace("gpt2-small", "gpt2") + ("-bf16" if row["precision"] == "bf16" else "")
            parts = (float(row[f"{name}_ms"]) / 1e3 for name in ("forward", "backward", "optimiser"))
            moved = float(np.interp(int(row["batch"]) * IMAGE_BYTES, sizes, seconds))
            memory = (int(row[name]) / MIB + CONTEXT_MIB for name in ("peak_bytes", "persistent_bytes"))
            writer.writerow(
                [
                    "h100",
                    model,
                    row["batch"],
                    *(f"{each:.7f}" for each in (*parts, moved)),
                    *(f"{m:.1f}" for m in memory),
                ]
            )


if __name__ == "__main__":
    main()
