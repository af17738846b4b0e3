"""A second service on the manager of the first, with a journal of its own: neither knows of the other."""

from __future__ import annotations

from random import Random

from perdure.service.store.journal import Journal
from tests.dst.cluster import FAIR, LOSSY, Line, Manager
from tests.dst.disk import Disk
from tests.dst.laws import Auditor
from tests.dst.service import Life, Limits, Switch, catch_up, look


class Rival:
    """It never dies; the laws hold for it as for the first."""

    def __init__(self, journal: Journal, disk: Disk, manager: Manager, limits: Limits, seed: int) -> None:
        disk.wipe()
        clock = lambda: manager.now  # noqa: E731
        line, switch = Line(manager, seed + 1, disk.fuse.passed, clock), Switch()
        self.auditor = Auditor(disk, line, manager, switch, limits, clock, alone=False)
        line.watch, line.watch_comment = self.auditor.watch, self.auditor.watch_comment
        self.life = Life(journal, line, switch, limits, clock)
        self.auditor.view = lambda: self.life.engine.view()
        self.life.engine.look()
        self._line = line

    def work(self, rng: Random) -> str:
        engine, self._line.faults = self.life.engine, rng.choice((FAIR, LOSSY))
        step = rng.choice((self._look, engine.act, engine.tick, self._judge))
        step()
        self.auditor.check_all(engine, guarded=True)
        return f"another service: {step.__name__}"

    def _look(self) -> None:
        look(self.life.engine)

    def _judge(self) -> None:
        self.life.engine.judge_next(0.0)

    def catch_up(self) -> None:
        self._line.faults = FAIR
        catch_up(self.life.engine)
        self.auditor.check_all(self.life.engine, guarded=True)
