"""Studies: the laws that their models rest on, and the order of what is published."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.sharing import ORDERS
from perdure.emulation.studies.cpu_shares import equal, jct, tuned
from perdure.emulation.studies.data_stall import found_by_lru
from perdure.emulation.studies.decoded_files import DECODED_S, JPEG_S
from perdure.emulation.studies.interleaving import group_s
from perdure.emulation.studies.locality import read_share
from perdure.emulation.studies.matching import listed, matched
from perdure.emulation.studies.registry import STUDIES
from perdure.emulation.studies.result import StudyTable
from perdure.emulation.studies.sharing_iterations import speeds
from perdure.errors import InputError


def study(name: str, seed: int = 0) -> StudyTable:
    return STUDIES[name](None, np.random.default_rng(seed))


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_a_table_and_the_same_for_a_seed(name: str) -> None:
    found = study(name)
    assert found == study(name)
    assert found.rows
    assert {len(row) for row in found.rows} == {len(found.columns)}


def test_what_a_cache_still_has_is_as_in_a_simulation_of_it() -> None:
    rng, files, room = np.random.default_rng(3), 2000, 700
    cached: dict[int, None] = {}
    hits = 0
    for epoch in range(8):
        for file in rng.permutation(files).tolist():
            hits += file in cached and epoch > 1
            cached.pop(file, None)
            cached[file] = None
            if len(cached) > room:
                del cached[next(iter(cached))]
    assert hits / (6 * files) == pytest.approx(found_by_lru(room / files), abs=0.01)


def test_a_node_that_keeps_its_files_finds_as_many_as_its_cache_is_large_for_them() -> None:
    rng = np.random.default_rng(4)
    own = read_share(2, drawn=False, rng=rng, cached=0.25)
    assert own == pytest.approx(1 - found_by_lru(0.5), abs=0.01)
    assert read_share(2, drawn=True, rng=rng, cached=0.25) > own
    assert read_share(1, drawn=True, rng=rng) == pytest.approx(1 - found_by_lru(0.25), abs=0.01)  # all files either way
    assert read_share(4, drawn=False, rng=rng, cached=0.25) == 0.0


def test_a_matching_has_the_least_mean_jct_of_all_assignments() -> None:
    times = np.random.default_rng(5).uniform(1, 10, (5, 2))

    def mean(choice: tuple[int, ...]) -> float:
        total = 0.0
        for machine in (0, 1):
            own = sorted(times[job, machine] for job in range(5) if choice[job] == machine)
            total += sum(sum(own[: i + 1]) for i in range(len(own)))
        return total / 5

    assert matched(times) == pytest.approx(min(map(mean, itertools.product((0, 1), repeat=5))))
    assert listed(times, np.arange(5)) >= matched(times)


def test_cpus_by_need_are_as_many_and_no_job_is_slower_than_by_equal_shares() -> None:
    needs = np.array([9.0, 1.0, 1.0, 6.0, 3.0] * 4)
    by_need, by_share = tuned(needs), equal(needs)
    assert by_need.sum() <= 32 * 3.0
    assert (np.minimum(1, by_need / needs) >= np.minimum(1, by_share / needs)).all()


def test_a_job_by_itself_takes_as_long_as_its_cpus_let_it() -> None:
    one = np.array([0.0]), np.array([600.0]), np.array([9.0])
    assert jct(*one, False, equal)[0] == pytest.approx(1800.0)
    assert jct(*one, False, tuned)[0] == pytest.approx(600.0)


def test_stages_of_different_resources_go_on_together() -> None:
    assert group_s(np.array([[3.0, 1.0], [1.0, 3.0]])) == 4.0  # alone each takes 4
    assert group_s(np.array([[3.0, 0.0], [3.0, 0.0]])) == 6.0


def test_programs_off_the_gpu_leave_it_to_others() -> None:
    busy, resting = speeds(ORDERS["fifo"], [(1.0, 0.0), (1.0, 3.0)], 400.0)
    assert busy == pytest.approx(0.8, abs=0.02)  # of 5 s, one is the other's
    assert resting == pytest.approx(0.2, abs=0.02)


def test_the_order_is_that_of_what_is_published() -> None:
    stalls = [float(row[2]) for row in study("data-stall").rows]  # alexnet, resnet18, resnet50, vgg11
    assert stalls == sorted(stalls, reverse=True)
    assert [row[0] for row in sorted(study("allox").rows, key=lambda row: row[1])] == ["AlloX", "DRFS", "DRFF"]
    assert all(float(row[1]) > 1 for row in study("muri").rows)
    assert all(float(row[2]) > 1 for row in study("synergy").rows)
    shares = {(row[0], row[1]): row[2] for row in study("salus").rows}
    assert shares["fifo", 3.0] == pytest.approx(1 / 3, rel=0.01)
    gains = [float(row[2]) for row in study("coordl").rows if row[0] == 0.4]
    assert 1 < gains[0] < gains[1] < gains[2]
    gains = [float(row[3]) for row in study("ffcv").rows]  # the fewer CPUs, the more
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 2 > gains[-1] == 1


def test_an_epoch_from_decoded_files_takes_the_longer_of_cpus_and_gpu() -> None:
    for cpus, jpeg, decoded, gain, busy, busy_decoded in study("ffcv").rows:
        gpu = float(busy) * float(jpeg)
        assert float(jpeg) == pytest.approx(max(gpu, 1_281_167 * JPEG_S / float(cpus)))
        assert float(decoded) == pytest.approx(max(gpu, 1_281_167 * DECODED_S / float(cpus)))
        assert float(busy_decoded) <= 1.0 <= float(gain)


def test_a_table_without_the_models_of_a_study_is_refused() -> None:
    own = ProfileTable.of("own.csv", ["a100"], ["net"], [8], np.array([[0.1, 0.2, 0.0, 0.01, 100.0, 50.0]]))
    with pytest.raises(InputError, match="--profiles: it has no profile of resnet18 on a100"):
        STUDIES["ffcv"](own, np.random.default_rng(0))
