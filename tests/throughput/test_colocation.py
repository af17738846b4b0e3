"""What is left of the speed of two jobs that share GPUs, as measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.profiles import PairProfile, RateProfile
from perdure.throughput.application import rated_applications
from perdure.throughput.colocation import IN_TURNS, Colocation, colocation
from perdure.traces.profiles import read_pairs
from tests.conftest import require

RATES = RateProfile(
    np.array(["lm", "a3c", "lm"]),
    np.array(["v100", "v100", "v100"]),
    np.array([1, 1, 2]),
    np.array([True, True, True]),
    np.array([10.0, 4.0, 16.0]),
)


def pairs(rate: float = 8.0) -> PairProfile:
    return PairProfile(
        np.array(["lm", "a3c", "lm"]),
        np.array(["a3c", "lm", "lm"]),
        np.array(["v100", "v100", "v100"]),
        np.array([1, 1, 2]),
        np.array([True, True, True]),
        np.array([rate, 3.0, 0.0]),
    )


def test_each_keeps_its_rate_beside_the_other_over_that_alone() -> None:
    found = colocation(pairs(), rated_applications(RATES, ["lm", "a3c"]))
    assert found.kept("v100", 1, 1, "lm", "a3c") == pytest.approx(0.8)
    assert found.kept("v100", 1, 1, "a3c", "lm") == pytest.approx(0.75)
    assert found.fits("v100", 1, 1, "lm", "a3c")
    assert found.is_measured("v100", 1, 1, "lm", "a3c")


def test_a_pair_without_a_rate_does_not_fit() -> None:
    found = colocation(pairs(), rated_applications(RATES, ["lm", "a3c"]))
    assert not found.fits("v100", 2, 1, "lm", "lm")
    assert not found.fits("v100", 2, 2, "lm", "lm")  # measured on one node alone


def test_what_was_not_measured_takes_turns() -> None:
    found = Colocation({("v100", 1, True, "lm", "a3c"): 0.9})
    assert found.kept("k80", 1, 1, "lm", "a3c") == IN_TURNS
    assert not found.is_measured("v100", 1, 1, "lm", "a3c")  # the other's half is missing
    assert Colocation().fits("v100", 1, 1, "lm", "a3c")


@pytest.mark.parametrize("rate", [-1.0, np.nan, np.inf])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match=r"'lm' beside 'a3c' on v100.*not steps a second"):
        colocation(pairs(rate), rated_applications(RATES, ["lm", "a3c"]))


def test_a_table_of_pairs_is_read(tmp_path: Path) -> None:
    assert read_pairs(tmp_path) is None
    (tmp_path / "throughputs.csv").write_text(
        "source,gpu,consolidated,job,scale_factor,co_job,co_scale,steps_per_s\n"
        "simulation,v100,true,lm,1,,,10\nsimulation,v100,true,lm,1,a3c,1,8\n"
        "simulation,v100,False,lm,2,a3c,2,7\nsimulation,v100,true,lm,2,a3c,1,6\nphysical,v100,true,lm,1,a3c,1,5\n"
    )
    found = read_pairs(tmp_path)
    assert found is not None
    assert found.steps_per_s.tolist() == [8, 7]
    assert found.together.tolist() == [True, False]
    assert found.gpus.tolist() == [1, 2]


def test_gavels_table_has_all_pairs_of_single_gpus(data_dir: Path | None) -> None:
    data = require("data", data_dir, "no profiles here")
    found = read_pairs(data / "gpu-profiles" / "gavel")
    assert found is not None
    own = (found.gpu_type == "v100") & (found.gpus == 1) & found.together
    assert int(own.sum()) == 26 * 26
    assert (found.application[own] == found.other[own]).sum() == 26
