"""How well waits are predicted: every predictor walked forward over looks, beside constants and TROUT's recipe.

Run: python -m benchmarks.waits DATA [--cut 2021-06-17] [--before 2021-06-01] [--only NAME,...] --out waits.md
(`make bench-waits`). Each row is measured on the days from the cut on, and on those from `--before` up to the cut, on
which the settings were chosen. Rows measured before are kept in --keep, so that some may be measured alone.

- *constant*: the median of all waits known at the cut; *constant (8th percentile)*: what has the least MAPE.
- *TROUT's recipe*: its network on minutes, learned once at the cut from waits over 10 minutes, inputs scaled to 0..1.
- *random rows*: `blend`'s models learned from a random 80% of the rows and asked about the rest. It is what a random
  split shows, and worth nothing: batches of equal jobs lie on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from perdure.traces.snapshots import read_looks
from perdure.waits.blend import Blend
from perdure.waits.evaluate import DAY_S, Answers, score, walk
from perdure.waits.features import wait_table
from perdure.waits.network import Training, run, smooth_l1
from perdure.waits.protocol import LEVELS
from perdure.waits.registry import NAMES, predictor_named
from perdure.waits.table import WaitTable
from perdure.waits.trout import SHORT_S, inputs_of

COLUMNS = (
    "predictor", "MSE(log10)", "within 2x", "80% holds", "worst day", "width, decades", "pinball .1 / .5 / .9",
    "MdAE, h", "balanced accuracy 10 min / 1 h / 6 h", "MAPE", "s",
)  # fmt: skip
ONLY_POINTS = ("constant", "constant (8th percentile)", "TROUT's recipe", "random rows")


@dataclass(frozen=True)
class Constant:
    """Says the same of all: a quantile of the waits known at its first learning."""

    level: float
    name: str

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Any = None) -> Any:
        if before is not None:
            return before
        wait_s = seen.known_at(now).wait_s
        answer = float(np.quantile(wait_s[np.isfinite(wait_s)], self.level))
        return Point(lambda asked: np.full(len(asked), answer))


@dataclass(frozen=True)
class Recipe:
    """TROUT's regression, learned once."""

    name: str

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Any = None) -> Any:
        if before is not None:
            return before
        known = seen.known_at(now)
        known = known.take(known.started & (known.waited_s > SHORT_S))
        known = known.take(rng.permutation(len(known))[:45_000])
        inputs = inputs_of(known)
        low, span = inputs.min(axis=0), np.maximum(np.ptp(inputs, axis=0), 1e-9)
        layers = Training().fit((inputs - low) / span, known.wait_s / 60, smooth_l1, rng)
        return Point(lambda asked: np.maximum(run(layers, (inputs_of(asked) - low) / span), 1 / 60) * 60)


@dataclass(frozen=True)
class Point:
    """An answer without an interval."""

    answer: Callable[[WaitTable], Any]
    remarks: tuple[str, ...] = ()

    def quantiles(self, asked: WaitTable, levels: Any = LEVELS) -> Any:
        return np.repeat(self.answer(asked)[:, None], len(levels), axis=1)


OTHERS: Mapping[str, Any] = {
    "constant": Constant(0.5, "constant"),
    "constant (8th percentile)": Constant(0.08, "constant (8th percentile)"),
    "TROUT's recipe": Recipe("TROUT's recipe"),
}


