"""Three ranges of sizes: known links come back, one GPU sends nothing, measured tables are met, bad rows are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perdure.throughput.link_fit import CollectivesError, fit_ranges
from perdure.throughput.measured_links import MEASURED_LINKS
from perdure.throughput.size_ranges import RangedLink, SizeRange
from tests.conftest import require

TRUE = RangedLink(
    (65536.0, 8388608.0), (SizeRange(5e-6, 1e-6, 1e10), SizeRange(3e-5, 2e-6, 5e10), SizeRange(9e-5, 0, 2e11))
)


def sizes_and_members() -> tuple[np.ndarray, np.ndarray]:
    size, members = np.meshgrid(np.geomspace(2048, 1 << 28, 60), [2.0, 4.0, 8.0])
    return size.ravel(), members.ravel()


def test_a_known_link_tells_sizes_and_numbers_of_gpus_that_were_not_measured() -> None:
    size, members = sizes_and_members()
    found = fit_ranges(size, members, TRUE.all_reduce_s(size, members))
    asked = np.geomspace(3000, 5e8, 97)
    error = np.abs(found.all_reduce_s(asked, 16) / TRUE.all_reduce_s(asked, 16) - 1)
    assert np.quantile(error, 0.9) < 1e-3  # but near the bounds, which lie on a grid


def test_one_gpu_has_nothing_to_send() -> None:
    assert TRUE.all_reduce_s(1e6, 1) == 0.0


@pytest.mark.parametrize("link", MEASURED_LINKS.values(), ids=map(" ".join, MEASURED_LINKS))
def test_large_messages_over_shipped_links_take_longer_and_reach_no_more_than_the_hardware(link: RangedLink) -> None:
    size = np.geomspace(1 << 24, 1 << 30, 50)
    taken = link.all_reduce_s(size, 4)
    assert (np.diff(taken) > 0).all()
    assert (1.5 * size / taken < 450e9).all()  # NVLink of an H100, one direction


def test_measured_all_reduces_are_met_with_sizes_held_out(data_dir: Path | None) -> None:
    from benchmarks.training_collectives import LINKS, errors, held_out, measured, part

    data = require("data", data_dir, "no measured collectives here")
    for link in (("nvswitch", "a100"), ("2 nodes of 4", "a100")):
        rows = measured(data, *LINKS[link])
        held = held_out(rows, np.random.default_rng(1))
        assert np.median(errors(part(rows, ~held), part(rows, held))) < 0.1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (([], [], []), "there are 0 sizes"),
        (([1.0, 2.0], [2.0, 2.0], [1.0, -1.0]), "row 1: a value is no positive number"),
        (([1.0], [2.0, 2.0], [1.0]), "differ in length"),
        ((np.arange(1.0, 50.0), np.full(49, 2.0), np.ones(49)), "leave no three ranges"),
    ],
)
def test_rows_that_tell_no_link_are_refused(rows: tuple[list[float], list[float], list[float]], said: str) -> None:
    with pytest.raises(CollectivesError, match=said):
        fit_ranges(*map(np.asarray, rows))


def test_a_range_begins_with_its_bound() -> None:
    link = RangedLink((1024, 4096), (SizeRange(1, 0, 1e9), SizeRange(2, 0, 1e9), SizeRange(3, 0, 1e9)))
    assert link.all_reduce_s(np.array([1023, 1024, 4096]), 2) == pytest.approx([1, 2, 3], abs=1e-4)


def test_of_one_number_of_gpus_all_latency_is_said_to_be_hops() -> None:
    size = np.geomspace(4096, 1 << 26, 60)
    members = np.full(60, 4.0)
    seconds = 60e-6 + 1.5 * size / 10e9
    found = fit_ranges(size, members, seconds)
    assert found.all_reduce_s(size, members) == pytest.approx(seconds, rel=0.01)
    assert [each.start_s for each in found.ranges] == [0.0, 0.0, 0.0]
