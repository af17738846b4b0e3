"""How long steps of training are said to take: of every model, on every GPU and link, and by what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from perdure.model.profiles import PairProfile
from perdure.throughput.application import applications, rated_applications
from perdure.throughput.collectives import INSIDE, GpuLayout, Transport
from perdure.throughput.colocation import colocation
from perdure.throughput.compute import GPUS
from perdure.throughput.first_to_end import GpuChoice, TimeSpread, by_end, chance_before
from perdure.throughput.fit import StepTimes, fit
from perdure.throughput.goodput import BatchLimits, StatisticalEfficiency, best_batch
from perdure.throughput.gpu_types import fill_unseen
from perdure.throughput.incast import incast, small_mark_queue
from perdure.throughput.layers import KNOWN_MODELS, layers_of
from perdure.throughput.layout_fit import fit_layouts
from perdure.throughput.layout_speed import USUAL, LayoutSpeed, SeenSteps, prior_of
from perdure.throughput.link_fit import fit_ranges
from perdure.throughput.measured_links import MEASURED_LINKS
from perdure.throughput.overlap import buckets_of
from perdure.throughput.speed import PARAMETERS, SpeedModel
from perdure.throughput.step_log import read_step_log
from perdure.throughput.training_speed import (
    TrainingSetting,
    batch_without_gain,
    gain_of_rdma,
    incast_of,
    prior_from,
    rate_wanted,
    speed_of,
)
from tests.recorded.drawn import in_words
from tests.recorded.whole_runs import Case, rounded
from tests.simulation.test_elastic import epochs, steps
from tests.simulation.test_elastic_laws import KINDS, world
from tests.simulation.test_pipelines import known as with_pipelines

LAYOUTS = (GpuLayout(1, 1), GpuLayout(1, 4), GpuLayout(2, 8), GpuLayout(5, 4, 2), GpuLayout(3, 1))
WAYS = ("", "servers", "racks", "priorities", "measured")
LINES = (
    b"iter 10: loss 1.0, time 250.5ms",
    b"step_time: 0.25 s",
    b"Time  0.310 ( 0.320)",
    b"time: 0.21, data_time: 0.1",
    b"12/100 [..] 35ms/step",
    b"3.5 it/s",
    b"| 5/10 [00:01<00:02,  2.5it/s]",
    b"val: 5%| 5/10 [00:01<00:02,  9.5it/s]",
    b"SamplesPerSec=512.5",
    b"1200.5 images/sec",
    b"steps_per_sec: 4",
    b"world_size: 8, nnodes: 2",
    b"batch_size = 32",
    b"per_device_train_batch_size=16",
    b"global_batch_size 256",
    b"2026-01-02 03:04:05 step 7 loss",
    b"nothing here",
    b"2026-01-02 03:04:07 step 9 loss",
    b"10:00:01 iteration 3",
    b"10:00:00 iteration 5",
    b"0 ms/step",
    b"7 s/batch",
)


def cases() -> Iterator[Case]:
    for model in KNOWN_MODELS:
        yield f"layers {model}", partial(_layers, model)
    for number, (model, gpu, way) in enumerate(product(KNOWN_MODELS[::3], GPUS, WAYS)):
        yield f"{model} {gpu} {way}", partial(_speed, model, gpu, way, number)
    for number, model in enumerate(KNOWN_MODELS[::4]):
        yield f"wanted {model}", partial(_wanted, model, number)
    for seed in range(12):
        yield f"fitted {seed}", partial(_fitted, seed)
        yield f"layouts {seed}", partial(_layouts, seed)
        yield f"goodput {seed}", partial(_goodput, seed)
        yield f"measured {seed}", partial(_measured, seed)
        yield f"choices {seed}", partial(_choices, seed)
        yield f"incast {seed}", partial(_incast, seed)
        yield f"unseen {seed}", partial(_unseen, seed)
    for seed in range(40):
        yield f"log {seed}", partial(_log, seed)
    for seed in range(3):
        yield f"link {seed}", partial(_link, seed)
    for name in sorted(map(str, MEASURED_LINKS)):
        yield f"link {name}", partial(_measured_link, name)


def _layers(model: str) -> object:
    layers = layers_of(model)
    return layers.total_parameters, layers, [buckets_of(layers, size) for size in (25 << 20, 1 << 20)]


def _setting(model: str, gpu: str, way: str, number: int) -> TrainingSetting:
    inside, transport = sorted(INSIDE)[number % len(INSIDE)], list(Transport)[number % 2]
    rate, layout, batch = (10.0, 25.0, 100.0)[number % 3], LAYOUTS[number % len(LAYOUTS)], (1, 8, 64)[number % 3]
    setting = TrainingSetting(layers_of(model), GPUS[gpu], batch, layout, rate, transport, inside)
    match way:
        case "servers":
            return replace(setting, servers=1 + number % 4, priorities=number % 2 == 0)
        case "racks":
            return replace(setting, oversubscription=1.0 + number % 5)
        case "priorities":
            return replace(setting, priorities=True)
        case "measured":
            return replace(setting, measured_s=0.2 + number % 7 / 10, measured_batch=number % 3 * 16)
    return setting


def _speed(model: str, gpu: str, way: str, number: int) -> object:
    found = speed_of(_setting(model, gpu, way, number))
    step = found.step
    return (
        step,
        step.exposed_s,
        step.efficiency,
        found.low_s,
        found.high_s,
        found.examples_per_s,
        found.bottleneck,
        gain_of_rdma(found.setting),
    )


def _wanted(model: str, number: int) -> object:
    setting = replace(_setting(model, "v100", "", number), layout=GpuLayout(2, 4))
    shared = replace(setting, layout=GpuLayout(4, 2, 2), servers=3, transport=Transport.RDMA)
    bursts = [each and (each.queue_bytes, each.pause_share) for each in (incast_of(shared), incast_of(setting))]
    prior = rounded(in_words(prior_from(setting)), 3)
    return rate_wanted(setting), batch_without_gain(setting), bursts, prior


def _model(rng: np.random.Generator) -> SpeedModel:
    times = dict(zip(PARAMETERS[:6], rng.uniform(0.01, 0.3, 6).tolist(), strict=True))
    return SpeedModel(**times, gamma=float(rng.uniform(1.0, 4.0)))


def _fitted(seed: int) -> object:
    """A model fitted to steps of another: some on one GPU alone, some without several nodes, or with one batch."""
    rng = np.random.default_rng([seed, 9])
    true, n = _model(rng), 24
    gpus = rng.integers(1, (2, 5, 17)[seed % 3], n)
    nodes = np.minimum(gpus, rng.integers(1, (2, 5)[seed % 2], n))
    local = rng.choice([8, 16, 32] if seed % 4 else [16], n).astype(float)
    gradient_s, step_s = true.gradient_s(local), true.step_s(nodes, gpus, local) * rng.uniform(0.98, 1.02, n)
    found = fit(StepTimes(nodes, gpus, local, gradient_s, step_s))
    at = np.array([1, 1, 2, 4]), np.array([1, 4, 8, 16]), np.array([8, 16, 32, 32])
    said = in_words((found.seen, found.freedom, found.model.step_s(*at), found.interval(*at), found.spread))
    return rounded(said, 3)


def _layouts(seed: int) -> object:
    rng = np.random.default_rng([seed, 10])
    n = (1, 3, 7, 20)[seed % 4]
    batches = np.log(np.array([8.0, 64.0]))
    true = LayoutSpeed(np.concatenate([np.log(rng.uniform(0.01, 0.3, 3)), rng.normal(-1, 0.5, 6), [0.0, 0.1]]), batches)
    gpus = rng.integers(1, 9, n)
    nodes = np.minimum(gpus, rng.integers(1, 3, n))
    local = rng.choice([8.0, 32.0, 64.0], n)
    step_s = true.step_s(nodes, gpus, local)
    waiting = np.where(rng.random(n) < 0.5, true.waiting_s(nodes, gpus, local), np.nan) if seed % 3 else None
    found = fit_layouts(SeenSteps(nodes, gpus, local, step_s, waiting), USUAL if seed % 2 else prior_of([true]))
    at = [(1, 1, 8.0), (1, 8, 16.0), (2, 8, 64.0), (4, 16, 128.0), (int(nodes[0]), int(gpus[0]), float(local[0]))]
    told = [(found.model.step_s(*one), found.interval(*one), found.known_by(*one), found.seen_like(*one)) for one in at]
    own = [(true.passes_s(*one), true.sync_s(*one[:2]), true.waiting_s(*one)) for one in at]
    return rounded(in_words(told), 3), own


def _goodput(seed: int) -> object:
    rng = np.random.default_rng([seed, 11])
    model, base = _model(rng), int(rng.choice([16, 64, 100]))
    worth = StatisticalEfficiency.from_gradients(rng.uniform(0.1, 2), rng.uniform(0, 5), base)
    nodes, gpus = np.array([1, 1, 1, 2, 2, 4]), np.array([1, 2, 3, 2, 8, 16])
    limits = [BatchLimits(4, 32, 1000), BatchLimits(16, 100, 256, accumulates=False)][seed % 2]
    batch = np.array([16, 100, 2000])
    return (
        best_batch(model, worth, limits, nodes, gpus),
        worth.efficiency(batch),
        [getattr(model, name) for name in PARAMETERS],
        model.throughput(2, 8, 32, np.array([0, 1, 3])),
        model.synchronise_s(nodes, gpus),
    )


def _measured(seed: int) -> object:
    """Speeds of applications between what was measured, and what pairs keep."""
    rng = np.random.default_rng([seed, 12])
    told = list[object]()
    for known in (applications(steps(), epochs(), ["net"]), with_pipelines()):
        for name, each in known.items():
            told.append((name, each.base_batch, each.largest_batch, each.work, each.reach(sorted(each.speed))))
            batch, epoch = float(rng.uniform(each.base_batch, each.largest_batch)), int(rng.integers(0, 5))
            told.append((each.gradients(batch, epoch), each.gains(batch), each.of_steps(500.0).work))
            told.append([each.steps_left(batch, epoch)] if each.iterations is not None else [])
            for kind, speed in each.speed.items():
                told.append((speed.smallest_local, speed.largest_local, speed.single, speed.most_gpus))
                layouts = [tuple(rng.integers(1, 5, rng.integers(1, 4)).tolist()) for _ in range(6)]
                told += [
                    (kind, one, speed.step_s(one, int(b)), speed.largest_local_on(one))
                    for one, b in zip(layouts, rng.integers(1, 40, 6), strict=True)
                ]
    return told, _pairs(seed, rng)


def _pairs(seed: int, rng: np.random.Generator) -> object:
    rates, n = world("sia", seed).rates, 30
    known = rated_applications(rates, KINDS)
    pairs = PairProfile(
        rng.choice([*KINDS, "other"], n),
        rng.choice(KINDS, n),
        rng.choice(["fast", "slow", "none"], n),
        rng.choice([1, 2, 4], n),
        rng.random(n) < 0.7,
        rng.uniform(0, 4, n) * (rng.random(n) < 0.8),
    )
    found = colocation(pairs, known)
    spots = product(("fast", "slow"), (1, 2), (1, 2), KINDS, KINDS)
    return [(found.kept(*spot), found.is_measured(*spot), found.fits(*spot)) for spot in spots], found


def _choices(seed: int) -> object:
    rng = np.random.default_rng([seed, 13])

    def spread() -> TimeSpread:
        low, middle, high = np.sort(rng.uniform(0, 5000, 3)).tolist()
        return TimeSpread(low, middle, middle if rng.random() < 0.2 else high)

    found = [GpuChoice(str(gpus), gpus, spread(), spread()) for gpus in (1, 2, 4, 8)]
    chances = [chance_before(one, other, cause) for one in found for other in found for cause in (False, True)]
    return by_end(found), [(each.end, each.gpu_hours, each.wait.deviation_s) for each in found], chances


def _incast(seed: int) -> object:
    senders, rate = (2, 8, 40)[seed % 3], (1.25e9, 5e9, 12.5e9)[seed % 2]
    found = incast(senders, rate, None, 0.004, 0.001 * (seed % 2))
    return (
        found.queue_bytes,
        found.most_queue_bytes,
        found.utilisation,
        found.pause_share,
        small_mark_queue(senders, rate),
    )


def _unseen(seed: int) -> object:
    rng = np.random.default_rng([seed, 14])
    gpus, kind = np.tile([1, 2, 4, 4], 3), np.repeat([0, 1, 2], 4)
    nodes = np.tile([1, 1, 1, 2], 3)
    seen = np.where(rng.random((4, 12)) < 0.5, rng.uniform(10, 200, (4, 12)), np.nan)
    return fill_unseen(seen, gpus, nodes, kind)


def _log(seed: int) -> object:
    rng = np.random.default_rng([seed, 15])
    lines = [LINES[place] for place in rng.integers(0, len(LINES), rng.integers(1, 15))]
    text = b"\n".join(lines * int(rng.choice([1, 5])))
    found = read_step_log([text[:20], text[20:]], "train.log")
    return found, found.step_s(found.gpus or 1, found.batch or 1)


def _link(seed: int) -> str:
    rng = np.random.default_rng([seed, 16])
    size = np.repeat(np.geomspace(1024, 1 << 27, 18), 2)
    members = np.tile([2.0, 8.0], 18)
    seconds = (1e-5 * members + size / 5e9 * 2 * (members - 1) / members) * rng.uniform(0.95, 1.05, 36)
    return rounded(in_words(fit_ranges(size, members, seconds)), 3)


def _measured_link(name: str) -> object:
    link = next(link for key, link in MEASURED_LINKS.items() if str(key) == name)
    return [link.all_reduce_s(np.array([1e3, 1e5, 1e7, 1e9]), members) for members in (1, 2, 4, 8)]
