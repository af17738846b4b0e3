"""The retry decision: closed forms, budgets, and where a retry may go."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, Wish
from perdure.model.nodes import Node, NodeState
from perdure.retry.decide import DecisionKind, decide
from perdure.retry.history import HOUR_S, Fleet, NodeTrouble, PastFailure, Spent, usable_nodes
from perdure.retry.rules import RetryRules
from perdure.triage.verdict import Bound, Evidence, Label, Role, Verdict

JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0, gpus=8)
TRIED = Attempt(AttemptId("c", "1", 2), AttemptState.FAILED, ("n2",), 0.0, 60.0, exit_code=1, gpus=8, user="ada")
TRANSIENT = Verdict(Label.TRANSIENT, 0.9, "net", "connection lost", infrastructure=True, fingerprint="f")
UNSURE = Verdict(Label.UNSURE, 0.5, "unknown", "nobody knows", fingerprint="u")
DETERMINISTIC = Verdict(Label.DETERMINISTIC, 0.03, "shape", "shapes do not match", fingerprint="d")
FLEET = Fleet(usable={"": frozenset({"n1", "n2", "n3", "n4"}), "two": frozenset({"n1", "n2"})}, live_jobs=10)
RULES = RetryRules()
NOW = 100_000.0


def decided(verdict=TRANSIENT, job=JOB, attempt=TRIED, past=(), fleet=FLEET, rules=RULES, now=NOW):
    return decide(job, attempt, verdict, past, fleet, rules, now)


def earlier(n, node="n1", fingerprint="f", infrastructure=True, retried=True):
    one = AttemptId("c", "1", 1)
    label, category = Label.TRANSIENT, "net"
    return [
        PastFailure(one, NOW - 100 + i, (node,), label, category, fingerprint, infrastructure, 60.0, retried)
        for i in range(n)
    ]


def test_a_transient_failure_is_retried_off_its_node():
    decision = decided()
    assert decision.kind is DecisionKind.RETRY
    assert decision.exclude == ("n2",)


def test_a_deterministic_failure_is_stopped():
    assert decided(DETERMINISTIC).kind is DecisionKind.STOP


def test_an_unsure_failure_gets_one_probe_per_fingerprint():
    assert decided(UNSURE).kind is DecisionKind.PROBE
    again = decided(UNSURE, past=earlier(1, fingerprint="u", infrastructure=False))
    assert again.kind is DecisionKind.STOP
    assert "probing retry for this failure is spent (1 of 1)" in again.reason
    other = decided(UNSURE, past=earlier(1, fingerprint="another", infrastructure=False))
    assert other.kind is DecisionKind.PROBE


def test_a_log_that_blames_the_site_buys_one_probe():
    forged = replace(TRANSIENT, category="gpu_hw", bound=Bound.NODE, hearsay=True)
    assert decided(forged).kind is DecisionKind.PROBE
    assert decided(forged, past=earlier(1, infrastructure=False)).kind is DecisionKind.STOP


@given(p=st.floats(0.01, 0.99), hours=st.floats(0.0, 100.0), gpus=st.integers(0, 4096))
def test_the_cheaper_of_the_two_is_taken(p, hours, gpus):
    """Break-even at p = (t + n) / (t + n + d), whatever the number of GPUs."""
    attempt = replace(TRIED, end_s=hours * HOUR_S, gpus=gpus)
    decision = decided(replace(TRANSIENT, p_transient=p, fingerprint=""), attempt=attempt)
    t, n, d = hours, RULES.nuisance_h, RULES.person_delay_h
    margin = p - (t + n) / (t + n + d)
    if abs(margin) > 1e-6:
        assert decision.retries == (margin > 0)


def test_the_numbers_stand_in_the_reason():
    reason = decided().reason
    assert "expected cost 0.41 GPU-h if retried, 28.80 if stopped (p = 0.90)" in reason


@pytest.mark.parametrize("job", [replace(JOB, wish=Wish.NEVER), replace(JOB, may_requeue=False)])
def test_the_owners_wish_is_honoured(job):
    assert decided(job=job).kind is DecisionKind.STOP


def test_each_return_elsewhere_multiplies_the_odds():
    decision = decided(past=earlier(2))  # odds 9 -> 9/16
    assert decision.p_transient == pytest.approx(9 / 25)


def test_a_return_on_the_same_node_says_nothing_of_other_nodes():
    assert decided(past=earlier(2, node="n2")).p_transient == pytest.approx(0.9)


def test_infrastructure_and_user_causes_have_budgets_of_their_own():
    spent = earlier(RULES.max_infrastructure_retries, node="n2", fingerprint="x")
    assert decided(past=spent).kind is DecisionKind.STOP
    assert decided(replace(TRANSIENT, infrastructure=False), past=spent).kind is DecisionKind.RETRY


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        ([Spent(NOW - 1, "9", "ada", ("n9",))] * RULES.per_user_per_hour, "user ada's retries"),
        ([Spent(NOW - 1, "9", "bob", ("n2",))] * RULES.per_node_per_hour, "this node's failures"),
        ([Spent(NOW - 1, "9", "bob", ("n9",))] * RULES.cluster_floor_per_hour, "the cluster's retries"),
    ],
)
def test_budgets_of_the_hour(spent, words):
    assert words in decided(fleet=replace(FLEET, spent=tuple(spent))).reason
    old = tuple(replace(s, time_s=NOW - 2 * HOUR_S) for s in spent)
    assert decided(fleet=replace(FLEET, spent=old)).retries


@given(st.integers(0, 40))
def test_the_back_off_doubles_up_to_its_cap(failures):
    rules = replace(RULES, max_infrastructure_retries=100, repeat_odds=1.0)
    decision = decided(past=earlier(failures, fingerprint="x"), rules=rules)
    assert decision.delay_s == min(RULES.back_off_cap_s, RULES.back_off_s * 2**failures)


def test_a_service_is_given_time():
    assert decided(replace(TRANSIENT, bound=Bound.SERVICE, wait_s=300.0)).delay_s == 300.0


def test_a_preempted_job_goes_anywhere_at_once():
    decision = decided(attempt=replace(TRIED, state=AttemptState.PREEMPTED))
    assert (decision.exclude, decision.delay_s) == ((), 0.0)


def test_only_the_node_that_failed_is_avoided_where_it_is_known():
    gang = replace(TRIED, nodes=("n1", "n2"), failed_nodes=("n1",))
    assert decided(attempt=gang, job=replace(JOB, node_count=2)).exclude == ("n1",)


def test_a_gang_that_needs_every_node_avoids_none():
    gang = replace(TRIED, nodes=("n1", "n2", "n3", "n4"))
    decision = decided(attempt=gang, job=replace(JOB, node_count=4))
    assert decision.exclude == ()
    assert "too few are left" in decision.reason


def test_only_the_nodes_of_the_jobs_partition_count():
    assert decided(job=replace(JOB, partition="two", node_count=1)).exclude == ("n2",)
    assert decided(job=replace(JOB, partition="two", node_count=2)).exclude == ()


def test_a_node_whose_state_nobody_knows_is_not_given_up():
    """Seen on a real Slurm: right after its controller came back, every node's state was unknown."""
    nodes = [Node("n1", NodeState.UP), Node("n2", NodeState.UNKNOWN, partitions=("p",)), Node("n3", NodeState.DOWN)]
    assert usable_nodes(nodes) == {"": frozenset({"n1", "n2"}), "p": frozenset({"n2"})}


