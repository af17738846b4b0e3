"""How many simulations run at once: the largest number is one too, and the next is not."""

import pytest

from perdure.cli.workers import MAX_WORKERS, executor_named, processes_named
from perdure.errors import ConfigError
from perdure.simulation.executors.processes import Processes


def test_the_largest_number_of_workers_is_one() -> None:
    assert processes_named(str(MAX_WORKERS)) == MAX_WORKERS
    assert isinstance(executor_named(str(MAX_WORKERS)), Processes)


@pytest.mark.parametrize("text", [str(MAX_WORKERS + 1), "0", "-1", "²"])
def test_what_is_no_number_of_workers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        processes_named(text)
    with pytest.raises(ConfigError):
        executor_named(text)
