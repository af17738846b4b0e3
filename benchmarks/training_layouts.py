"""How far steps by layout are off what Sia and Pollux measured: in sample, and at more GPUs than seen.

    python -m benchmarks.training_layouts

DIR/gpu-profiles (default of DIR: PERDURE_DATA, or ../shared/data) holds the tables of the artifacts of Pollux and Sia.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

from perdure.throughput.fit import StepTimes, fit
from perdure.throughput.layout_fit import fit_layouts
from perdure.throughput.layout_speed import LEAST_ERROR, LayoutFit, SeenSteps
from perdure.throughput.speed import Floats

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("PERDURE_DATA", ROOT.parent / "shared" / "data"))
APPLICATIONS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
CLUSTERS = ("aws", "azure", "dgx-ext", "quad", "rtx")  # the others are the same rows, or a part of them
KNOWN, ASKED = 0.7, 0.8  # of the most GPUs: fitted up to the first, judged above the second

Key = tuple[str, str]  # application, cluster
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Profile:
    """Steps of an application on a cluster, and of each the time that synchronising took."""

    seen: SeenSteps
    sync_s: Floats

    def where(self, which: Flags) -> Profile:
        return Profile(self.seen.where(which), self.sync_s[which])


def read(data: Path, table: str) -> dict[Key, Profile]:
    """The rows of ``placements`` (every layout of up to 16 GPUs) or ``scalability`` (up to 64)."""
    gpus = "num_gpus" if table == "placements" else "num_replicas"
    query = (
        f"select app, cluster, num_nodes, {gpus}, local_bsz, step_time, sync_time "
        f"from '{data}/gpu-profiles/sia/sia_{table}.parquet' "
        "where list_contains(?, app) and list_contains(?, cluster) and step_time > sync_time order by all"
    )
    rows = duckdb.connect().execute(query, [APPLICATIONS, CLUSTERS]).fetchnumpy()
    found = {}
    for key in sorted(set(zip(rows["app"].tolist(), rows["cluster"].tolist(), strict=True))):
        own = (rows["app"] == key[0]) & (rows["cluster"] == key[1])
        nodes, count, batch, step, sync = (
            np.asarray(rows[name][own]) for name in ("num_nodes", gpus, "local_bsz", "step_time", "sync_time")
        )
        found[key] = Profile(SeenSteps(nodes, count, batch.astype(float), step), sync)
    return found


def errors(fitted: LayoutFit, asked: SeenSteps) -> Floats:
    return np.abs(fitted.model.step_s(asked.nodes, asked.gpus, asked.local_batch) / asked.step_s - 1)


def of_peer(known: Profile, asked: SeenSteps) -> Floats:
    """Errors of the model of Pollux, fitted as it is there."""
    rows = known.seen
    model = fit(StepTimes(rows.nodes, rows.gpus, rows.local_batch, rows.step_s - known.sync_s, rows.step_s)).model
    return np.abs(model.step_s(asked.nodes, asked.gpus, asked.local_batch) / asked.step_s - 1)


def beyond(profile: Profile) -> tuple[Profile, SeenSteps] | None:
    """What is known and what is asked of more GPUs; None where too little is."""
    most = profile.seen.gpus.max()
    known, asked = (
        profile.where(profile.seen.gpus <= KNOWN * most),
        profile.seen.where(profile.seen.gpus > ASKED * most),
    )
    return (known, asked) if len(known.sync_s) > 5 and len(asked.step_s) else None


def between(profile: Profile, rng: np.random.Generator) -> tuple[Profile, SeenSteps]:
    """The same with a third of the rows drawn and asked."""
    asked = rng.random(len(profile.sync_s)) < 1 / 3
    return profile.where(~asked), profile.seen.where(asked)


def of_throughput(profiles: Mapping[str, Mapping[Key, Profile]]) -> Iterator[str]:
    yield "Steps by layout, one fit for each application and cluster: the median over fits.\n"
    yield (
        "| rows | fits | in sample, mean error: ours | Pollux | a third held out "
        "| more GPUs than seen, median: ours | Pollux | worst |"
    )
    yield "|---" * 8 + "|"
    for table, all_of in profiles.items():
        ours, peer, third = list[float](), list[float](), list[float]()
        far = list[tuple[float, float, Key]]()
        for key, profile in all_of.items():
            ours.append(float(errors(fit_layouts(profile.seen), profile.seen).mean()))
            peer.append(float(of_peer(profile, profile.seen).mean()))
            known, asked = between(profile, np.random.default_rng(0))
            third.append(float(errors(fit_layouts(known.seen), asked).mean()))
            if (pair := beyond(profile)) is not None:
                own = float(np.median(errors(fit_layouts(pair[0].seen), pair[1])))
                far.append((own, float(np.median(of_peer(*pair))), key))
        worst = ", ".join(f"{' '.join(key)} {error:.0%}" for error, _, key in sorted(far)[-3:])
        beside = " | ".join(f"{np.median([row[at] for row in far]):.1%}" for at in (0, 1))
        cells = f"{np.median(ours):.1%} | {np.median(peer):.1%} | {np.median(third):.1%} | {beside} | {worst}"
        yield f"| {table} | {len(all_of)} | {cells} |"
    yield "\nBars: 5 % in sample, 9 % at more GPUs.\n"


def of_intervals(profiles: Mapping[str, Mapping[Key, Profile]]) -> Iterator[str]:
    """How many spreads errors are, and how often intervals made of other applications' hold."""
    yield "Intervals of 80 %: their width is taken from the other applications (conformal).\n"
    yield "| asked | spreads, all applications | steps within, applications held out | by application |"
    yield "|---" * 4 + "|"
    rng = np.random.default_rng(1)
    kinds: dict[str, Callable[[Profile], tuple[Profile, SeenSteps] | None]] = {
        "a third held out": lambda profile: between(profile, rng),
        "more GPUs than seen": beyond,
    }
    for name, cut in kinds.items():
        scores: dict[str, list[Floats]] = {each: [] for each in APPLICATIONS}
        for key, profile in (item for all_of in profiles.values() for item in all_of.items()):
            if (pair := cut(profile)) is None:
                continue
            fitted, asked = fit_layouts(pair[0].seen), pair[1]
            off = np.abs(np.log(fitted.model.step_s(asked.nodes, asked.gpus, asked.local_batch) / asked.step_s))
            scores[key[0]].append(off / max(fitted.spread, LEAST_ERROR))
        level = {
            each: _level(found for other in APPLICATIONS if other != each for found in scores[other]) for each in scores
        }
        held = {each: np.concatenate(found) <= level[each] for each, found in scores.items()}
        every = _level(found for each in scores.values() for found in each)
        by = ", ".join(f"{each} {inside.mean():.0%}" for each, inside in held.items())
        yield f"| {name} | {every:.2f} | {np.concatenate(list(held.values())).mean():.0%} | {by} |"
    yield ""


