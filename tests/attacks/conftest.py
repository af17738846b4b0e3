import pytest

from tests.attacks.service import attacked


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """A service with systemd's default limit of descriptors."""
    with attacked(tmp_path_factory.mktemp("home"), "--nodes", "3", "--gpus", "1", descriptors=1024) as place:
        yield place
