"""Where journals are kept in these tests: a file, and a database of a real PostgreSQL."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from perdure.service.store.journal import Journal
from tests.conftest import require
from tests.service import postgres
from tests.service.clusters_apart import mixed_by

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a running server, to be completed with ``format(name=...)``."""
    bin_dir = require("postgres", postgres.programs(), "PostgreSQL's server programs are not installed")
    with postgres.server(bin_dir) as url:
        yield url


@pytest.fixture
def postgres_database(postgres_url: str) -> str:
    """URL of an empty database."""
    return postgres.new_database(postgres_url, f"journal_{next(_numbers)}")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a journal can be opened, once for each kind of database."""
    return tmp_path / "state" if request.param == "sqlite" else request.getfixturevalue("postgres_database")


@pytest.fixture
def journal(where: Path | str) -> Iterator[Journal]:
    opened = Journal.open(where, "c")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _clusters_stay_apart() -> Iterator[None]:
    """Whatever a test asks of a journal is asked of one cluster."""
    broken = []

    def look(_connection: object, statement: str, *_: object) -> None:
        if mixed := mixed_by(statement):
            broken.append(mixed)

    event.listen(Engine, "before_execute", look)
    yield
    event.remove(Engine, "before_execute", look)
    assert not broken, broken[0]
