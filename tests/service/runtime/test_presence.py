"""Controllers see each other by their locks in one PostgreSQL."""

import time
from collections.abc import Iterator

import pytest

from perdure.service.runtime.presence import Presence
from perdure.service.store.database import Store, server_url

PATIENCE_S = 60.0


@pytest.fixture
def controllers(postgres_database: str) -> Iterator[list[Presence]]:
    url = server_url(postgres_database).render_as_string(hide_password=False)
    found = [Presence(url) for _ in range(3)]
    yield found
    for each in found:
        each.close()


def test_only_controllers_of_the_same_clusters_share_them(controllers: list[Presence]) -> None:
    one, other, of_another_list = controllers
    for each, names in ((one, ("n", "s")), (other, ("n", "s")), (of_another_list, ("n", "s", "w"))):
        each.look(names)
    seen = [one.look(("n", "s")), other.look(("n", "s")), of_another_list.look(("n", "s", "w"))]
    assert [each.controllers for each in seen] == [2, 2, 1]
    assert sorted(each.rank for each in seen[:2]) == [0, 1]
    other.close()
    end_s = time.monotonic() + PATIENCE_S
    while one.look(("n", "s")).controllers != 1:  # its connection ends in a moment
        assert time.monotonic() < end_s
        time.sleep(0.02)
    other.look(("n", "s", "w"))  # a file was added: whoever reads it first shares with those that have, too
    assert of_another_list.look(("n", "s", "w")).controllers == 2


def test_a_cluster_that_somebody_serves_is_held_for_controllers_of_every_list(
    controllers: list[Presence], postgres_database: str
) -> None:
    store = Store.open(postgres_database, "n")
    try:
        assert [
            each.look(names).held for each, names in zip(controllers, (("n", "s"), ("n",), ("s",)), strict=True)
        ] == [
            {"n"},
            {"n"},
            set(),
        ]
    finally:
        store.close()
