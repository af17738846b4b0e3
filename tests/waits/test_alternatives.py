"""What would start sooner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perdure.waits.alternatives import Alternative, Sooner, Tried, alternatives, may_be_sooner, sooner
from perdure.waits.forecast import WaitForecast, of_samples
from perdure.waits.queue import Queue, QueuedNode, QueuedPartition
from tests.waits.test_queue import waiting

NODES = (
    *tuple(QueuedNode(f"n{i}", ("main", "short", "closed"), gpus=4) for i in range(4)),
    QueuedNode("old", ("old",), gpus=2),
)
PARTITIONS = (
    QueuedPartition("main", is_default=True),
    QueuedPartition("short", max_time_s=3600.0),
    QueuedPartition("old"),
    QueuedPartition("closed", is_up=False),
)
QUEUE = Queue(1000.0, (), NODES, PARTITIONS)


def changes(gpus: int, walltime_s: float | None) -> dict[str, str]:
    job = waiting("7", gpus=gpus, nodes=2, walltime_s=walltime_s)
    return {each.change: each.options for each in alternatives(job, QUEUE)}


def test_fewer_gpus_and_shorter_limits_are_tried_by_halves() -> None:
    found = changes(8, 14_400.0)
    assert list(found)[:3] == ["4 GPUs", "2 GPUs", "1 GPU"]
    assert found["a limit of 2 h"] == "--time=120"
    assert found["a limit of 1 h"] == "--time=60"


def test_other_partitions_are_tried_where_they_admit_the_job() -> None:
    assert "partition short" in changes(8, 3600.0)
    assert "partition short" not in changes(8, 14_400.0)  # longer than allowed
    assert "partition old" not in changes(8, 3600.0)  # too small
    assert not any("closed" in change or "main" in change for change in changes(1, 60.0))


def test_an_alternative_is_a_job_that_is_not_submitted_yet() -> None:
    job = waiting("7", gpus=8, nodes=4, walltime_s=600.0, reason="Priority")
    first = next(iter(alternatives(job, QUEUE))).job
    assert (first.job_id, first.reason, first.submit_s, first.gpus, first.nodes) == ("", "", 1000.0, 4, 2)


def better(asked_s: np.ndarray, *tried: tuple[str, np.ndarray], longer: float = 1.0) -> list[Sooner]:
    """Of alternatives with these starts, where waits are said to be `longer` than futures show."""

    def told(start_s: NDArray[Any]) -> WaitForecast:
        return of_samples(1000.0, longer * np.minimum(start_s - 1000.0, 4 * 86_400.0 / longer))

    found = [Tried(Alternative(name, "", waiting("7")), start_s, told(start_s)) for name, start_s in tried]
    return sooner(asked_s, told(asked_s), found, 1000.0)


def test_only_what_gains_a_tenth_of_the_wait_is_worth_a_word() -> None:
    waits_s = {"soon": 600.0, "same": 3500.0, "later": 7200.0, "now": 0.0}
    found = better(np.full(9, 4600.0), *((name, np.full(9, 1000.0 + wait_s)) for name, wait_s in waits_s.items()))
    assert [each.alternative.change for each in found] == ["now", "soon"]


def test_what_starts_beats_what_never_does() -> None:
    assert better(np.full(9, np.inf), ("soon", np.full(9, 2000.0)))[0].gain_s == np.inf


def test_starts_and_gains_are_those_that_are_said() -> None:
    """The start that is said of the job, less the gain, is the start that is said of the alternative."""
    (found,) = better(np.full(9, 4600.0), ("soon", np.full(9, 1600.0)), longer=3.0)
    assert [found.start_s, found.gain_s] == pytest.approx([1000 + 3 * 600, 3 * 3000])


def test_a_gain_by_the_luck_of_the_first_futures_is_not_worth_a_word() -> None:
    """All are asked about the job itself: in the first alone it starts as soon as the alternative."""
    asked_s = np.concatenate([np.full(5, 1600.0), np.full(27, 4600.0)])
    assert not better(asked_s, ("same", np.full(5, 1600.0)))


def test_what_is_sooner_in_one_future_alone_is_given_up() -> None:
    asked = np.full(5, 100.0)
    assert not may_be_sooner(asked, np.array([50.0, 100, 100, 200, 100]), 2)
    assert may_be_sooner(asked, np.array([50.0, 50, 100, 200, np.inf]), 2)


def test_an_alternative_to_an_array_is_one_job() -> None:
    job = waiting("7", gpus=8, nodes=2, walltime_s=7200.0, tasks=5, task_list="1-5")
    assert {each.job.tasks for each in alternatives(job, QUEUE)} == {1}


@pytest.mark.parametrize(
    ("partition", "walltime_s", "admits"),
    [
        (QueuedPartition("other", max_nodes=2), 60.0, True),
        (QueuedPartition("other", max_nodes=1), 60.0, False),
        (QueuedPartition("other", max_time_s=60.0), 60.0, True),
        (QueuedPartition("other", max_time_s=59.0), 60.0, False),
        (QueuedPartition("other", max_time_s=60.0), None, False),
        (QueuedPartition("drained"), 60.0, False),
    ],
)
def test_a_partition_is_named_where_its_limits_and_its_nodes_in_service_admit_the_job(
    partition: QueuedPartition, walltime_s: float | None, admits: bool
) -> None:
    nodes = [QueuedNode(f"n{at}", ("other",), gpus=4) for at in range(2)]
    nodes += [QueuedNode(f"d{at}", ("drained",), is_usable=not at, gpus=4) for at in range(2)]
    job = waiting("7", gpus=8, nodes=2, walltime_s=walltime_s)
    found = alternatives(job, Queue(1000.0, (), tuple(nodes), (partition,)))
    assert any(each.change.startswith("partition") for each in found) is admits


def test_no_limit_is_named_that_is_no_shorter() -> None:
    assert [change for change in changes(1, 60.0) if "limit" in change] == []
    assert [change for change in changes(1, 90.0) if "limit" in change] == ["a limit of 1 min"]
