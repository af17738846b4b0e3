"""Both engines make the schedules of an independent simulator written from the textbooks, on random small instances."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from perdure.scheduling import policies
from perdure.scheduling.policies import policy_named
from perdure.simulation.compiled.registry import COMPILED
from perdure.simulation.simulate import Engine
from tests.simulation.reference.instances import REFERENCES, Instance, differing

PLAN_GPUS_ALONE = ("easy", "conservative", "conservative:replan")
MANY = int(os.environ.get("REFERENCE_INSTANCES", "150"))


@pytest.mark.parametrize("engine", ["plain", "compiled"])
@pytest.mark.parametrize("name", REFERENCES)
def test_schedules_are_those_of_the_textbooks(name: str, engine: Engine) -> None:
    if engine == "compiled" and (type(policy_named(name)) not in COMPILED or find_spec("numba") is None):
        pytest.skip("no compiled form here")
    assert list(differing(name, engine, range(MANY))) == []


@pytest.mark.parametrize("name", [name for name in REFERENCES if name not in PLAN_GPUS_ALONE])
def test_schedules_of_several_resources_are_those_of_the_textbooks(name: str) -> None:
    """Whatever engine is asked for: the compiled loops do not know them."""
    assert list(differing(name, "compiled", range(MANY), Instance.with_others)) == []


def test_every_policy_has_a_reference() -> None:
    """But `slurm`, which is compared with a real Slurm (``benchmarks/slurm_agreement.py``)."""
    assert {name.partition(":")[0] for name in REFERENCES} == {*policies.POLICIES} - {"slurm"}
