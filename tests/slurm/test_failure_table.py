"""The failure table (`tests.slurm.table`), row by row, with real faults on a real Slurm.

The quick rows of a wave have their jobs in the queue at the same time. ``make slurm-table`` runs all rows one after the
other and writes the page of docs from what it saw; ``PERDURE_TABLE=FILE.json`` names where that is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.site import Site
from tests.slurm.table import ROWS
from tests.slurm.table.row import Row
from tests.slurm.table.sources import mark
from tests.slurm.table.stage import Account, Calls, Stage

pytestmark = pytest.mark.slurm

ACCOUNTS = os.environ.get("PERDURE_TABLE", "")
SETTINGS = {  # one user has a hundred failures within minutes here, on four nodes
    "PERDURE_RETRY_PER_USER_PER_HOUR": "1000",
    "PERDURE_RETRY_PER_NODE_PER_HOUR": "1000",
    "PERDURE_RETRY_CLUSTER_FLOOR_PER_HOUR": "1000",
    "PERDURE_RETRY_PER_CLUSTER_PER_HOUR": "1000",
    "PERDURE_RETRY_GIVE_BACK_AFTER_S": "20",  # five minutes on a site
}
ORDER = sorted(ROWS, key=lambda row: (row.alone, not row.quick))  # what changes the cluster comes after the wave


class Table:
    """The rows that were chosen, on one site."""

    def __init__(self, site: Site, calls: Calls, wave: list[Row]) -> None:
        self._site, self._calls = site, calls
        self._wave = wave
        self._begun: set[str] = set()
        self._playing: dict[str, tuple[Stage, Iterator[None]]] = {}

    def play(self, row: Row) -> None:
        """Play one row to its end; the first of a wave begins them all."""
        if row.alone:
            self._site.cluster.cancel_all()
        for each in self._wave if row in self._wave else [row]:
            if each.name not in self._begun:
                self._begin(each)
        stage, play = self._playing.pop(row.name)
        with closing(play):  # type: ignore[type-var]
            next(play, None)
        if ACCOUNTS:
            _keep(self._site.cluster.run("scontrol", "--version").split()[-1], row, stage.account())
            for job in stage.jobs:
                self._site.cluster.run("scancel", job, check=False)

    def _begin(self, row: Row) -> None:
        self._begun.add(row.name)
        stage = Stage(self._site, self._calls, row.name)
        play = row.play(stage)
        self._playing[row.name] = (stage, play)
        next(play, None)


@pytest.fixture(scope="module")
def table(
    cluster: SlurmCluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Table]:
    items = [item for item in request.session.items if item.path == request.path]
    chosen = [item.callspec.params["row"] for item in items if hasattr(item, "callspec")]
    wave = [] if ACCOUNTS else [row for row in chosen if not row.alone]
    home = tmp_path_factory.mktemp("table")
    calls = Calls(home / "bin", cluster.env["PATH"])
    site = Site(cluster, home, {**SETTINGS, "PATH": f"{calls.folder}:{cluster.env['PATH']}"})
    try:
        yield Table(site.start(), calls, wave)
    finally:
        site.stop()
        cluster.cancel_all()


def _keep(version: str, row: Row, account: Account) -> None:
    path = Path(ACCOUNTS)
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(version, {})[row.name] = {**asdict(account), "sources": mark()}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=() if row.quick else pytest.mark.slow) for row in ORDER]
)
def test_row(row: Row, table: Table) -> None:
    table.play(row)


def test_every_row_has_a_name_of_its_own_and_says_what_it_is() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.play.__doc__ for row in ROWS)
