"""How far the waiting for gradients of a program is off that a site has not seen, and how near any model could come.

    python -m benchmarks.training_waiting

Waiting is the column `sync_time` of the tables of Pollux and Sia (see `training_layouts`). AdaptDL measured it by
events on the GPU, from the last gradient of the backward pass to the end of the all-reduce: what the backward pass does
not hide, and the wait for slower GPUs. It is no difference of steps on many GPUs and on one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.training_layouts import APPLICATIONS, CLUSTERS, DATA, Flags, Key, Profile, read
from perdure.throughput.layout_fit import fit_layouts
from perdure.throughput.layout_speed import LayoutSpeed, Prior, SeenSteps, prior_of
from perdure.throughput.speed import Floats

CALIBRATED = ((1, 1), (1, 2), (2, 2))  # nodes and GPUs on which a held-out program is seen
GRADIENTS_MB = {"bert": 438.0, "cifar10": 44.7, "imagenet": 102.2, "ncf": 6.4, "yolov3": 247.8}
"""Of BERT-base, ResNet-18 and -50, NeuMF of MovieLens-1M (32 factors, three layers) and YOLOv3, in single precision.
That of DeepSpeech2 is not published with its times: it is fitted without.
"""
LEAST_SPREAD = 0.2  # of seconds a byte between programs (logarithm)
MUCH = 0.2  # of a step
BAD = 0.2

Told = Mapping[Key, tuple[Floats, Floats, Flags]]  # errors of steps and of waiting, and where that is `MUCH`


@dataclass(frozen=True, slots=True)
class Seen:
    """What a fit is given of the held-out program."""

    title: str
    layouts: Sequence[tuple[int, int]]
    waiting: bool = False

    def rows(self, profile: Profile) -> SeenSteps:
        seen = profile.seen.where(_on(profile.seen, self.layouts))
        return replace(seen, waiting_s=None) if not self.waiting else seen


WAYS = (
    Seen("one GPU (left out whole)", CALIBRATED[:1]),
    Seen("one GPU, two of a node, two nodes", CALIBRATED),
    Seen("the same, and what they waited", CALIBRATED, waiting=True),
)


def _on(seen: SeenSteps, layouts: Sequence[tuple[int, int]]) -> Flags:
    return np.asarray(np.any([(seen.nodes == nodes) & (seen.gpus == gpus) for nodes, gpus in layouts], axis=0))


def errors(model: LayoutSpeed, asked: SeenSteps) -> tuple[Floats, Floats, Flags]:
    """Relative errors of steps and of waiting, and where waiting is a fifth of the step or more."""
    waiting, where = np.asarray(asked.waiting_s), (asked.nodes, asked.gpus, asked.local_batch)
    told = model.step_s(*where), model.waiting_s(*where)
    return np.abs(told[0] / asked.step_s - 1), np.abs(told[1] / waiting - 1), waiting > MUCH * asked.step_s


def site_prior(others: Mapping[str, LayoutSpeed], application: str) -> Prior:
    """What the other programs of a cluster say of this one: their shape, and their seconds a byte of gradients."""
    prior = prior_of(list(others.values()))
    if application not in GRADIENTS_MB:
        return prior
    per_mb = np.array(
        [model.theta[2] - np.log(GRADIENTS_MB[name]) for name, model in others.items() if name in GRADIENTS_MB]
    )
    middle = np.median(per_mb)
    spread = max(1.4826 * float(np.median(np.abs(per_mb - middle))), LEAST_SPREAD)
    return replace(prior, inside_s=float(np.exp(middle)) * GRADIENTS_MB[application], inside_spread=spread)


def of_waiting(profiles: Mapping[Key, Profile]) -> Iterator[str]:
    """The tables of programs held out, and the floor."""
    profiles = {key: Profile(replace(each.seen, waiting_s=each.sync_s), each.sync_s) for key, each in profiles.items()}
    asked = {key: each.seen.where(~_on(each.seen, CALIBRATED)) for key, each in profiles.items()}
    whole = {key: fit_layouts(each.seen).model for key, each in profiles.items()}
    yield (
        "Each application held out, the shape taken from the others of its cluster, and their seconds a byte of "
        "gradients. Median errors on all layouts but those of one GPU, two of a node and two nodes. What the program "
        "itself was seen on:\n"
    )
    yield f"| seen | | all | {' | '.join((*APPLICATIONS, *CLUSTERS))} |"
    yield "|---" * (3 + len(APPLICATIONS) + len(CLUSTERS)) + "|"
    for way in WAYS:
        told = dict[Key, tuple[Floats, Floats, Flags]]()
        for (name, cluster), profile in profiles.items():
            others = {other: each for (other, where), each in whole.items() if where == cluster and other != name}
            model = fit_layouts(way.rows(profile), site_prior(others, name)).model
            told[name, cluster] = errors(model, asked[name, cluster])
        yield from _rows(way.title, told)
    yield from _rows("two thirds of its layouts", {key: _third(each, key) for key, each in profiles.items()})
    sample = {key: errors(whole[key], rows) for key, rows in asked.items()}
    yield from _rows("every row (in sample)", sample)
    yield "\nBar: 10 %.\n"
    yield from _floor(profiles, sample)


def _rows(title: str, told: Told) -> Iterator[str]:
    groups = [list(told), *([key for key in told if name in key] for name in (*APPLICATIONS, *CLUSTERS))]
    for what, at, much in (("step", 0, False), ("waiting", 1, False), ("waiting of a fifth or more", 1, True)):
        cells = []
        for group in groups:
            off = np.concatenate([told[key][at][told[key][2]] if much else told[key][at] for key in group])
            cells.append(f"{np.median(off):.1%}" if len(off) else "")
        yield f"| {title if not at else ''} | {what} | {' | '.join(cells)} |"


def _third(profile: Profile, key: Key) -> tuple[Floats, Floats, Flags]:
    """Errors on a third of the layouts, fitted to the others."""
    layouts = np.unique(np.column_stack([profile.seen.nodes, profile.seen.gpus]), axis=0)
    rng = np.random.default_rng([APPLICATIONS.index(key[0]), CLUSTERS.index(key[1])])
    drawn = layouts[(rng.random(len(layouts)) < 1 / 3) & (layouts[:, 1] > 1)]
    held = _on(profile.seen, [(int(nodes), int(gpus)) for nodes, gpus in drawn]) if len(drawn) else None
    if held is None:
        return np.array([]), np.array([]), np.array([], bool)
    return errors(fit_layouts(profile.seen.where(~held)).model, profile.seen.where(held))


def _floor(profiles: Mapping[Key, Profile], sample: Told) -> Iterator[str]:
    """How near any model comes that knows nodes, GPUs and batch, and where steps do not tell waiting."""
    own = [_apart(each.seen) for each in profiles.values()]
    off, much = np.concatenate([each[0] for each in own]), np.concatenate([each[1] for each in own])
    yield (
        "The floor: rows with the same nodes, GPUs and batch differ in how many GPUs are on which node, and in their "
        f"nodes. From their own median, waiting is {np.median(off):.1%} off ({np.median(off[much]):.1%} where it is a "
        "fifth of the step or more): no model of these three comes nearer."
    )
    worse = sorted(((float(np.median(each[1])), key) for key, each in sample.items()), reverse=True)
    bad = ", ".join(f"{' '.join(key)} {error:.0%}" for error, key in worse if error > BAD)
    yield f"\nFitted to all rows of one application and cluster, waiting is still more than {BAD:.0%} off in: {bad}."
    shorter = [(_shorter(each.seen), key) for key, each in profiles.items()]
    told = ", ".join(f"{' '.join(key)} {share:.0%}" for share, key in sorted(shorter, reverse=True) if share > 0.05)
    yield (
        "\nSteps do not tell waiting where computing itself is quicker on several GPUs than on one, as where loading "
        f"data takes turns. Share of rows on several GPUs whose step is shorter than one GPU's: {told}.\n"
    )


def _apart(seen: SeenSteps) -> tuple[Floats, Flags]:
    several = seen.where(~_on(seen, CALIBRATED))
    waiting = np.asarray(several.waiting_s)
    cells = np.unique(np.column_stack([several.nodes, several.gpus, several.local_batch]), axis=0, return_inverse=True)[
        1
    ]
    middle = np.array([np.median(waiting[cells.ravel() == at]) for at in range(cells.max() + 1)])
    return np.abs(middle[cells.ravel()] / waiting - 1), waiting > MUCH * several.step_s


def _shorter(seen: SeenSteps) -> float:
    one, several = seen.where(seen.gpus == 1), seen.where(seen.gpus > 1)
    alone = {batch: np.median(one.step_s[one.local_batch == batch]) for batch in np.unique(one.local_batch)}
    return float(
        np.mean([step < alone.get(batch, 0) for batch, step in zip(several.local_batch, several.step_s, strict=True)])
    )


def of_noise(data: Path) -> str:
    """How far steps on the same layout are apart, where only the order of its nodes differs."""
    query = (
        "with rows as (select app, cluster, local_bsz, step_time, sync_time, "
        "list_sort(string_split(placement, '')) layout "
        f"from '{data}/gpu-profiles/sia/sia_placements.parquet' "
        "where list_contains(?, app) and list_contains(?, cluster)), "
        "middle as (select app, cluster, local_bsz, layout, "
        "median(step_time) as step, median(sync_time) as sync from rows group by all having count(*) > 2) "
        "select median(abs(step_time / step - 1)), median(abs(sync_time / sync - 1)), "
        "quantile_cont(abs(step_time / step - 1), 0.8) from rows join middle "
        "using (app, cluster, local_bsz, layout)"
    )
    step, sync, most = duckdb.connect().execute(query, [APPLICATIONS, CLUSTERS]).fetchall()[0]
    return (
        f"The same nodes in another order: steps are {step:.1%} off their median (80 %: {most:.1%}), waiting "
        f"{sync:.1%}.\n"
    )


def of_unseen(data: Path) -> Iterator[str]:
    """All lines."""
    yield from of_waiting(read(data, "placements"))
    yield of_noise(data)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    for line in of_unseen(parser.parse_args().data):
        print(line, flush=True)


if __name__ == "__main__":
    main()
