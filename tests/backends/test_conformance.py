"""Every backend passes every check.

A backend is registered by a module with ``open_harness(directory)``, a context manager that gives a
`perdure.backends.checks.Harness`; one cluster serves all checks of a backend.
"""

from importlib import import_module

import pytest

from perdure.backends.checks import BACKEND_CHECKS

HARNESSES = (
    pytest.param("tests.backends.local.harness", id="local"),
    pytest.param("tests.backends.simulated.harness", id="simulated"),
    pytest.param("tests.slurm.harness", id="slurm", marks=pytest.mark.slurm),
)


@pytest.fixture(scope="module", params=HARNESSES)
def harness(request, tmp_path_factory):
    with import_module(request.param).open_harness(tmp_path_factory.mktemp("backend")) as opened:
        yield opened


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_backend(check, harness):
    check(harness)
