"""What a real Slurm says where a backend's check on it fails."""

from collections.abc import Generator
from typing import Any

import pytest

from tests.slurm.harness import account_of_failure


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    account_of_failure(item, (yield).get_result())