def trouble(user, witnessed=False):
    return NodeTrouble(NOW - 10, "9", user, "gpu_hw", witnessed)


@pytest.mark.parametrize(
    ("troubles", "suspected"),
    [
        ([trouble("eve")] * 50, False),  # one user alone moves no node's verdict
        ([trouble("eve"), trouble("bob")], False),
        ([trouble("eve"), trouble("eve"), trouble("bob")], True),
        ([trouble("eve", witnessed=True)] * 2, True),
    ],
)
def test_suspects_need_two_users_or_the_resource_manager(troubles, suspected):
    fleet = replace(FLEET, troubles={"n3": tuple(troubles)})
    assert ("n3" in fleet.suspects(NOW, RULES.node_memory_s)) is suspected
    assert ("n3" in decided(fleet=fleet).exclude) is suspected


def test_troubles_are_forgotten_in_time():
    fleet = FLEET.with_trouble(("n3",), trouble("eve", witnessed=True), 50.0)
    fleet = fleet.with_trouble(("n1",), replace(trouble("bob"), time_s=NOW + 100), 50.0)
    assert list(fleet.troubles) == ["n1"]


def test_a_program_that_asks_to_be_run_again_is_within_the_budgets():
    attempt = replace(TRIED, exit_code=75, end_s=100 * HOUR_S)
    decision = decided(DETERMINISTIC, attempt=attempt)
    assert decision.kind is DecisionKind.RETRY
    assert "the program asks for it by exit code 75" in decision.reason
    spent = earlier(RULES.max_user_retries, fingerprint="d", infrastructure=False)
    assert decided(DETERMINISTIC, attempt=attempt, past=spent).kind is DecisionKind.STOP


def test_one_whose_log_names_a_cause_that_stays_is_not():
    """A script may ask for it whatever happened."""
    named = replace(DETERMINISTIC, evidence=(Evidence(3, "RuntimeError: shapes", Role.ROOT, "shape"),))
    assert decided(named, attempt=replace(TRIED, exit_code=75)).kind is DecisionKind.STOP
    followed = replace(DETERMINISTIC, evidence=(Evidence(3, "rank 3 is gone", Role.CASCADE, "peer"),))
    assert decided(followed, attempt=replace(TRIED, exit_code=75)).kind is DecisionKind.RETRY


@pytest.mark.parametrize("code", [78, 93])
def test_a_program_that_asks_not_to_be_run_again_is_not(code):
    decision = decided(TRANSIENT, attempt=replace(TRIED, exit_code=code))
    assert decision.kind is DecisionKind.STOP
    assert decision.reason == f"the program asks not to be run again (exit code {code})"


@pytest.mark.parametrize(
    "attempt",
    [replace(TRIED, exit_code=75, state=AttemptState.TIMEOUT), replace(TRIED, exit_code=75, signal=9)],
    ids=["walltime", "signal"],
)
def test_a_code_that_the_program_did_not_choose_asks_for_nothing(attempt):
    assert decided(DETERMINISTIC, attempt=attempt).kind is DecisionKind.STOP


def test_suspects_are_avoided_only_while_half_of_the_nodes_are_left():
    """A job's exclusions are never lifted: it must not be driven onto the one node that nobody has suspected yet."""
    names = [f"n{i}" for i in range(1, 11)]
    usable = {"": frozenset(names)}
    (failed,) = TRIED.nodes
    others = [name for name in names if name != failed]
    for suspects in range(10):
        troubles = {name: (trouble("eve"), trouble("eve"), trouble("bob")) for name in others[:suspects]}
        exclude = decided(fleet=replace(FLEET, usable=usable, troubles=troubles)).exclude
        assert set(exclude) == {failed, *(others[:suspects] if suspects <= 4 else ())}
