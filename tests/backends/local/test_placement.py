"""Where gangs fit and whom they push aside."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.local.placement import Free, choose_victims, free_capacity, occupy, place
from perdure.backends.local.records import AttemptRecord, LocalEnding, LocalJob, LocalNode
from perdure.backends.local.spec import JobSpec
from perdure.model.jobs import AttemptState, JobState


def job(job_id: str = "1", **spec: Any) -> LocalJob:
    made = JobSpec(("true",), **spec)
    return LocalJob(job_id, made, JobState.PENDING, 0.0, 0.0, made.exclude, made.require)


def node(name: str, gpus: int = 4, slots: int = 4, **more: Any) -> LocalNode:
    return LocalNode(name, gpus, slots, 0.0, **more)


def attempt(job_id: str, *places: tuple[str, list[int]], start_s: float = 0.0, **more: Any) -> AttemptRecord:
    nodes, devices = tuple(name for name, _ in places), tuple(tuple(gpus) for _, gpus in places)
    return AttemptRecord(job_id, 1, AttemptState.RUNNING, nodes, devices, start_s, "", "", **more)


names = st.sampled_from(["a", "b", "c", "d", "e"])
rooms = st.dictionaries(names, st.builds(Free, st.frozensets(st.integers(0, 7)), st.integers(0, 3)))


@given(rooms, st.integers(0, 8), st.integers(1, 5), st.sets(names), st.sets(names))
def test_a_gang_gets_all_it_needs_or_nothing(
    free: dict[str, Free], gpus: int, nodes: int, exclude: set[str], require: set[str]
) -> None:
    required = tuple(sorted(require - exclude))[:nodes]
    asked = job(gpus_per_node=gpus, node_count=nodes, exclude=tuple(exclude), require=required)
    places = place(asked, free)
    fitting = [n for n, room in free.items() if room.slots and len(room.gpus) >= gpus and n not in exclude]
    assert (places is None) == (len(fitting) < nodes or not set(required) <= set(fitting))
    if places is not None:
        assert len({each.node for each in places}) == len(places) == nodes
        assert set(required) <= {each.node for each in places} <= set(fitting)
        assert all(len(each.gpus) == gpus and set(each.gpus) <= free[each.node].gpus for each in places)
        left = occupy(free, ((each.node, each.gpus) for each in places))
        assert all(left[each.node].slots == free[each.node].slots - 1 for each in places)


def test_the_fullest_node_that_fits_is_taken() -> None:
    free = {"a": Free(frozenset(range(8)), 4), "b": Free(frozenset({5, 6}), 4)}
    places = place(job(gpus_per_node=2), free)
    assert places is not None
    assert places[0].node == "b"


def test_nodes_that_take_no_work_are_not_free() -> None:
    nodes = [node("a"), node("b", down="dead"), node("c", drained="")]
    assert list(free_capacity(nodes, [attempt("1", ("b", [0]))])) == ["a"]


def test_only_those_are_preempted_who_may_be_and_must_be() -> None:
    nodes = [node("a"), node("b")]
    jobs = {
        "1": job("1", preemptible=True, priority=1),
        "2": job("2", preemptible=True),
        "3": job("3"),
        "9": job("9", priority=5, gpus_per_node=4),
    }
    on_a = [attempt("1", ("a", [0, 1])), attempt("2", ("a", [2, 3]), start_s=9.0)]
    on_b = [attempt("3", ("b", [0, 1, 2, 3]))]
    assert {a.job_id for a in choose_victims(jobs["9"], nodes, on_a + on_b, jobs)} == {"1", "2"}
    assert choose_victims(jobs["9"], nodes, [*on_b, attempt("3", ("a", [0]))], jobs) == ()
    low = job("9", priority=1, gpus_per_node=4)
    assert choose_victims(low, nodes, on_a + on_b, jobs) == ()


def test_nobody_is_preempted_in_vain() -> None:
    """The first victim by rank turns out not to be needed once the second has gone."""
    nodes = [node("a"), node("b")]
    jobs = {"1": job("1", preemptible=True), "2": job("2", preemptible=True, priority=1), "3": job("3")}
    running = [attempt("1", ("a", [0])), attempt("3", ("a", [1])), attempt("2", ("b", [0, 1, 2, 3]))]
    wide = job("9", priority=5, gpus_per_node=4)
    assert [a.job_id for a in choose_victims(wide, nodes, running, jobs)] == ["2"]


def test_what_is_being_freed_already_is_waited_for() -> None:
    nodes = [node("a")]
    jobs = {"1": job("1", preemptible=True), "2": job("2", preemptible=True)}
    ending = LocalEnding(AttemptState.PREEMPTED, "", 1.0)
    running = [attempt("1", ("a", [0, 1]), ending=ending), attempt("2", ("a", [2, 3]))]
    assert choose_victims(job("9", priority=5, gpus_per_node=2), nodes, running, jobs) == ()
