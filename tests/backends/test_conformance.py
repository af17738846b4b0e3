"""Every backend passes every check.

A backend is registered by a module with ``open_harness(directory)``, a context manager that gives a
`perdure.backends.checks.Harness`; one cluster serves all checks of a backend.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from perdure.backends.check_harness import Harness
from perdure.backends.checks import BACKEND_CHECKS

HARNESSES = (
    pytest.param("tests.backends.local.harness", id="local"),
    pytest.param("tests.backends.kubernetes.harness", id="kubernetes"),
    pytest.param("tests.backends.condor.harness", id="condor"),
    pytest.param("tests.backends.simulated.harness", id="simulated"),
    pytest.param("tests.slurm.harness", id="slurm", marks=pytest.mark.slurm),
)


@pytest.fixture(scope="module", params=HARNESSES)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with import_module(request.param).open_harness(tmp_path_factory.mktemp("backend")) as opened:
        yield opened


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_backend(check: Callable[[Harness], None], harness: Any) -> None:
    check(harness)
