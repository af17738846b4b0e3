"""When epilogs that wait are let go: the real spool, the real engine, and a ``scontrol`` that knows no job."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.simulated import SimulatedBackend, SimulatedCluster
from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.spool import Spool
from perdure.backends.slurm.tools import Tools
from perdure.model.actions import Cancel
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt
from perdure.model.output import Output
from perdure.service.core.messages import PERDURE, Ordered
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.journal import Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.service.workers.hooks import EARLY_LOOK, Hooks
from perdure.triage.evidence.context import Context
from perdure.triage.verdict import Label, Verdict

SCONTROL = """#!/bin/sh
while printf 'scontrol: ' && read -r line; do
  echo "$line"
  case $line in
    "show hostlist "*) echo "${line#show hostlist }" ;;
    "show job "*) echo "$line" >>"$ASKED"; echo "slurm_load_jobs error: Invalid job id specified" ;;
    exit) exit 0 ;;
  esac
done
"""


class Desk:
    """A service that hears of failed attempts by its spool."""

    def __init__(self, directory: Path, armed: bool = True, looks_per_minute: Any = None) -> None:
        self.directory, self.spool = directory, Spool(directory / "spool")
        self.spool.directory.mkdir(mode=0o700)
        self.asked = directory / "asked"
        self.asked.touch()
        for tool in ("scontrol", "sacct", "scancel"):
            (directory / tool).write_text(SCONTROL)
            (directory / tool).chmod(0o755)
        path = {"PATH": f"{directory}:{os.environ['PATH']}", "ASKED": str(self.asked)}
        self.backend = SlurmBackend("sim", Tools(environment=path), self.spool)
        self.journal = Journal.open(directory, "sim")
        simulated = SimulatedBackend(SimulatedCluster(0))
        executor = Executor(self.journal, simulated, ExecutorSettings(armed, directory / "STOP"))
        self.engine = Engine(simulated, self.journal, executor, judge, ControllerSettings(), lambda: 100.0)
        self.hooks = Hooks(self.backend, self.engine, lambda: 100.0, looks_per_minute)
        self.ends = []

    def fail(self, job_id: str, process: int = 1) -> None:
        """A job's epilog waits at its pipe."""
        answer = f"{job_id}.epilogctld.{process}.answer"
        os.mkfifo(self.spool.directory / answer)
        self.ends.append(os.open(self.spool.directory / answer, os.O_RDONLY | os.O_NONBLOCK))
        text = f"perdure-event 1 ended\nJOBID={job_id}\nNODES=n1\nANSWER={answer}\n"
        (self.spool.directory / f"{job_id}.event").write_text(text)

    def order(self, job_id: str) -> None:
        """An action of the job is still to be carried out."""
        self.engine.absorb([Ordered(100.0, Cancel(AttemptId("sim", job_id, 1)), "root", "asked for")])

    @property
    def waiting(self) -> list[Any]:
        return sorted(self.backend.waiting())

    @property
    def looked_at(self) -> list[str]:
        return self.asked.read_text().split()[2::3]

    def close(self) -> None:
        self.engine.close()
        for end in self.ends:
            os.close(end)