def random_rows(table: WaitTable) -> Answers:
    """What a random split of rows would show of `blend`."""
    rng = default_rng(0)
    mixed = table.take(rng.permutation(len(table)))
    learn, ask = mixed.take(np.arange(len(table)) % 5 > 0), mixed.take(np.arange(len(table)) % 5 == 0)
    ended = replace(learn, seen_until_s=learn.start_s)
    sample = replace(Blend().sample, rows=60_000, half_life_days=1e6, batch_power=0.0)
    centre = replace(Blend(), sample=sample).centre(ended, float(table.poll_s.max()), rng, None)
    said = 10 ** centre.answer(ask)[0]
    return Answers(ask, (ask.poll_s // DAY_S).astype(np.int64), np.repeat(said[:, None], 3, axis=1))


def measured(name: str, table: WaitTable, cut_s: float) -> dict[str, Any]:
    began = time.process_time()
    if name == "random rows":
        answers = random_rows(table)
    else:
        answers = walk(table, OTHERS[name] if name in OTHERS else predictor_named(name), cut_s)
    found = asdict(score(answers))
    wait_s = answers.table.wait_s
    found["mape"] = float(np.nanmean(np.abs(answers.quantiles_s[:, 1] - wait_s) / np.maximum(wait_s, 1)))
    return {**found, "seconds": time.process_time() - began}


def row(name: str, found: Mapping[str, Any]) -> str:
    point = name in ONLY_POINTS
    pinball = " / ".join(f"{loss:.3f}" for loss in found["pinball_log10"])
    balanced = " / ".join(f"{each['balanced_accuracy']:.2f}" for each in found["thresholds"])
    cells = (
        name, f"{found['mse_log10']:.3f}", f"{found['within_2x']:.3f}",
        "" if point else f"{found['coverage']:.1%}", "" if point else f"{found['worst_day_coverage']:.1%}",
        "" if point else f"{found['width_decades']:.2f}", "" if point else pinball,
        f"{found['median_abs_error_s'] / 3600:.2f}", balanced, f"{found['mape']:.0%}", f"{found['seconds']:.0f}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def page(kept: Mapping[str, Mapping[str, Any]], command: str, about: str) -> str:
    parts = ["# How well waits are predicted", "", f"`{command}`, {about}.", ""]
    parts += [line.strip() for line in (__doc__ or "").split("\n\n", 2)[2].strip().splitlines()]
    for when, rows in kept.items():
        if not rows:
            continue
        some = next(iter(rows.values()))
        base = ", ".join(f"{each['base_rate']:.2f} for {each['over_s'] / 60:.0f} min" for each in some["thresholds"])
        parts += [
            "",
            f"## {when}",
            "",
            f"{some['n']} looks. Always saying the more frequent answer is right {base}.",
            "",
        ]
        parts += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        parts += [row(name, rows[name]) for name in (*NAMES, *ONLY_POINTS) if name in rows]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--cut", type=date.fromisoformat, default=date(2021, 6, 17))
    parser.add_argument("--before", type=date.fromisoformat, default=date(2021, 6, 1))
    parser.add_argument("--only", default=",".join((*NAMES, *ONLY_POINTS)))
    parser.add_argument("--keep", type=Path, default=Path("build/waits.json"))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    looks = read_looks(asked.data)
    table = wait_table(looks)
    cut_s, before_s = ((day - looks.day_zero).days * DAY_S for day in (asked.cut, asked.before))
    kept = json.loads(asked.keep.read_text()) if asked.keep.exists() else {}
    spans = {
        f"{asked.data.name}, from {asked.cut} on": (table, cut_s),
        f"{asked.data.name}, {asked.before} up to {asked.cut}": (table.take(table.poll_s < cut_s), before_s),
    }
    for name in filter(None, asked.only.split(",")):
        for when, (part, from_s) in spans.items():
            kept.setdefault(when, {})[name] = measured(name, part, from_s)
            print(when, row(name, kept[when][name]), file=sys.stderr, flush=True)
            asked.keep.parent.mkdir(parents=True, exist_ok=True)
            asked.keep.write_text(json.dumps(kept))
    about = (
        f"{os.cpu_count()} shared cores, {platform.machine()}, Python {platform.python_version()}; s is processor time"
    )
    text = page(kept, "make bench-waits", about)
    asked.out.write_text(text) if asked.out else print(text)


if __name__ == "__main__":
    main()
