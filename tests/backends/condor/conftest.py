"""The pool that tests of HTCondor share."""

from collections.abc import Iterator

import pytest

from tests.backends.condor.harness import CondorHarness, open_pool


@pytest.fixture(scope="module")
def condor() -> Iterator[CondorHarness]:
    """A backend on a real pool."""
    with open_pool() as pool:
        harness = CondorHarness(pool)
        yield harness
        harness.backend.close()
