"""What is taken back is what was done to that user's job, whoever has its id now."""

from pathlib import Path

import pytest

from perdure.backends.simulated import EVERY, Script, SimulatedBackend, SimulatedCluster
from perdure.model.actions import Cancel, Requeue
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Act
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.journal import Journal
from perdure.service.workers.commands import ServiceCommands
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import ActionState, Executor, ExecutorSettings
from perdure.service.workers.kill_switch import KillSwitch
from perdure.triage.verdict import Label, Verdict

UNSURE = Verdict(Label.UNSURE, 0.5, "unknown", "nobody knows")


def engine_of(journal: Journal, cluster: SimulatedCluster, folder: Path) -> Engine:
    backend = SimulatedBackend(cluster)
    executor = Executor(journal, backend, ExecutorSettings(False, folder / "STOP"))
    return Engine(backend, journal, executor, lambda *_: UNSURE, ControllerSettings(), lambda: cluster.now)


@pytest.mark.parametrize("user", ["", "ada"])
def test_undoing_what_was_done_before_an_upgrade_reaches_nobody_elses_job(tmp_path: Path, user: str) -> None:
    """It says no user, and the one whose job has the id now was taken for the one that was meant."""
    journal, cluster = Journal.open(tmp_path, "sim"), SimulatedCluster(0, nodes=1)
    job_id = cluster.submit(Script(user="ada", run_s=5.0, failures=EVERY))
    cluster.advance(10.0)
    engine = engine_of(journal, cluster, tmp_path)
    engine.look()
    engine.close()
    (attempt,) = cluster.attempts(job_id)
    retry, state = Requeue(attempt.id, user=user), ControllerState("sim")
    journal.record([Act(retry, "operator", "", 1e9)], state, state)
    journal.begin(retry.key, 10.0)
    begun = journal.action(retry.key)
    assert begun is not None
    journal.finish(begun, ActionState.DONE, "", 10.0)
    after_its_loss = SimulatedCluster(0, nodes=1)
    after_its_loss.fail_node(after_its_loss.node_names[0])
    after_its_loss.advance(100.0)
    assert after_its_loss.submit(Script(user="eve")) == job_id  # it waits
    engine = engine_of(journal, after_its_loss, tmp_path)
    engine.look()
    undone = ServiceCommands(engine, "simulated", True, KillSwitch(tmp_path)).undo(retry.key, "operator")
    row = journal.action(undone)
    assert row is not None
    assert row.action == Cancel(attempt.id, user="ada")
    engine.close()
    journal.close()
