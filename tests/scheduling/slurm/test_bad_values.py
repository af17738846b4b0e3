"""A value that slurmctld would not take either is refused by its file and line, for each key that has a kind."""

from __future__ import annotations

import pytest

from perdure.errors import InputError
from tests.scheduling.slurm.test_conf import NODES, site

WHOLE = "is not a whole number"
TIME = "is not a time such as 1-12:00:00"
WEIGHTS = [f"PriorityWeight{name}" for name in ("Age", "Assoc", "FairShare", "JobSize", "Partition", "QOS")]
NO_COUNTS = ("many", "-1", "1.5", "nan", "1e3", "1" * 12)
NO_TIMES = ("soon", "-1", "1-", "nan")
LIMITS = (
    "default_queue_depth",
    "bf_window",
    "bf_resolution",
    "bf_max_job_test",
    "bf_max_job_user",
    "bf_min_age_reserve",
)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        *((key, value, WHOLE) for key in WEIGHTS for value in NO_COUNTS),
        *((key, value, TIME) for key in ("PriorityMaxAge", "PriorityDecayHalfLife", "PriorityCalcPeriod")
          for value in NO_TIMES),
        ("PriorityType", "priority/best", "is not one of priority/multifactor, priority/basic"),
        ("SchedulerType", "sched/hold", "is not one of sched/backfill, sched/builtin"),
        ("PriorityFavorSmall", "maybe", "is not one of YES, NO"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind(key: str, value: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        site(f"ClusterName=c\n{key}={value}\nNewKey=1\n")
    said = str(refused.value)
    assert said.startswith(f"slurm.conf:2: {key}: {value!r} {what}")
    assert said.endswith(". Fix the value, or comment the line out.")


@pytest.mark.parametrize("name", [*LIMITS, "bf_interval", "sched_interval"])
def test_a_parameter_of_the_scheduler(name: str) -> None:
    for value in ("many", "1.5", "-2", "1" * 12, *(("-1",) if name in LIMITS else ())):
        with pytest.raises(InputError) as refused:
            site(f"ClusterName=c\nSchedulerParameters={name}={value}\n")
        assert str(refused.value).startswith(f"slurm.conf:2: SchedulerParameters={name}: {value!r} is not ")


@pytest.mark.parametrize("value", ["", "many", "-1", "1" * 12])
def test_a_weight_of_a_resource(value: str) -> None:
    with pytest.raises(InputError) as refused:
        site(f"ClusterName=c\nPriorityWeightTRES=CPU=1,GRES/gpu={value}\n")
    assert str(refused.value).startswith(f"slurm.conf:2: PriorityWeightTRES=GRES/gpu: {value or 'nothing'!r} {WHOLE}")


@pytest.mark.parametrize(
    ("key", "values", "what"),
    [
        ("MaxTime", NO_TIMES, TIME),
        ("DefaultTime", NO_TIMES, f"is not one of NONE, {TIME.removeprefix('is not ')}"),
        ("PriorityTier", NO_COUNTS, WHOLE),
        ("PriorityJobFactor", NO_COUNTS, WHOLE),
        ("MaxNodes", NO_COUNTS, "is not one of UNLIMITED, INFINITE, a whole number"),
        ("State", ("OPEN",), "is not one of UP, DOWN, DRAIN, INACTIVE"),
        ("Default", ("maybe", "1"), "is not one of YES, NO"),
    ],
)
def test_a_value_of_a_partition(key: str, values: tuple[str, ...], what: str) -> None:
    for value in values:
        with pytest.raises(InputError) as refused:
            site(f"{NODES}PartitionName=a Nodes=ALL {key}={value}\n")
        said = str(refused.value)
        assert said.startswith(f"slurm.conf:4: PartitionName=a {key.lower()}: {value!r} {what}")


@pytest.mark.parametrize("key", ["CPUs", "Boards", "Sockets", "CoresPerSocket", "ThreadsPerCore"])
@pytest.mark.parametrize("value", [*NO_COUNTS, "9" * 5000])
def test_processors_of_a_node(key: str, value: str) -> None:
    with pytest.raises(InputError) as refused:
        site(f"ClusterName=c\nNodeName=n[1-2] {key}={value}\n")
    assert str(refused.value).startswith(f"slurm.conf:2: NodeName=n[1-2] {key.lower()}: {value[:60]!r} {WHOLE}")


def test_the_longest_whole_number_is_taken() -> None:
    assert site("PriorityWeightAge=99999999999").settings.priority.weights.age == 99_999_999_999


@pytest.mark.parametrize("nodes", ["n[1-", "n[2-1]", "n;x", "n[1-2"])
def test_a_list_of_nodes_that_cannot_be_read(nodes: str) -> None:
    with pytest.raises(InputError) as refused:
        site(f"ClusterName=c\nNodeName={nodes}\n")
    assert str(refused.value).startswith("slurm.conf:2: ")
