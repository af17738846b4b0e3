"""A training step by events: every node computes at its own pace, and every chunk of every bucket is sent hop by hop.

It shares no formula with `throughput/collectives` and `throughput/overlap`, only their constants of links: what it says
of RDMA's gain are the labels that `perdure speed` is held against.

    python -m benchmarks.training_events
"""

from __future__ import annotations

import timeit
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.training_collectives import DATA
from perdure.throughput.collectives import GpuLayout, GpuLink, Transport, network
from perdure.throughput.compute import GPUS, PassTimes, passes_on
from perdure.throughput.layers import Layers, layers_of
from perdure.throughput.speed import Floats
from perdure.throughput.training_speed import WORTH, TrainingSetting, batch_without_gain, gain_of_rdma, rate_wanted

NODES, RATES = (2, 4, 8, 16, 32), (25.0, 100.0, 200.0)
Case = tuple[str, str, int, float]  # model, GPU, batch, seconds of both passes
BATCHES = (8, 16, 32, 64, 128)
FAR_OFF = (0.1, 0.2, 0.3, 0.5)
SLOWER = 0.03  # the spread of a node's pace (logarithm)
CHUNK = 512 << 10  # bytes of a tree's pipeline
BUCKET, FIRST = 25 << 20, 1 << 20


def step_by_events(layers: Layers, passes: PassTimes, nodes: int, link: GpuLink, rng: np.random.Generator) -> float:
    """Seconds until the last node has all gradients."""
    pace = np.exp(SLOWER * rng.standard_normal(nodes))
    clock = pace * float(passes.forward.sum())
    free = np.zeros(nodes)  # when each node's sender has sent the bucket before
    filled, limit = 0.0, float(FIRST)
    for size, backward in zip(layers.parameters[::-1] * 4, passes.backward[::-1], strict=True):
        clock = clock + pace * backward
        filled += size
        if filled >= limit:
            free = _sent(filled, np.maximum(clock, free), link)
            filled, limit = 0.0, float(BUCKET)
    if filled:
        free = _sent(filled, np.maximum(clock, free), link)
    return float(np.maximum(clock, free).max())


def _sent(size: float, ready: Floats, link: GpuLink) -> Floats:
    """When each node has the sum, by whichever of a ring and two trees is done first."""
    ring, tree = _ring(size, ready, link), _trees(size, ready, link)
    return ring if ring.max() <= tree.max() else tree


def _ring(size: float, ready: Floats, link: GpuLink) -> Floats:
    """A node sends a chunk on once it has sent the one before and has got this one from its neighbour."""
    nodes, at = len(ready), ready
    hop = link.latency_s + size / nodes / link.bytes_per_s
    for _ in range(2 * (nodes - 1)):
        at = np.maximum(at, np.roll(at, 1)) + hop
    return at


def _trees(size: float, ready: Floats, link: GpuLink) -> Floats:
    """Chunks go up to the root and down again, one level after the other; each tree has half of the bytes.

    A node is an inner one of one tree and a leaf of the other: over its link go the chunks of both.
    """
    nodes = len(ready)
    levels, chunks = int(np.ceil(np.log2(nodes))), max(1, round(size / CHUNK))
    each = size / chunks / link.bytes_per_s
    at = np.full(chunks, ready.max()) + each * np.arange(1, chunks + 1)
    for level in range(2 * levels):
        arrived = at + link.latency_s
        for chunk in range(1, chunks):
            arrived[chunk] = max(arrived[chunk], arrived[chunk - 1] + each)
        at = arrived
        if level == levels - 1:  # at the root: the way down takes the same link's other half, chunk by chunk
            at = at + each * np.arange(1, chunks + 1)
    return np.full(nodes, at[-1])