def judge(log: Output, attempt: Attempt, context: Context) -> Verdict:
    return Verdict(Label.TRANSIENT, 0.9, "network", "it passes", fingerprint="passing")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    made = []

    def make(**settings: Any) -> Desk:
        made.append(Desk(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_an_epilog_waits_while_something_is_to_be_done_about_its_job(place: Callable[..., Desk]) -> None:
    desk = place()
    desk.order("7")
    desk.fail("7")
    desk.fail("8")
    desk.hooks.turn()
    assert desk.waiting == ["7"]
    assert sorted(desk.looked_at) == ["7", "8"]
    (desk.directory / "STOP").touch()
    desk.hooks.turn()
    assert desk.waiting == []


def test_an_epilog_that_a_look_heard_of_first_waits_until_its_job_was_looked_at(place: Callable[..., Desk]) -> None:
    """A look takes what lies in the spool before it asks Slurm, and takes in the answer much later."""
    desk = place()
    desk.fail("7")
    desk.backend.listen()
    desk.hooks.turn()
    assert (desk.looked_at, desk.waiting) == (["7"], [])


def test_an_epilog_waits_for_its_look_where_looks_are_few(place: Callable[..., Desk]) -> None:
    desk = place(looks_per_minute=1)
    desk.fail("7")
    desk.hooks.turn()
    desk.fail("8")
    desk.hooks.turn()
    assert (desk.looked_at, desk.waiting) == (["7"], ["8"])
    (desk.directory / "STOP").touch()
    desk.hooks.turn()
    assert desk.waiting == []


def test_a_look_at_one_failure_of_a_job_is_none_at_its_next(place: Callable[..., Desk]) -> None:
    desk = place(looks_per_minute=1)
    desk.fail("7")
    desk.hooks.turn()
    desk.fail("7", 2)
    desk.hooks.turn()
    assert (desk.looked_at, desk.waiting) == (["7"], ["7"])


def test_a_controller_that_does_not_answer_is_told_of_once_and_so_is_its_return(
    place: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    desk = place()
    desk.fail("6")
    desk.hooks.turn()  # that a look works which never failed is no news
    scontrol = desk.directory / "scontrol"
    scontrol.write_text("#!/bin/sh\nexit 1\n")
    for process in (1, 2):
        desk.fail("7", process)
        desk.hooks.turn()
    assert desk.waiting == ["7"]  # nothing is known of it yet
    scontrol.write_text(SCONTROL)
    desk.hooks.turn()
    assert desk.waiting == []
    desk.fail("7", 4)
    desk.hooks.turn()
    told = [record.getMessage().removeprefix(EARLY_LOOK)[:13] for record in caplog.records]
    assert told == [": no answer: ", ": works again"]


def test_each_failure_of_a_job_is_looked_at(place: Callable[..., Desk]) -> None:
    desk = place()
    for process in (1, 2):
        desk.fail("7", process)
        desk.hooks.turn()
        assert (desk.looked_at, desk.waiting) == (["7"] * process, [])


def test_hooks_wait_only_for_a_service_that_acts(place: Callable[..., Desk]) -> None:
    alive = (desk := place()).spool.directory / "alive"
    desk.hooks.turn()
    assert alive.read_text() == "100\n"
    desk.hooks._alive_s = 0.0
    (desk.directory / "STOP").touch()
    desk.hooks.turn()
    assert not alive.exists()


def test_no_hook_waits_for_a_service_in_shadow_mode(place: Callable[..., Desk]) -> None:
    desk = place(armed=False)
    desk.order("7")
    desk.fail("7")
    desk.hooks.turn()
    assert desk.waiting == []
    assert not (desk.spool.directory / "alive").exists()


def test_a_service_that_ends_lets_all_epilogs_go_on(place: Callable[..., Desk]) -> None:
    desk = place()
    for job_id in ("7", "8"):
        desk.order(job_id)
        desk.fail(job_id)
    desk.hooks.turn()
    assert desk.waiting == ["7", "8"]
    desk.hooks.close()
    assert desk.waiting == []
    assert not (desk.spool.directory / "alive").exists()


def test_what_a_sites_hook_says_of_a_node_is_the_services_own_word(place: Callable[..., Desk]) -> None:
    desk = place()
    (desk.spool.directory / "1.event").write_text("perdure-event 1 node\nEVENT=down\nNODES=n1\nTIME=100\n")
    desk.hooks.turn()
    chain = desk.engine.state.chain
    records = [*chain.open.values(), *chain.ended.values()]
    assert [(one.type, one.detected_by) for one in records] == [("node.down", PERDURE)]
    assert records[0].id.startswith("sim:")


@pytest.mark.parametrize("files", [("n1,n2",), ("n1", "n2"), ("n1", "", "n2")], ids=["one", "two", "and one damaged"])
def test_each_word_of_each_hook_is_taken(place: Callable[..., Desk], files: tuple[str, ...]) -> None:
    desk = place()
    for number, nodes in enumerate(files):
        text = f"perdure-event 1 node\nEVENT=down\nNODES={nodes}\nTIME=100\n"
        (desk.spool.directory / f"{number}.event").write_text(text)
    desk.hooks.turn()
    chain = desk.engine.state.chain
    records = [*chain.open.values(), *chain.ended.values()]
    assert sorted(node for one in records for node in one.subject.nodes) == ["n1", "n2"]
