"""Rounds and names of policies that cannot be: each is refused in one line that names the job, the pair or the name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perdure.errors import ConfigError, InputError
from perdure.scheduling.gavel import GavelRound
from perdure.scheduling.gavel_packed import PackedRound
from perdure.scheduling.policies import policy_named

NOT_NUMBERS = (np.nan, np.inf, -np.inf, -1.0)


def round_of(**changes: Any) -> GavelRound:
    """Three jobs on two GPU types."""
    columns = {"throughput": np.ones((3, 2)), "workers": np.ones(2), "scale": np.ones(3), "weight": np.ones(3)}
    return GavelRound(**(columns | changes))


def with_value(shape: tuple[int, ...], at: tuple[int, ...], value: float) -> np.ndarray:
    """Ones, with one other value, and a second one behind it: the first is to be named."""
    found = np.ones(shape)
    found[at] = found[-1] = value
    return found


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_the_first_speed_that_is_not_one_is_named(value: float) -> None:
    with pytest.raises(InputError) as refused:
        round_of(throughput=with_value((3, 2), (1, 1), value))
    said = f"job 1: its throughput on GPU type 1 is {value:g}. Give steps a second, and 0 where it cannot run."
    assert str(refused.value) == said


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_the_gpu_type_without_a_number_of_gpus_is_named(value: float) -> None:
    with pytest.raises(InputError) as refused:
        round_of(workers=np.array([1.0, value]))
    assert str(refused.value) == f"GPU type 1: it has {value:g} GPUs. Give a number from 0 on."


@pytest.mark.parametrize(("column", "word"), [("scale", "GPUs"), ("weight", "weight")])
@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0.0])
def test_the_first_job_without_gpus_or_a_weight_is_named(column: str, word: str, value: float) -> None:
    with pytest.raises(InputError) as refused:
        round_of(**{column: with_value((3,), (1,), value)})
    assert str(refused.value) == f"job 1: its {word}: {value:g}. Give a number above 0."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"throughput": np.ones(3)}, "throughputs: not 2 of each job"),
        ({"throughput": np.ones((3, 3))}, "throughputs: not 2 of each job"),
        ({"scale": np.ones(2)}, "GPUs: not one for each of 3 jobs"),
        ({"weight": np.ones((3, 1))}, "weight: not one for each of 3 jobs"),
        ({"throughput": np.array([[1, 1], [0, 1], [0, 0.0]])}, "job 2: it runs on no GPU type that there is"),
        ({"workers": np.array([1.0, 0]), "throughput": np.array([[1, 1], [0, 1], [0, 1.0]])}, "job 1: it runs on no"),
    ],
)
def test_columns_that_do_not_fit_together(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        round_of(**changes)
    assert str(refused.value).startswith(said)


def test_a_type_without_gpus_and_a_job_that_does_not_run_on_one_are_taken() -> None:
    assert round_of(workers=np.array([1.0, 0.0]), throughput=np.array([[1.0, 0]] * 3)).workers[1] == 0.0


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_the_first_pair_with_a_speed_that_is_not_one_is_named(value: float) -> None:
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    with pytest.raises(InputError) as refused:
        PackedRound(round_of(), pairs, with_value((3, 2, 2), (1, 0, 1), value))
    assert str(refused.value) == "pair 1: its throughput on GPU type 1 is not valid. Give steps a second."


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ((0, 0), "jobs 0 and 0 are not two of 3"),
        ((0, 3), "jobs 0 and 3 are not two of 3"),
        ((3, 0), "jobs 3 and 0 are not two of 3"),
        ((-1, 0), "jobs -1 and 0 are not two of 3"),
        ((0, -1), "jobs 0 and -1 are not two of 3"),
        ((0, 2), "jobs 0 and 2 take different numbers of GPUs"),
    ],
)
def test_a_pair_that_cannot_be_is_named(pair: tuple[int, int], said: str) -> None:
    with pytest.raises(InputError) as refused:
        PackedRound(round_of(scale=np.array([1.0, 1, 2])), np.array([[0, 1], pair]), np.ones((2, 2, 2)))
    assert str(refused.value).startswith(f"pair 1: {said}. ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((f"las-2d:{knob}", f"policy las-2d: {knob!r} is not a promote knob. Write it like las-2d:8.") for knob in (
            "x", "nan", "inf", "-1", "1e6", "2e6",
        )),
        ("dlas-gpu-x", "policy las-2d: 'x' is not a promote knob. Write it like las-2d:8."),
        ("fifo:1", "policy fifo: it takes no argument, got '1'. Write fifo."),
        ("best", "policy 'best': no policy has that name. Use one of: "),
        ("sia", "policy 'sia': it plans for jobs that name an application. Use perdure whatif elastic, with a folder"),
        *((f"{name}:{most}", f"policy {name}: {most!r} is not a cap of 1 or more. Write it like {name}:1.5.")
          for name in ("philly", "capacity") for most in ("x", "nan", "inf", "0.99", "0", "-1")),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        policy_named(text)
    assert str(refused.value).startswith(said)