def _level(scores: Iterator[Floats]) -> float:
    """The score that 80 % of steps stay below."""
    return float(np.quantile(np.concatenate(list(scores)), 0.8))


def of_few(profiles: Mapping[Key, Profile]) -> Iterator[str]:
    """Errors where few steps were seen, drawn from all rows, and again from those of one node."""
    yield "Seen so few rows, 80 % of errors (logarithms) stay below:\n"
    yield "| rows | such a layout seen | with another batch | no such layout seen | with another batch |"
    yield "|---" * 5 + "|"
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 4, 6):
        found: dict[tuple[bool, bool], list[Floats]] = {
            (kind, batch): [] for kind in (True, False) for batch in (True, False)
        }
        for seen in (profile.seen for profile in profiles.values()):
            one_node = np.flatnonzero(seen.nodes == 1)
            for rows in (np.arange(len(seen.nodes)), one_node):
                if len(rows) < count:
                    continue
                used = np.isin(np.arange(len(seen.nodes)), rng.choice(rows, count, replace=False))
                _few_errors(fit_layouts(seen.where(used)), seen.where(~used), found)
        levels = [_level(iter(found[key])) for key in ((True, True), (True, False), (False, True), (False, False))]
        yield f"| {count} | " + " | ".join(f"{level:.2f}" for level in levels) + " |"
    yield ""


def _few_errors(fitted: LayoutFit, asked: SeenSteps, found: Mapping[tuple[bool, bool], list[Floats]]) -> None:
    off = np.abs(np.log(fitted.model.step_s(asked.nodes, asked.gpus, asked.local_batch) / asked.step_s))
    kind, within, _ = fitted.seen_like(asked.nodes, asked.gpus, asked.local_batch)
    for known in (True, False):
        for batch in (True, False):
            which = (kind == known) & (within == batch)
            if which.any():
                found[known, batch].append(off[which])


def of_layouts(data: Path) -> Iterator[str]:
    """All tables' lines."""
    profiles = {table: read(data, table) for table in ("placements", "scalability")}
    yield from of_throughput(profiles)
    yield from of_intervals(profiles)
    yield from of_few(profiles["placements"])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    for line in of_layouts(parser.parse_args().data):
        print(line, flush=True)


if __name__ == "__main__":
    main()
