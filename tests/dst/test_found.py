"""What the simulation has found, each on the smallest story that shows it (docs/testing.md)."""

import pytest

from perdure.backends.simulated import EVERY, Script
from perdure.service.journal import Journal
from tests.dst.cluster import Line, Manager
from tests.dst.disk import Disk
from tests.dst.programs import ROOT
from tests.dst.service import LOOSE, PASSING, Life, Switch

FAILS = Script(run_s=5.0, failures=EVERY, error=PASSING.decode(), exit_code=75)


class Scene:
    """A cluster of one node that requeues by itself on exit code 75, and the service beside it."""

    def __init__(self):
        self.disk = Disk()
        self.manager = Manager(1, 1, requeue_exit=frozenset({75}))
        self.skew_s = 0.0
        self.switch = Switch()
        self.line = Line(self.manager, 1, self.disk.fuse.passed, lambda: self.manager.now + self.skew_s)
        self.journal = Journal(self.disk, "sim")
        self.start()

    def start(self):
        clock = lambda: self.manager.now + self.skew_s  # noqa: E731
        self.life = Life(self.journal, self.line, self.switch, LOOSE, clock)
        self.engine = self.life.engine

    def look_after(self, seconds):
        self.manager.advance(seconds)
        self.engine.look()

    def judge_all(self):
        while self.engine.judge_next(0.0):
            pass

    def rows(self, columns):
        return self.disk.raw.execute(f"SELECT {columns} FROM exceptions ORDER BY seq").fetchall()


@pytest.fixture
def scene():
    return Scene()


def test_a_failure_that_the_next_one_overtakes_before_it_is_judged_is_ended_too(scene):
    scene.manager.submit(FAILS)
    scene.look_after(1.0)
    scene.look_after(5.0)  # the first has failed, and the manager has started the second
    scene.look_after(5.0)  # the second has failed, too; nobody has judged the first
    scene.judge_all()
    assert scene.rows("incarnation, state, owner")[0] == (1, "handled", "resource_manager")


def test_what_was_known_of_a_failure_outlives_what_is_said_of_it_after_the_next_one(scene):
    scene.manager.submit(FAILS)
    scene.look_after(1.0)
    scene.look_after(5.0)
    scene.judge_all()
    scene.look_after(5.0)
    first = scene.rows("id, of_attempt, decision, reason, wasted_gpu_h")[0]
    scene.life.coordinator.annotate(first[0], "checkpoint", "step 12", ROOT)
    assert scene.rows("id, of_attempt, decision, reason, wasted_gpu_h")[0] == first
