"""Of all budgets of retries the least room is told, and a log is read from where the one before it ended."""

from collections.abc import Sequence
from pathlib import Path

from perdure.backends.simulated import EVERY, Script, SimulatedBackend, SimulatedCluster
from perdure.coordination.playbook import own_playbook
from perdure.model.jobs import Attempt
from perdure.model.output import LogMark, Output
from perdure.retry.history import Fleet, Spent
from perdure.retry.rules import RetryRules
from perdure.service.core.case import ControllerState
from perdure.service.core.settings import ControllerSettings
from perdure.service.core.view import SiteView
from perdure.service.store.journal import Journal
from perdure.service.workers.commands import retry_budgets
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.triage.evidence.context import Context
from perdure.triage.verdict import Label, Verdict

NOW = 100_000.0
RULES = RetryRules(cluster_share_per_hour=0.0, cluster_floor_per_hour=10, per_node_per_hour=4, user_share=1.0)


def test_of_users_and_nodes_the_least_that_any_has_left_is_told_and_what_has_room_last_comes_first() -> None:
    whose = [("ada", "n2"), ("bob", "n1"), ("bob", "n2"), ("bob", "n2"), ("eve", "n3"), ("bob", "n2")]
    spent = tuple(Spent(NOW - 60 + at, "1", user, (node,)) for at, (user, node) in enumerate(whose))
    spent += tuple(Spent(NOW - 30 + at, "2", "zoe", ("n4",)) for at in range(4))
    view = SiteView(ControllerState("c", fleet=Fleet(spent=spent)), own_playbook(), RULES, NOW)
    cluster, full, left = retry_budgets(view)
    assert (cluster.of, cluster.used) == ("cluster", 10)
    assert left == {"cluster": 0, "user": 6, "node": 0}
    assert [each.room_s for each in full] == sorted((each.room_s for each in full), reverse=True)
    assert "n4" in full[0].name


class Marked(SimulatedBackend):
    """Remembers which marks each log was asked for with."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster)
        self.known: list[list[str]] = []

    def output(self, attempt: Attempt, max_bytes: int = 65536, known: Sequence[LogMark] = ()) -> Output:
        self.known.append([mark.path for mark in known])
        return super().output(attempt, max_bytes, known)


def test_a_log_is_read_from_where_that_of_the_start_before_it_ended(tmp_path: Path) -> None:
    def judge(output: Output, attempt: Attempt, context: Context) -> Verdict:
        mark = LogMark(f"log of {attempt.id.incarnation}", 0, 1, "d", 1.0)
        return Verdict(Label.UNSURE, 0.5, "unknown", "nobody knows", logs=(mark,))

    cluster = SimulatedCluster(0, nodes=1, requeue_exit=frozenset({75}))
    backend, journal = Marked(cluster), Journal.open(tmp_path, "sim")
    executor = Executor(journal, backend, ExecutorSettings(False, tmp_path / "STOP"))
    engine = Engine(backend, journal, executor, judge, ControllerSettings(), lambda: cluster.now)
    engine.look()
    cluster.submit(Script(run_s=5.0, failures=EVERY, error="lost", exit_code=75))
    for _ in range(4):
        cluster.advance(6.0)
        engine.look()
        while engine.judge_next(1.0):
            pass
    assert backend.known[:4] == [[], ["log of 1"], ["log of 2"], ["log of 3"]][: len(backend.known)]
    assert len(backend.known) >= 3
    engine.close()
    journal.close()


def test_a_look_that_finds_the_manager_silent_is_no_answer_of_it(tmp_path: Path) -> None:
    cluster = SimulatedCluster(0, nodes=1)
    backend, journal = SimulatedBackend(cluster), Journal.open(tmp_path, "sim")
    executor = Executor(journal, backend, ExecutorSettings(False, tmp_path / "STOP"))
    verdict = Verdict(Label.UNSURE, 0.5, "unknown", "nobody knows")
    engine = Engine(backend, journal, executor, lambda *_: verdict, ControllerSettings(), lambda: cluster.now)
    engine.look()
    answered_s = engine.answered_s
    assert answered_s == cluster.now
    for silent in (True, False):
        backend.silent = silent
        cluster.advance(60.0)
        engine.look()
        assert (engine.last_look_s, engine.answered_s) == (cluster.now, answered_s if silent else cluster.now)
    engine.close()
    journal.close()
