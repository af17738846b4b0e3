"""On how many nodes a restart runs: laws over all clusters, and the words for it."""

from collections.abc import Collection
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.decide import Decision, decide
from perdure.retry.history import Fleet, NodeTrouble
from perdure.retry.rules import RetryRules
from perdure.retry.size import restart_size
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace

NAMES = tuple(f"n{i}" for i in range(1, 9))
LOST = Verdict(Label.TRANSIENT, 0.9, "node", "a node failed", infrastructure=True, fingerprint="f")
JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0, gpus=24, node_count=3, restart_nodes=(2, 3))
DIED = Attempt(AttemptId("c", "1", 1), AttemptState.NODE_FAIL, NAMES[:3], 0.0, 60.0, gpus=24, failed_nodes=("n2",))
some = st.sets(st.sampled_from(NAMES)).map(frozenset)


def decided(usable: Collection[str], job: Job = JOB, attempt: Attempt = DIED, **more: Any) -> Decision:
    fleet = Fleet(usable={"": frozenset(usable)}, live_jobs=10, **more)
    return decide(job, attempt, LOST, (), fleet, RetryRules(), 1000.0)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    fewest = draw(st.integers(1, 8))
    most = draw(st.integers(fewest, 8))
    excluded = draw(some)
    required = draw(st.sets(st.sampled_from(NAMES), max_size=most)) - excluded
    return replace(JOB, restart_nodes=(fewest, most), excluded=tuple(excluded), required=tuple(required))


@given(jobs(), some, some)
def test_never_below_the_least_nor_above_the_most_and_the_most_where_it_can_be_had(
    job: Job, avoid: frozenset[str], usable: frozenset[str]
) -> None:
    assert job.restart_nodes is not None
    fewest, most = job.restart_nodes
    size = restart_size(job, avoid, Fleet(usable={"": usable or frozenset({"n9"})}))
    left = (usable or {"n9"}) - avoid - set(job.excluded)
    assert fewest <= size <= most
    assert len(set(job.required) - avoid) <= size
    assert size == most or len(left) < most
    assert size == fewest or size in (len(left), len(set(job.required) - avoid), most)


@given(some, some)
def test_a_job_whose_owner_said_nothing_stays_as_it_is(avoid: frozenset[str], usable: frozenset[str]) -> None:
    assert restart_size(replace(JOB, restart_nodes=None), avoid, Fleet(usable={"": usable})) == 0


def test_where_no_node_is_known_nothing_is_said_of_their_number() -> None:
    assert restart_size(JOB, (), Fleet()) == 0


@given(jobs(), some.filter(bool), some.filter(bool))
def test_only_nodes_that_went_down_cost_a_job_its_size(
    job: Job, ran_on: frozenset[str], usable: frozenset[str]
) -> None:
    """A failure that no node is known for, a suspicion too, never makes a job smaller than the nodes that there are."""
    attempt = replace(DIED, state=AttemptState.FAILED, nodes=tuple(ran_on), failed_nodes=(), exit_code=1)
    trouble = NodeTrouble(990.0, "9", "eve", "gpu_hw", witnessed=True)
    decision = decided(usable, job, attempt, troubles={"n8": (trouble, trouble)})
    assert job.restart_nodes is not None
    most = job.restart_nodes[1]
    if len(usable - set(job.excluded)) >= most:
        assert decision.node_count == most


def test_a_dead_node_without_a_spare_makes_the_job_smaller() -> None:
    decision = decided({"n1", "n3"})
    assert (decision.node_count, decision.exclude) == (2, ("n2",))
    assert "retry away from n2, on 2 nodes, since 3 cannot be had" in decision.reason


def test_a_spare_node_keeps_it_as_large_as_it_was() -> None:
    decision = decided({"n1", "n3", "n4"})
    assert (decision.node_count, decision.exclude) == (3, ("n2",))
    assert "cannot be had" not in decision.reason


def test_a_job_grows_again_when_the_nodes_are_back() -> None:
    assert decided(NAMES, replace(JOB, node_count=2)).node_count == 3


def test_with_fewer_nodes_than_the_least_it_waits_for_the_least() -> None:
    decision = decided({"n3"})
    assert (decision.node_count, decision.exclude) == (2, ())


def test_a_suspicion_never_costs_a_job_its_size() -> None:
    """It needs three nodes: three are left without the one that died, one of them suspected."""
    told = NodeTrouble(990.0, "9", "bob", "gpu", witnessed=True)
    suspected = {"n4": (told, told)}
    decision = decided(NAMES[:4], troubles=suspected)
    assert (decision.exclude, decision.node_count) == (("n2",), 3)
    assert decided(NAMES[:5], troubles=suspected).exclude == ("n2", "n4")
