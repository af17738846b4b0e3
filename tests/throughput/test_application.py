"""Applications as they were measured: between what was measured, where it ends, and what epochs and steps are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.profiles import EpochProfile, RateProfile, StepProfile
from perdure.throughput.application import Application, applications, rated_applications
from perdure.throughput.measured_speed import RatedSpeed, turned


def profile(**changes: Any) -> StepProfile:
    """Steps of one application: on one GPU, on two of a node, on 1 + 2 of two nodes, and on 8 of three by count."""
    rows = [("1", 1, 1, 4, 1.0), ("1", 1, 1, 8, 2.0), ("2", 1, 2, 8, 3.0), ("1,2", 2, 3, 8, 4.0), ("", 3, 8, 8, 5.0)]
    placement, nodes, gpus, batch, step_s = (np.array(column) for column in zip(*rows, strict=True))
    n = len(rows)
    columns = {"application": np.full(n, "net"), "gpu_type": np.full(n, "t4"), "placement": placement, "nodes": nodes}
    columns |= {"gpus": gpus, "local_batch": batch.astype(float), "step_s": step_s, "sync_s": np.full(n, 0.5)}
    return StepProfile(**(columns | changes))


def epochs(**changes: Any) -> EpochProfile:
    columns = {"application": np.full(4, "net"), "batch": np.array([16, 16, 64, 64])}
    columns |= {"progress": np.array([10.0, 20.0, 12.0, 18.0]), "grad_square": np.ones(4)}
    columns |= {"grad_variance": np.array([3.0, 5.0, 3.0, 5.0]), "iteration": np.array([10.0, 20.0, 4.0, 8.0])}
    return EpochProfile(**(columns | changes))


def net(**changes: Any) -> Application:
    return applications(profile(), epochs(**changes), ["net"])["net"]


def test_between_measured_batches_time_is_in_between_and_beyond_them_unknown() -> None:
    speed = net().speed["t4"]
    assert speed.step_s((1,), 6) == (1.5, 0.5)
    assert np.isnan(speed.step_s((1,), 9)).all()


def test_where_one_begins_to_count_nodes_does_not_matter() -> None:
    speed = net().speed["t4"]
    assert speed.step_s((2, 1), 8) == speed.step_s((1, 2), 8) == (4.0, 0.5)
    assert turned((3, 1, 2)) == turned((1, 2, 3)) == turned((2, 3, 1))


def test_a_layout_holds_what_was_measured_on_it() -> None:
    speed = net().speed["t4"]
    assert (speed.largest_local_on((1,)), speed.smallest_local, speed.largest_local) == (8, 4, 8)
    assert speed.single == 8 / 2.0


def test_an_epoch_is_done_where_the_least_progress_of_all_batches_is() -> None:
    found = net()
    assert found.progress.tolist() == [0.0, 10.0, 18.0]
    assert (found.base_batch, found.largest_batch, found.work) == (16, 64, 18.0)


def test_gains_of_all_epochs_are_those_of_each() -> None:
    """At measured batches, halfway, and where one of the two is nearer."""
    found = net(grad_square=np.array([1.0, 2.0, 3.0, 5.0]), grad_variance=np.array([3.0, 5.0, 7.0, 11.0]))
    for batch in (16, 20, 40, 60, 64):
        each = [(square, variance) for square, variance in (found.gradients(batch, epoch) for epoch in (0, 1))]
        told = [(variance + square) / (variance * 16 / batch + square) for square, variance in each]
        assert found.gains(batch) == pytest.approx(told)
    assert found.gains(16).tolist() == [1.0, 1.0]


def test_steps_left_of_a_batch_between_two() -> None:
    found = net()
    assert found.steps_left(16, 0) == 10.0
    assert found.steps_left(40, 0) == 7.0
    assert found.steps_left(16, 1) == 1.0  # in the last epoch


def test_without_iterations_who_asks_for_steps_is_told_what_to_add() -> None:
    for lacks in (None, np.array([10.0, np.nan, 4.0, 8.0]), np.array([10.0, np.inf, 4.0, 8.0])):
        with pytest.raises(InputError, match="Add the column iteration"):
            net(iteration=lacks).steps_left(16, 0)


@pytest.mark.parametrize(
    ("steps", "learnt", "said"),
    [
        ({"step_s": np.array([1.0, np.nan, 3.0, 4.0, 5.0])}, {}, "on t4: a measured step has no time"),
        ({"placement": np.array(["", "", "2", "1,2", ""])}, {}, "no step on a single GPU was measured"),
        ({"application": np.full(5, "other")}, {}, "the profiles have no steps for it"),
        ({}, {"application": np.full(4, "other")}, "the profiles do not say how it learns"),
        ({}, {"grad_square": np.array([1.0, np.inf, 1.0, 1.0])}, "a value that is not a number"),
        ({}, {"grad_variance": np.array([1.0, -1.0, 1.0, 1.0])}, "square or variance is below 0, or both are 0"),
        ({}, {"grad_square": np.zeros(4), "grad_variance": np.array([1.0, 0, 1, 1])}, "is below 0, or both are 0"),
        ({}, {"progress": np.array([10.0, 10.0, 10.0, 10.0])}, "its epochs do not go on, one after the other"),
    ],
)
def test_what_a_profile_lacks_is_named(steps: dict[str, Any], learnt: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        applications(profile(**steps), epochs(**learnt), ["net"])


def test_rates_are_of_gpus_and_of_whether_they_are_together() -> None:
    speed = RatedSpeed({(1, True): 4.0, (2, True): 6.0, (2, False): 5.0, (4, True): 0.0})
    assert speed.step_s((1,), 1) == (0.25, 0.0)
    assert speed.step_s((1, 1), 1) == (0.2, 0.0)
    assert np.isnan(speed.step_s((4,), 1)).all()  # it does not run there
    assert np.isnan(speed.step_s((8,), 1)).all()


def test_a_kind_with_rates_has_the_work_that_its_job_has() -> None:
    rates = RateProfile(np.array(["a"]), np.array(["v100"]), np.array([2]), np.array([True]), np.array([3.0]))
    found = rated_applications(rates, ["a"])["a"].of_steps(500.0)
    assert (found.work, len(found.progress)) == (500.0, 101)
    assert found.gains(2).tolist() == [1.0] * 100
