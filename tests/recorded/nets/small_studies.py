"""The studies, small: of retries, delays, settings, successors, switches and storage; and those of the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from perdure.emulation.sharing import ORDERS, SharingProgram, fits_beside
from perdure.emulation.studies.cpu_shares import equal, jct, tuned
from perdure.emulation.studies.data_stall import found_by_lru
from perdure.emulation.studies.interleaving import group_s, mean_jct
from perdure.emulation.studies.locality import read_share
from perdure.emulation.studies.matching import listed, matched
from perdure.emulation.studies.registry import STUDIES
from perdure.emulation.studies.sharing_iterations import speeds
from perdure.model.cluster import Cluster
from perdure.simulation.failures import philly
from perdure.studies.colocation import compare, read_days
from perdure.studies.delay import delay
from perdure.studies.retry import at_most, retry
from perdure.studies.sensitivity import delay_sensitivity, retry_sensitivity
from perdure.studies.successor_chains import dying_links, whole_chains
from perdure.studies.successors import drawn_blocks, gap_interval, load_of, mean_interval, study_cell
from perdure.studies.tor import TorStudy
from perdure.traces.generate import generate
from tests.recorded.whole_runs import Case
from tests.studies.test_successors import OPTIONS, drawn_cell, remember


def cases() -> Iterator[Case]:
    yield "retry", partial(retry, 150, (0.9, 1.3), 2, 4, 0.3, (0.7, 0.2), ("sjf", "las-2d"))
    yield "retry that forgets", partial(retry, 120, (1.2,), 1, 4, 0.5, (0.9, 0.1), ("las-2d",), forgets_service=True)
    yield "delay", partial(delay, 300, 1.0, 2, "20x2+10x8", 5)
    yield "delay in bursts", partial(delay, 300, 0.9, 1, "20x2+10x8", 5, "ladder", 1.5, True, 1.5, 1.2)
    yield "settings", _settings
    yield "successors", partial(study_cell, drawn_cell(), 0, OPTIONS, remember)
    yield "links and chains", _chains
    yield "tries", _tries
    for seed in range(8):
        yield f"colocation {seed}", partial(_days, seed)
        yield f"tor {seed}", partial(_tor, seed)
        yield f"means {seed}", partial(_means, seed)
        yield f"emulated parts {seed}", partial(_parts, seed)
    for number, (name, study) in enumerate(STUDIES.items()):
        yield f"emulated {name}", partial(study, None, np.random.default_rng(number))


def _settings() -> object:
    of_retry = retry_sensitivity(60, 1, 4, (0.1, 0.4), (0.5,), (0.9, 1.3))
    of_delay = delay_sensitivity(150, 1, "20x2+10x8", (0.9,), (None, 1.0), (0.0, 1.5))
    return [(found, found.nearest, found.ranges()) for found in (of_retry, of_delay)]


def _chains() -> object:
    return [*dying_links(drawn_cell(), 0, OPTIONS, remember), *whole_chains(drawn_cell(), 0, OPTIONS, remember, 3)]


def _tries() -> object:
    found = at_most(philly(generate(80, Cluster.parse("4x8"), 1.0, np.random.default_rng(3)), 1, 0.5), 3)
    return found, found.node_faults(1)


def _days(seed: int) -> object:
    rng = np.random.default_rng([seed, 18])
    rows = [
        f"d{day},{hops},{units},{rng.integers(0, 5 + seed)}"
        for day in range(5 + 3 * seed)
        for hops in (2, 3)
        if rng.random() < 0.95
        for units in [rng.integers(20, 900)]
    ]
    days = read_days(["day,hops,units,failures", *rows])
    return days, compare(days, rng)


def _tor(seed: int) -> object:
    rng = np.random.default_rng([seed, 19])
    found = TorStudy(
        *(float(each) for each in (rng.uniform(0, 0.1), rng.random(), rng.uniform(1, 60), rng.uniform(60, 900)))
    )
    return found, found.repair_min, found.unavailability, found.nines, found.bearable


def _means(seed: int) -> object:
    rng = np.random.default_rng([seed, 20])
    began = np.sort(rng.uniform(0, 9e5, 40))
    blocks = drawn_blocks(began, 86_400.0 * (1 + seed % 3), 60, rng)
    cost, worst, best = rng.uniform(1, 9, 40), rng.uniform(5, 20, 40), rng.uniform(0, 1, 40)
    return blocks, mean_interval(cost, blocks), gap_interval(cost, worst, best, blocks), load_of(float(seed * 3600))


def _parts(seed: int) -> object:
    rng = np.random.default_rng([seed, 21])
    needs, times = rng.integers(1, 9, 6).astype(float), rng.uniform(1, 9, (6, 3))
    stages, arrive = rng.uniform(0.1, 2, (6, 3)), np.sort(rng.uniform(0, 30, 6))
    programs = [
        SharingProgram(str(number), *rng.uniform(0, 900, 2).tolist(), *rng.integers(0, 3, 3).astype(float).tolist())
        for number in range(5)
    ]
    orders = {
        name: (order(programs).name, speeds(order, [(1.0, 0.5), (0.2, 0.1), (0.4, 2.0)], 60.0))
        for name, order in ORDERS.items()
    }
    shares = (
        equal(needs),
        tuned(needs),
        [jct(arrive, needs * 9, needs, las, give) for las in (False, True) for give in (equal, tuned)],
    )
    groups = (
        group_s(stages[:3]),
        [mean_jct(stages, np.arange(1, 7) * 5, arrive, together) for together in (False, True)],
    )
    matches = matched(times), listed(times, rng.permutation(6))
    rest = (
        found_by_lru(float(rng.random())),
        [read_share(nodes, drawn, rng) for nodes in (1, 4) for drawn in (False, True)],
    )
    return orders, fits_beside(programs, 2000.0), shares, groups, matches, rest
