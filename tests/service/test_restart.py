"""A service that ends and begins again says the same of everything, and nothing of another cluster or of others."""

import re
from collections import Counter
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from perdure.coordination.messages import Ticked
from perdure.service.store.schema import metadata
from perdure.service.web.app import API
from tests.dst.restart import check_restored
from tests.service.full_world import addresses, everything, full_site, readers, said
from tests.service.others_beside import OF_ALL, add_others, is_of_others
from tests.service.web_world import Site, restarted, site

OTHER = "borealis"
DAY_S = 86_400.0
TOLD_APART = ("kind", "state", "type", "owner", "decision", "job_id", "node", "user", "time_s", "subject", "target")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, dict[tuple[str, str], str], Path]:
    """A site, what it says, and where it is."""
    path = tmp_path_factory.mktemp("full")
    place = full_site(path)
    return place, everything(place), path


def differences(before: dict[tuple[str, str], str], after: dict[tuple[str, str], str]) -> dict[Any, Any]:
    assert before.keys() == after.keys()
    changed = {key: (before[key].splitlines(), after[key].splitlines()) for key in before if before[key] != after[key]}
    return {key: list(unified_diff(*texts, n=0, lineterm=""))[2:] for key, texts in changed.items()}


def test_the_site_knows_something_of_everything(full: tuple[Site, dict[tuple[str, str], str], Path]) -> None:
    """Else what follows shows nothing."""
    place, said, _ = full
    with place.world.journal.engine.connect() as db:
        empty = {name for name, table in metadata.tables.items() if db.execute(select(table).limit(1)).first() is None}
    in_background = {"good_runs", "policy_jobs", "policy_nice", "policy_sizes", "policy_terms", "wait_promises"}
    assert empty == in_background  # they have their own tests
    assert len(said) > 150


def test_everything_is_said_again_after_a_restart(full: tuple[Site, dict[tuple[str, str], str], Path]) -> None:
    place, before, path = full
    state = place.world.state
    again = restarted(place, path)
    again.world.tell((Ticked(),))  # the chain asks the handlers again
    assert differences(before, everything(again)) == {}
    check_restored(state, again.world.state)


def rows_of(place: Site, cluster: str) -> dict[Any, Any]:
    """All that a database holds of a cluster, by table; numbers of rows are counted together."""
    with place.world.journal.engine.connect() as db:
        return {
            name: [row[1:] if "seq" in table.c else row for row in found]
            for name, table in metadata.tables.items()
            if (found := db.execute(select(table).where(table.c.cluster == cluster).order_by(*table.primary_key)).all())
        }


def kinds_of(place: Site) -> dict[Any, Any]:
    """How many rows of each kind there are, by table: keys hold the cluster's name."""
    with place.world.journal.engine.connect() as db:
        return {
            name: Counter(
                tuple(value for column, value in row._mapping.items() if column in TOLD_APART)
                for row in db.execute(select(table).where(table.c.cluster == place.world.cluster))
            )
            for name, table in metadata.tables.items()
        }


def test_what_happens_in_one_cluster_happens_as_if_there_were_no_other_in_its_database(
    full: tuple[Site, dict[tuple[str, str], str], Path], tmp_path: Path
) -> None:
    """The same happens in both, in jobs, nodes and exceptions of the same names."""
    alone = kinds_of(full[0])
    first = full_site(tmp_path / "first", where=tmp_path / "state", cluster=OTHER)
    before = rows_of(first, OTHER)
    first.world.journal.close()
    second = full_site(tmp_path / "second", where=tmp_path / "state")
    assert kinds_of(second) == alone
    second.world.journal.prune(second.world.now + 100 * DAY_S)
    assert rows_of(second, OTHER) == before
    second.world.journal.close()


def test_nothing_of_another_cluster_is_found_by_its_address(tmp_path: Path) -> None:
    first = full_site(tmp_path / "first", where=tmp_path / "state", cluster=OTHER)
    its_own = addresses(first)
    first.world.journal.close()
    (tmp_path / "second").mkdir()
    second = site(tmp_path / "second", where=tmp_path / "state")
    operator = second.client(second.operator)
    about_one = [path for path in its_own if re.search(r"/(jobs|exceptions|comparisons|whatif)/\w*\d", path)]
    assert len(about_one) > 30
    assert {path: operator.get(path).status_code for path in about_one if operator.get(path).status_code != 404} == {}


LISTINGS = ("jobs", "nodes", "actions", "exceptions", "chains")


def test_what_is_said_of_one_is_the_same_whatever_happens_to_others(
    full: tuple[Site, dict[tuple[str, str], str], Path],
) -> None:
    """The same has happened to others in the same cluster, which have other names. It is the last: they stay there."""
    place, before, _ = full
    listed = listings(place)
    about_one = {key: text for key, text in before.items() if re.search(r"/(jobs|nodes|exceptions|chains)/", key[1])}
    assert len(about_one) > 100
    database = place.world.journal.engine.url.database
    assert database is not None
    add_others(Path(database))
    clients = readers(place)
    after = {(name, path): said(clients[name], path) for name, path in about_one}
    assert differences(of_one(about_one), of_one(after)) == {}
    assert {key: [row for row in rows if not is_of_others(str(row))] for key, rows in listings(place).items()} == listed


def of_one(said_of: dict[tuple[str, str], str]) -> dict[Any, Any]:
    return {key: OF_ALL.sub("", text) for key, text in said_of.items()}


def listings(place: Site) -> dict[Any, Any]:
    """The rows of each, as each reader gets them, whole and of one user."""
    asked = [f"{API}/{name}?limit=200{of}" for name in LISTINGS for of in ("", "&user=mira")]
    return {
        (name, path): client.get(path).json()["items"]
        for name, client in readers(place).items()
        for path in asked
        if client.get(path).status_code == 200
    }
