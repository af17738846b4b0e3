"""Every registered predictor keeps to the facts that hold of all."""

from collections.abc import Callable

import numpy as np
import pytest

from perdure.errors import ConfigError
from perdure.waits import checks
from perdure.waits.evaluate import score, walk
from perdure.waits.protocol import Predictor
from perdure.waits.registry import NAMES, predictor_named
from perdure.waits.table import WaitTable


@pytest.fixture(scope="module")
def table() -> WaitTable:
    return checks.example()


@pytest.mark.parametrize("fact", checks.FACTS, ids=lambda fact: fact.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_fact_of_every_predictor(name: str, fact: Callable[[Predictor, WaitTable], None], table: WaitTable) -> None:
    fact(predictor_named(name), table)


@pytest.mark.parametrize("name", NAMES)
def test_its_name_is_that_of_the_registry(name: str) -> None:
    assert predictor_named(name).name == name


@pytest.mark.parametrize("name", [name for name in NAMES if name != "slurm"])  # which learns nothing of waits
def test_it_beats_a_guess_of_an_hour_where_sizes_tell_the_wait(name: str, table: WaitTable) -> None:
    found = score(walk(table, predictor_named(name), 9 * 86_400.0))
    guess = float(((np.log10(3_600) - np.log10(table.wait_s[table.started])) ** 2).mean())
    assert found.mse_log10 < guess


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="Use one of: median"):
        predictor_named("oracle")
