"""Two Slurm clusters, whose jobs have the same ids, in one PostgreSQL: their names keep everything apart."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from perdure.errors import StateError
from perdure.service.core.settings import ControllerSettings
from perdure.service.runtime.ownership import check_manager
from perdure.service.store.journal import Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.triage.verdict import Label, Verdict
from tests.backends.slurm import text

START = int(time.time()) - 100
SCONTROL = """#!/bin/sh
while printf 'scontrol: ' && read -r line; do
  echo "$line"
  case $line in
    "show hostlist "*) echo "${line#show hostlist }" ;;
    "show config") echo "ClusterName = $CLUSTER"; echo "SLURM_VERSION = 23.11.4" ;;
    "show job"*) sed "s/@MARK@/${SLURM_TIME_FORMAT#%s~}/g" "$SITE/jobs" ;;
    "show node"*) sed "s/@MARK@/${SLURM_TIME_FORMAT#%s~}/g" "$SITE/nodes" ;;
    exit) exit 0 ;;
  esac
done
"""


class Site:
    """A Slurm cluster of canned answers, and the service that watches it."""

    def __init__(self, folder: Path, name: str, database: str) -> None:
        self.folder, self.name, self.database = folder, name, database
        folder.mkdir()
        for tool in ("scontrol", "sacct", "scancel"):
            (folder / tool).write_text(SCONTROL if tool == "scontrol" else "#!/bin/sh\n")
            (folder / tool).chmod(0o755)
        (folder / "nodes").write_text(text.node("n1", mark="@MARK@"))
        self.runs()
        path = {"PATH": f"{folder}:{os.environ['PATH']}", "SITE": str(folder), "CLUSTER": name}
        self.backend = SlurmBackend(name, Tools(environment=path))
        self.start()

    def start(self) -> None:
        self.journal = Journal.open(self.database, self.name)
        executor = Executor(self.journal, self.backend, ExecutorSettings(False, self.folder / "STOP"))
        self.engine = Engine(self.backend, self.journal, executor, judge, ControllerSettings(), time.time)
        self.engine.recover()

    def runs(self) -> None:
        (self.folder / "jobs").write_text(text.job(7, start=START, submit=START - 9, mark="@MARK@"))

    def fails(self) -> None:
        ended: dict[str, Any] = {
            "state": "FAILED",
            "reason": "NonZeroExitCode",
            "exit_code": "1:0",
            "end": int(time.time()) + 1,
        }
        (self.folder / "jobs").write_text(text.job(7, start=START, submit=START - 9, mark="@MARK@", **ended))

    def look(self) -> None:
        self.engine.look()
        while self.engine.judge_next(0.0):
            pass

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self.journal.engine.connect() as db:
            return [tuple(row) for row in db.exec_driver_sql(query)]

    def stop(self) -> None:
        self.engine.close()
        self.journal.close()


def judge(_log: object, attempt: object, _context: object) -> Verdict:
    said = f"a line of {attempt.id.cluster}"  # type: ignore[attr-defined]
    return Verdict(Label.TRANSIENT, 0.9, "network", said, fingerprint="passing")


@pytest.fixture
def sites(tmp_path: Path, postgres_database: str) -> Iterator[tuple[Site, Site]]:
    north, south = (Site(tmp_path / name, name, postgres_database) for name in ("north", "south"))
    yield north, south
    for site in (north, south):
        site.stop()
        site.backend.close()


@pytest.mark.postgres
def test_what_happens_to_a_job_of_one_is_nothing_of_the_job_of_that_id_on_the_other(sites: tuple[Site, Site]) -> None:
    north, south = sites
    for site in sites:
        check_manager(site.journal, site.backend.config().cluster)
        site.look()
    north.fails()
    for site in sites:
        site.look()
    assert [(a.attempt.cluster, a.attempt.job_id) for a in north.journal._actions() if a.attempt] == [("north", "7")]
    assert south.journal._actions() == []
    states = "select cluster, job_id, state from attempts order by cluster"
    assert north.rows(states) == [("north", "7", "failed"), ("south", "7", "running")]


@pytest.mark.postgres
def test_a_restart_reads_back_what_is_its_own(sites: tuple[Site, Site]) -> None:
    for site in sites:
        site.look()
        site.fails()
        site.look()
    for site in sites:
        before = site.engine.state
        assert {case.job.cluster for case in before.cases.values()} == {site.name}
        site.stop()
        site.start()
        assert site.engine.state.cases.keys() == before.cases.keys()
        assert len(site.journal._actions()) == 1


@pytest.mark.postgres
def test_another_slurm_under_the_name_of_one_is_refused(sites: tuple[Site, Site]) -> None:
    north, _ = sites
    check_manager(north.journal, "north")
    with pytest.raises(StateError, match="ClusterName=north, and the Slurm that answers here is east"):
        check_manager(north.journal, "east")
