"""Options and inputs of a simulation that cannot be: each is refused by its name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perdure.errors import ConfigError, InputError
from perdure.model.cluster import Cluster
from perdure.simulation.asking import asks_of
from perdure.simulation.elastic_input import elastic_retry
from perdure.simulation.sweep import at_load
from perdure.simulation.time_split import split_by_time
from tests.simulation.tables import jobs

TABLE = jobs((1, 0, 1), (1, 5, 1), (1, 10, 1))


@pytest.mark.parametrize("load", [0.0, -0.5, math.nan, math.inf, -math.inf])
def test_a_load_that_cannot_be(load: float) -> None:
    with pytest.raises(InputError) as refused:
        at_load(TABLE, Cluster.parse("1x4"), load)
    assert str(refused.value) == f"--load: {load} is not a valid load. Write a number above 0, such as 0.8."


@pytest.mark.parametrize("rows", [(), ((1, 0, 10),), ((1, 3, 10), (2, 3, 10)), ((1, 0, 0), (1, 9, 0))])
def test_jobs_that_have_no_load(rows: tuple[tuple[int, int, int], ...]) -> None:
    with pytest.raises(InputError) as refused:
        at_load(jobs(*rows), Cluster.parse("1x4"), 0.5)
    said = "--load: the jobs of this trace all come at once, or ask for nothing. Omit --load."
    assert str(refused.value) == said


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.1, math.nan, math.inf])
def test_a_share_of_a_trace_that_cannot_be(share: float) -> None:
    with pytest.raises(InputError) as refused:
        split_by_time(TABLE, share, "--share")
    assert str(refused.value) == f"--share: {share:g} is not a share between 0 and 1. Write a number such as 0.3."


def test_a_share_that_leaves_one_part_empty() -> None:
    late = jobs((1, 0, 20), (1, 5, 20), (1, 10, 1))
    with pytest.raises(InputError, match=r"^--share: no job has ended in that part of the trace\. Write another share"):
        split_by_time(late, 0.5, "--share")
    at_once = jobs((1, 0, 0), (1, 0, 0))
    with pytest.raises(InputError, match=r"^--share: no job came later\. Write another share\.$"):
        split_by_time(at_once, 0.5, "--share")


@pytest.mark.parametrize("text", ["oracle", "predicted:0.9,0.1", "", "Recorded"])
def test_a_retry_policy_that_needs_causes(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        elastic_retry(text)
    said = f"--retry {text}: needs the causes of failures, which such traces do not record. Use one of: recorded"
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("word", ["nan", "afterok", "after", "singleton:1", "later:1", ":", "AFTEROK:j0"])
def test_a_dependency_that_cannot_be_is_named_with_its_job(word: str) -> None:
    table = jobs((1, 0, 1), (1, 5, 1), (1, 9, 1), dependency=np.array(["", f"afterok:j0,{word}", "x"]))
    with pytest.raises(InputError) as refused:
        asks_of(table, 0.0, 1)
    assert str(refused.value) == f"job j1: {word!r} is not a dependency. Write it like afterok:ID:ID,singleton."
