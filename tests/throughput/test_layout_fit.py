"""Steps by layout: a known model comes back, others of the site tell what was not seen, intervals widen, bad rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.throughput.fit import ProfileError
from perdure.throughput.layout_fit import fit_layouts
from perdure.throughput.layout_speed import LayoutSpeed, SeenSteps, fullest, prior_of
from tests.conftest import require

SHARED = np.log([0.05, 0.5, 3.0, 0.3, 0.2])
BATCHES = np.log([8.0, 16.0, 32.0, 64.0])
TRUE = LayoutSpeed(np.concatenate([np.log([0.04, 0.002, 0.02]), SHARED, [-2.0], np.zeros(4)]), BATCHES)
WHERE = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 8), (4, 8), (4, 16)]


def steps_of(model: LayoutSpeed, where: list[tuple[int, int]], noise: float = 0.0) -> SeenSteps:
    nodes, gpus, batch = np.array([(n, k, m) for n, k in where for m in (8, 16, 32, 64)]).T
    jitter = np.exp(noise * np.random.default_rng(0).standard_normal(len(nodes)))
    return SeenSteps(nodes, gpus, batch.astype(float), model.step_s(nodes, gpus, batch) * jitter)


def test_a_known_model_tells_layouts_that_were_not_seen() -> None:
    found = fit_layouts(steps_of(TRUE, WHERE)).model
    nodes, gpus = np.array([(2, 4), (3, 12), (8, 32)]).T
    assert found.step_s(nodes, gpus, 24) == pytest.approx(TRUE.step_s(nodes, gpus, 24), rel=0.05)


def test_what_other_programs_showed_tells_more_than_nothing() -> None:
    """Seen on one GPU and on two; three others of the site, with other sizes, ran on all layouts."""
    others = []
    for factor in (0.3, 1.0, 3.0):
        theta = TRUE.theta.copy()
        theta[:3] += np.log([factor, 1.0, factor])
        others.append(fit_layouts(steps_of(LayoutSpeed(theta, BATCHES), WHERE)).model)
    few = steps_of(TRUE, [(1, 1), (1, 2), (2, 2)])
    true = TRUE.step_s(4, 16, 8)
    alone, with_others = (abs(float(np.log(found.model.step_s(4, 16, 8) / true))) for found in (
        fit_layouts(few), fit_layouts(few, prior_of(others))))  # fmt: skip
    assert with_others < 0.1
    assert with_others < alone


@given(st.integers(1, 8), st.integers(1, 8), st.floats(1, 1e4))
def test_a_step_is_between_the_longer_of_its_parts_and_both(nodes: int, each: int, batch: float) -> None:
    parts = TRUE.passes_s(nodes, nodes * each, batch), TRUE.sync_s(nodes, nodes * each)
    step = float(TRUE.step_s(nodes, nodes * each, batch))
    assert max(map(float, parts)) * (1 - 1e-12) <= step <= sum(map(float, parts)) * (1 + 1e-12)
    assert float(fullest(nodes, nodes * each)) == each


def test_intervals_are_wider_beyond_what_was_seen() -> None:
    found = fit_layouts(steps_of(TRUE, WHERE, 0.05))
    inside, more, larger = (found.interval(*asked) for asked in ((2, 8, 32), (8, 32, 32), (2, 8, 128)))
    widths = [float(high / low) for low, high in (inside, more, larger)]
    assert widths[0] < widths[1] == pytest.approx(widths[2])
    assert float(inside[0]) < float(found.model.step_s(2, 8, 32)) < float(inside[1])
    one_node = fit_layouts(steps_of(TRUE, WHERE[:4], 0.05))
    assert widths[0] < float(np.divide(*one_node.interval(2, 8, 32)[::-1]))  # never seen across nodes


def test_one_step_is_enough() -> None:
    found = fit_layouts(SeenSteps(np.array([1]), np.array([1]), np.array([32.0]), np.array([0.2])))
    assert float(found.model.step_s(1, 1, 32)) == pytest.approx(0.2, rel=0.02)
    assert float(found.model.step_s(2, 2, 32)) > 0.2


def test_measured_steps_of_more_gpus_are_met_where_the_model_of_pollux_is_not(data_dir: Path | None) -> None:
    from benchmarks.training_layouts import beyond, errors, of_peer, read

    profile = read(require("data", data_dir, "no GPU profiles here"), "scalability")["bert", "azure"]
    pair = beyond(profile)
    assert pair is not None
    ours, peer = np.median(errors(fit_layouts(pair[0].seen), pair[1])), np.median(of_peer(*pair))
    assert ours < 0.09 < peer


@pytest.mark.parametrize(("value", "said"), [(np.nan, "row 1: step_s is nan"), (0.0, "row 1: step_s is 0")])
def test_a_time_that_is_none_is_named(value: float, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        fit_layouts(SeenSteps(np.ones(2, int), np.ones(2, int), np.full(2, 8.0), np.array([0.1, value])))


def test_no_steps_are_refused() -> None:
    with pytest.raises(ProfileError, match="empty"):
        fit_layouts(SeenSteps(*(np.array([]) for _ in range(4))))


def test_a_step_is_as_the_formulas_say() -> None:
    values = [1.0, 0.1, 2.0, 0.5, 0.25, 3.0, 0.3, 0.2]
    apart = LayoutSpeed(np.array([*np.log(values), -50.0, 0.0]), np.zeros(1))
    assert float(apart.passes_s(1, 1, 10)) == pytest.approx(2)
    assert float(apart.passes_s(1, 3, 10)) == pytest.approx(2 * (1 + 0.5 * 2))
    assert float(apart.sync_s(1, 1)) == 0
    assert float(apart.sync_s(1, 3)) == pytest.approx(2 * (1 + 0.25))
    assert float(apart.sync_s(2, 2)) == pytest.approx(2 * 3)  # nothing within nodes
    within, between = 2 * (1 + 0.25), 2 * 3 * (1 + 0.3 * 2 + 0.2)  # three on the fullest
    assert float(apart.sync_s(3, 8)) == pytest.approx(within + between)
    assert float(apart.step_s(1, 3, 10)) == pytest.approx(4 + 2.5)
    assert float(apart.waiting_s(1, 3, 10)) == pytest.approx(2.5)
    together = LayoutSpeed(np.array([*np.log(values), 50.0, 0.0]), np.zeros(1))
    assert float(together.step_s(1, 3, 10)) == pytest.approx((4**10 + 2.5**10) ** 0.1)


def test_measured_waiting_tells_what_steps_cannot() -> None:
    """Computing takes half as long on several GPUs, so that steps there are shorter than on one."""
    few = steps_of(TRUE, [(1, 1), (1, 2), (1, 4)])
    waited = TRUE.waiting_s(few.nodes, few.gpus, few.local_batch)
    step = np.where(few.gpus > 1, few.step_s - 0.5 * (few.step_s - waited), few.step_s)
    blind = SeenSteps(few.nodes, few.gpus, few.local_batch, step)
    told = SeenSteps(few.nodes, few.gpus, few.local_batch, step, np.where(few.gpus > 1, waited, np.nan))
    off = [
        abs(np.log(float(fit_layouts(each).model.waiting_s(1, 4, 16)) / float(TRUE.waiting_s(1, 4, 16))))
        for each in (blind, told)
    ]
    assert off[1] < 0.2 < off[0]


def test_one_step_far_off_moves_hardly_anything() -> None:
    steps = steps_of(TRUE, WHERE)
    wrong = steps.step_s.copy()
    wrong[5] *= 10
    found = fit_layouts(SeenSteps(steps.nodes, steps.gpus, steps.local_batch, wrong)).model
    asked = np.arange(len(wrong)) != 5
    told = found.step_s(steps.nodes, steps.gpus, steps.local_batch)[asked]
    assert np.median(np.abs(told / steps.step_s[asked] - 1)) < 0.02


def test_runs_that_contradict_each_other_widen_the_interval_of_their_layout() -> None:
    one, eight = np.ones(2, int), np.full(2, 8)
    found = fit_layouts(SeenSteps(one, eight, np.full(2, 32.0), np.array([0.1, 0.5])))
    low, high = found.interval(1, 8, 32)
    assert low <= 0.11
    assert high >= 0.45
