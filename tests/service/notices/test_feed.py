"""The journal is read in portions, each event once and in its order, and nothing of another cluster's."""

from pathlib import Path

import pytest

from perdure.model.events import JobChanged, NodeChanged
from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Journalled
from perdure.service.notices.feed import facts_after, newest
from perdure.service.store.journal import Journal


def changed(journal: Journal, *names: str) -> None:
    """Nodes of these names go down, one after the other; what is called like a job is a job's change."""
    state = ControllerState(journal.cluster)
    for name in names:
        job = Job(journal.cluster, name, "train", "ada", JobState.PENDING, 1.0)
        node = NodeChanged(1.0, journal.cluster, Node(name, NodeState.DOWN, gpus=1))
        event = JobChanged(1.0, job) if name.isdecimal() else node
        journal.record([Journalled(event)], state, state)


def read(journal: Journal, seq: int, limit: int) -> tuple[list[str], int]:
    """The nodes that are told of after `seq`, portion by portion, and the place that was read up to."""
    found: list[str] = []
    for _ in range(20):
        batch = facts_after(journal.store, journal.cluster, seq, limit)
        found += [fact.event.node.name for fact in batch.facts if isinstance(fact.event, NodeChanged)]
        assert batch.seq >= seq
        seq = batch.seq
        if not batch.more:
            return found, seq
    raise AssertionError("it does not end")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 500])
def test_in_whatever_portions_each_event_is_told_once_and_the_place_is_the_newest(tmp_path: Path, limit: int) -> None:
    journal = Journal.open(tmp_path, "c")
    other = Journal(journal.store, "d")
    changed(journal, "a", "b", "1")
    changed(other, "z")
    changed(journal, "c", "d", "e", "2", "3")
    told, seq = read(journal, 0, limit)
    assert told == ["a", "b", "c", "d", "e"]
    assert seq == newest(journal.store, "c")
    changed(other, "y")
    changed(journal, "f")
    assert read(journal, seq, limit)[0] == ["f"]
    assert newest(journal.store, "nobody") == 0
    journal.close()


def test_where_nothing_is_new_the_place_stays(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "c")
    changed(journal, "a")
    _, seq = read(journal, 0, 10)
    assert read(journal, seq, 10) == ([], seq)
    assert read(journal, seq + 7, 10)[1] >= seq  # of a journal that was put back from a copy
    journal.close()