def labelled(
    cases: Sequence[Case], told: Mapping[Case, float], rng: np.random.Generator
) -> Iterator[tuple[float, float, bool, bool, bool]]:
    """For each setting of the grid: TCP's step over RDMA's by events, how far passes `told` by constants fitted without
    models of that family are off (logarithm), and whether RDMA gains more than 10 % by the model with measured passes,
    by it without, and by it with passes `told`.
    """
    for name, gpu, batch, seconds in cases:
        layers = layers_of(name)
        passes = passes_on(layers, GPUS[gpu], batch).calibrated(seconds)
        for nodes in NODES:
            for rate in RATES:
                seed = int(rng.integers(1 << 32))  # nodes have the same pace with either
                tcp, rdma = (
                    step_by_events(layers, passes, nodes, network(rate, carrier), np.random.default_rng(seed))
                    for carrier in (Transport.TCP, Transport.RDMA)
                )
                setting = TrainingSetting(layers, GPUS[gpu], batch, GpuLayout(nodes), rate, Transport.TCP)
                measured = TrainingSetting(
                    layers, GPUS[gpu], batch, GpuLayout(nodes), rate, Transport.TCP, measured_s=seconds
                )
                unseen = replace(measured, measured_s=told[name, gpu, batch, seconds])
                by_step, by_estimate, by_others = (gain_of_rdma(each) > WORTH for each in (measured, setting, unseen))
                off = abs(float(np.log(told[name, gpu, batch, seconds] / seconds)))
                yield tcp / rdma, off, by_step, by_estimate, by_others


def of_grid(cases: Sequence[Case], told: Mapping[Case, float]) -> Iterator[str]:
    """The table's lines; `cases` are measured passes, `told` what others of their models say that they take."""
    kept = [case for case in cases if case[2] in BATCHES]
    found = np.array(list(labelled(kept, told, np.random.default_rng(0))))
    gain, off, measured, estimated, unseen = found.T
    label = gain > WORTH
    models, gpus = ({case[at] for case in kept} for at in (0, 1))
    yield (
        f"'RDMA gains more than 10 %': {len(found):,} settings ({len(kept)} measured passes of {len(models)} models on "
        f"{len(gpus)} GPUs, {NODES} nodes of one GPU, {RATES} Gbit/s), labelled by a simulation of events: yes in "
        f"{label.mean():.0%}.\n"
    )
    yield f"- with a measured step: right in {np.mean(measured == label):.1%}"
    right = np.mean(estimated == label)
    yield f"- with the estimate of computing, fitted to the same passes: right in {right:.1%} (bar: 95 %)"
    yield (
        f"- with the estimate, each family of models left out of the fit: right in {np.mean(unseen == label):.1%} "
        "(bar: 95 %)\n"
    )
    wrong = unseen != label
    low, middle, upper, high = np.quantile(gain[wrong], (0.1, 0.5, 0.75, 0.9)) - 1
    yield (
        f"Of the last, {wrong.sum()} settings are wrong: in {(wrong & label).sum()} RDMA gains more and the estimate "
        f"says no, in {(wrong & ~label).sum()} the other way. Their true gains: a tenth below {low:.0%}, half below "
        f"{middle:.0%}, three quarters below {upper:.0%}, nine tenths below {high:.0%}; "
        f"{np.mean(np.abs(gain[wrong] - WORTH) < 0.05):.0%} are within 5 to 15 %."
    )
    parts = np.digitize(off, FAR_OFF)
    by = [f"{np.mean(~wrong[parts == at]):.1%}" for at in range(len(FAR_OFF) + 1)]
    bounds = [f"below {FAR_OFF[0]:g}", *(f"to {bound:g}" for bound in FAR_OFF[1:]), "beyond"]
    told_by = ", ".join(f"{share} {bound}" for share, bound in zip(by, bounds, strict=True))
    yield f"Right by how far the estimate of computing is off (logarithm): {told_by}.\n"


def of_time() -> Iterator[str]:
    """Seconds of one question with all that `perdure speed` says, and of 10,000 settings."""
    setting = TrainingSetting(layers_of("resnet50"), GPUS["v100"], 32, GpuLayout(16), 100.0, Transport.TCP)
    one = min(timeit.repeat(lambda: gain_of_rdma(setting), number=10, repeat=5)) / 10
    said = min(timeit.repeat(lambda: (batch_without_gain(setting), rate_wanted(setting)), number=1, repeat=5))
    yield (
        f"One question: {one * 1e3:.1f} ms, with break-even batch and wanted link {(one + said) * 1e3:.1f} ms "
        f"(bar: 10 ms); 10,000 settings: {one * 10_000:.1f} s (bar: 10 s).\n"
    )


def main() -> None:
    """Print both."""
    from benchmarks.training_speed import cases_of, own_cases, told_by_others

    cases = cases_of(DATA) + own_cases()
    for line in (*of_time(), *of_grid(cases, told_by_others(cases))):
        print(line, flush=True)


if __name__ == "__main__":
    main()
