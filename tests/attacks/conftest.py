from collections.abc import Iterator

import pytest

from tests.attacks.service import Attacked, attacked


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A service with systemd's default limit of descriptors."""
    with attacked(tmp_path_factory.mktemp("home"), "--nodes", "3", "--gpus", "1", descriptors=1024) as place:
        yield place
