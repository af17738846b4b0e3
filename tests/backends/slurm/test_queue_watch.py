"""The queue as looks tell of it: its instants are Slurm's own, however wrong this machine's clock is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.slurm.queue_watch import PARTITIONS_EVERY_S, QueueWatch
from perdure.backends.tool_process import ToolAnswer
from tests.backends.slurm.text import MARK


class Controller:
    """Answers ``scontrol`` by a clock of its own, and counts what it is asked."""

    def __init__(self, ahead_s: int) -> None:
        self.ahead_s, self.asked = ahead_s, 0

    @contextmanager
    def dialog(self) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(ask=self.ask, mark=MARK)

    def ask(self, command: str) -> ToolAnswer:
        self.asked += 1
        told = {
            "show config": f"Configuration data as of {int(time.time()) + self.ahead_s}~{MARK}\nClusterName = c\n",
            "show partition": "PartitionName=main Default=YES State=UP\n",
            "show reservation": "No reservations in the system\n",
        }
        return ToolAnswer(told[command].encode(), b"")


@given(st.integers(-100_000, 100_000))
def test_a_look_is_dated_by_slurms_clock(ahead_s: int) -> None:
    watch = QueueWatch(Controller(ahead_s))  # type: ignore[arg-type]
    assert watch.last() is None
    watch.note(5000.0, (), ())
    assert abs(watch.last().queue.now_s - (5000.0 + ahead_s)) <= 1.0


def test_what_no_look_tells_is_asked_for_only_where_it_is_wanted_and_seldom() -> None:
    controller = Controller(0)
    watch = QueueWatch(controller)  # type: ignore[arg-type]
    watch.note(100.0, (), ())
    assert controller.asked == 0
    watch.last()
    for now in (200.0, 201.0, 200.0 + PARTITIONS_EVERY_S - 1.0):
        watch.note(now, (), ())
    assert controller.asked == 3
    watch.note(200.0 + PARTITIONS_EVERY_S, (), ())
    assert controller.asked == 6
