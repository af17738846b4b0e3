"""Pollux's search: what every state keeps, that it never loses what it had, and what it finds on small cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.scheduling.pollux import GpuLimits, Worth, greedy, mutated, search

NODE = 4


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Worth, GpuLimits, Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs, nodes = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    most = rng.integers(1, NODE * nodes + 1, jobs)
    gpus = np.arange(NODE * nodes + 1)
    power = rng.uniform(0.3, 1.0, (jobs, 2, 1)) * np.array([1.0, 0.8])[None, :, None]
    return Worth(np.zeros((jobs, nodes), np.int16), gpus**power / NODE, rng.random(jobs)), GpuLimits(NODE, most), rng


def keeps_the_limits(states: NDArray[np.signedinteger], limits: GpuLimits) -> None:
    assert (states >= 0).all()
    assert (states.sum(axis=1) <= limits.node).all()
    assert (states.sum(axis=2) <= limits.most).all()
    across = np.count_nonzero(states, axis=2, keepdims=True) > 1
    assert (((states > 0) & across).sum(axis=1) <= 1).all()


@settings(deadline=None, max_examples=30)
@given(clusters())
def test_every_state_keeps_gpus_of_nodes_and_of_jobs(cluster: tuple[Worth, GpuLimits, Generator]) -> None:
    worth, limits, rng = cluster
    wild = rng.integers(0, NODE + 1, (20, *worth.base.shape)).astype(np.int16)
    keeps_the_limits(limits.kept(wild, rng), limits)
    keeps_the_limits(limits.kept(mutated(wild, worth.base, NODE, rng), rng), limits)
    keeps_the_limits(search(worth, limits, wild, rng, 10, 3), limits)
    assert greedy(worth, limits).sum(axis=0).max() <= NODE


@settings(deadline=None, max_examples=30)
@given(clusters())
def test_a_rigid_job_has_all_of_its_gpus_in_every_state_or_none(cluster: tuple[Worth, GpuLimits, Generator]) -> None:
    worth, limits, rng = cluster
    rigid = rng.random(len(limits.most)) < 0.6
    limits = GpuLimits(NODE, limits.most, rigid)
    wild = rng.integers(0, NODE + 1, (20, *worth.base.shape)).astype(np.int16)
    begin = np.concatenate([wild, greedy(worth, limits)[None]])
    found = search(worth, limits, begin, rng, 20, 10)
    keeps_the_limits(found, limits)
    gpus = found.sum(axis=2)
    assert ((gpus == 0) | (gpus == limits.most))[:, rigid].all()
    smallest = int(limits.most[rigid].min()) if rigid.any() else NODE + 1
    idle = NODE - found[0].sum(axis=0)
    if rigid.any() and smallest <= NODE:
        out = rigid & (gpus[0] == 0) & (limits.most == smallest)
        assert not out.any() or idle.max() < smallest, "a gang that finds room on a node gets it"


@settings(deadline=None, max_examples=30)
@given(clusters())
def test_the_search_ends_no_worse_than_it_began(cluster: tuple[Worth, GpuLimits, Generator]) -> None:
    worth, limits, rng = cluster
    begin = limits.kept(np.stack([worth.base, greedy(worth, limits)]), rng)
    found = search(worth, limits, begin, rng, 10, 5)
    values = worth(found)
    assert values[0] >= worth(begin).max()
    assert (np.diff(values) <= 0).all()


def test_the_same_seed_finds_the_same() -> None:
    worth = Worth(np.zeros((3, 2), np.int16), np.tile(np.arange(9.0) ** 0.7 / 4, (3, 2, 1)), np.ones(3))
    limits = GpuLimits(NODE, np.full(3, 8))
    first, second = (search(worth, limits, worth.base[None], np.random.default_rng(1), 20, 20) for _ in range(2))
    assert (first == second).all()


def test_two_jobs_on_two_nodes_find_the_best_there_is() -> None:
    """By counting out: a job that scales well gets a node and what the other does not need."""
    gpus = np.arange(9.0)
    speed_up = np.stack([np.stack([gpus**0.9, gpus**0.8]), np.stack([gpus**0.2, gpus**0.1])]) / NODE
    worth, limits = Worth(np.zeros((2, 2), np.int16), speed_up, np.ones(2)), GpuLimits(NODE, np.full(2, 8))
    every = np.array(list(itertools.product(range(5), repeat=4)), np.int16).reshape(-1, 2, 2)
    legal = every[(limits.kept(every, np.random.default_rng(0)) == every).all(axis=(1, 2))]
    found = search(worth, limits, worth.base[None], np.random.default_rng(0), 40, 30)
    assert worth(found)[0] == pytest.approx(worth(legal).max())


def test_a_restart_costs_what_it_keeps_of_a_jobs_time() -> None:
    base = np.array([[4, 0]], np.int16)
    worth = Worth(base, np.tile(np.arange(9.0) / NODE, (1, 2, 1)), np.array([0.4]))
    stays, moves = worth(np.array([[[4, 0]], [[0, 4]]], np.int16))
    assert moves == pytest.approx(0.4 * stays, rel=1e-2)


@settings(deadline=None, max_examples=20)
@given(clusters(), st.booleans())
def test_the_compiled_search_finds_the_same_to_the_last_bit(
    cluster: tuple[Worth, GpuLimits, Generator], rigid: bool
) -> None:
    worth, limits, rng = cluster
    if rigid:
        limits = GpuLimits(NODE, limits.most, rng.random(len(limits.most)) < 0.6)
    begin, seed = np.stack([worth.base, greedy(worth, limits)]), int(rng.integers(1 << 32))
    plain, fast = (
        search(worth, limits, begin, np.random.default_rng(seed), 20, 10, compiled=each) for each in (False, True)
    )
    assert plain.tolist() == fast.tolist()
