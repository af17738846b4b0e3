"""The retry decision: closed forms, budgets, and where a retry may go."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, RetryPreference
from perdure.model.nodes import Node, NodeState
from perdure.model.signals import SENT_BY_PERSONS, persons_signal
from perdure.retry.budget import at, cluster_limit, node_limit, standing
from perdure.retry.decide import Decision, DecisionKind, decide
from perdure.retry.history import (
    HOUR_S,
    MAX_TROUBLES,
    NEARBY_S,
    WALLTIME_FINGERPRINT,
    Fleet,
    NodeTrouble,
    PastFailure,
    Spent,
    blamed,
    fingerprint_of,
    is_shared,
    nodes_by_partition,
    usable_nodes,
)
from perdure.retry.rules import RetryRules
from perdure.service.core.triage_context import context_of
from perdure.triage.evidence.likeness import Likeness
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, CauseRole, Evidence, Label, Verdict
from tests.copying import replace

JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0, gpus=8)
TRIED = Attempt(AttemptId("c", "1", 2), AttemptState.FAILED, ("n2",), 0.0, 60.0, exit_code=1, gpus=8, user="ada")
TRANSIENT = Verdict(Label.TRANSIENT, 0.9, "net", "connection lost", infrastructure=True, fingerprint="f")
UNSURE = Verdict(Label.UNSURE, 0.5, "unknown", "nobody knows", fingerprint="u")
DETERMINISTIC = Verdict(Label.DETERMINISTIC, 0.03, "shape", "shapes do not match", fingerprint="d")
FLEET = Fleet(usable={"": frozenset({"n1", "n2", "n3", "n4"}), "two": frozenset({"n1", "n2"})}, live_jobs=10)
RULES = RetryRules()
NOW = 100_000.0


def decided(
    verdict: Verdict = TRANSIENT,
    job: Job = JOB,
    attempt: Attempt = TRIED,
    past: Sequence[PastFailure] = (),
    fleet: Fleet = FLEET,
    rules: RetryRules = RULES,
    now: float = NOW,
    uncounted: int = 0,
) -> Decision:
    return decide(job, attempt, verdict, past, fleet, rules, now, uncounted)


def earlier(
    n: int, node: str = "n1", fingerprint: str = "f", infrastructure: bool = True, retried: bool = True
) -> list[Any]:
    one = AttemptId("c", "1", 1)
    label, category = Label.TRANSIENT, "net"
    return [
        PastFailure(one, NOW - 100 + i, (node,), label, category, fingerprint, infrastructure, 60.0, retried)
        for i in range(n)
    ]


def test_a_transient_failure_is_retried_off_its_node() -> None:
    decision = decided()
    assert decision.kind is DecisionKind.RETRY
    assert decision.exclude == ("n2",)


def test_a_deterministic_failure_is_stopped() -> None:
    assert decided(DETERMINISTIC).kind is DecisionKind.STOP


def test_a_deterministic_failure_is_stopped_however_much_a_person_costs() -> None:
    patient = replace(RULES, person_delay_h=1000.0)
    assert decided(replace(UNSURE, p_transient=0.03), rules=patient).kind is DecisionKind.PROBE
    assert decided(DETERMINISTIC, rules=patient).kind is DecisionKind.STOP


def test_a_stop_that_costs_more_than_a_retry_says_why() -> None:
    likely = decided(replace(DETERMINISTIC, p_transient=0.18))
    assert likely.retry_cost_gpu_h < likely.stop_cost_gpu_h
    assert likely.reason.endswith(", but a failure that a retry rarely gets past is not retried")
    assert "rarely" not in decided(DETERMINISTIC).reason


def test_an_unsure_failure_gets_one_probe_per_fingerprint() -> None:
    assert decided(UNSURE).kind is DecisionKind.PROBE
    again = decided(UNSURE, past=earlier(1, fingerprint="u", infrastructure=False))
    assert again.kind is DecisionKind.STOP
    assert "it was retried once after this failure, and fails the same way again" in again.reason
    nobody_knows = replace(UNSURE, fingerprint="")  # one kind of failure, however it ended
    ended_otherwise = earlier(1, fingerprint="failed:9:0", infrastructure=False)
    assert decided(nobody_knows, past=ended_otherwise).kind is DecisionKind.STOP
    other = decided(UNSURE, past=earlier(1, fingerprint="another", infrastructure=False))
    assert other.kind is DecisionKind.PROBE


def test_a_log_that_blames_the_site_buys_one_probe() -> None:
    forged = replace(TRANSIENT, category="gpu_hw", bound=Bound.NODE, hearsay=True)
    assert decided(forged).kind is DecisionKind.PROBE
    assert decided(forged, past=earlier(1, infrastructure=False)).kind is DecisionKind.STOP


@given(p=st.floats(0.01, 0.99), hours=st.floats(0.0, 100.0), gpus=st.integers(0, 4096))
def test_the_cheaper_of_the_two_is_taken(p: float, hours: float, gpus: int) -> None:
    """Break-even at p = (t + n) / (t + n + d), whatever the number of GPUs."""
    attempt = replace(TRIED, end_s=hours * HOUR_S, gpus=gpus)
    decision = decided(replace(TRANSIENT, p_transient=p, fingerprint=""), attempt=attempt)
    t, n, d = hours, RULES.nuisance_h, RULES.person_delay_h
    margin = p - (t + n) / (t + n + d)
    if abs(margin) > 1e-6:
        assert decision.retries == (margin > 0)


@pytest.mark.parametrize("state", [AttemptState.PREEMPTED, AttemptState.NODE_FAIL, AttemptState.BOOT_FAIL])
def test_what_the_site_ended_is_put_back_however_long_it_ran(state: AttemptState) -> None:
    """Its manager has mostly put it back already: Perdure does not make worse what was right."""
    month = replace(TRIED, state=state, end_s=TRIED.start_s + 30 * 24 * HOUR_S)
    assert decided(replace(TRANSIENT, p_transient=0.97), attempt=month).kind is DecisionKind.RETRY
    as_any_end = replace(month, state=TRIED.state)
    assert decided(replace(TRANSIENT, p_transient=0.97), attempt=as_any_end).kind is DecisionKind.STOP


def test_a_job_without_gpus_is_weighed_in_hours_of_its_nodes() -> None:
    decision = decided(attempt=replace(TRIED, gpus=0, nodes=("n1", "n2")))
    assert "node-h if retried" in decision.reason
    assert (decision.retry_cost_gpu_h, decision.stop_cost_gpu_h) == (0.0, 0.0)
    assert decision.kind is decided(attempt=replace(TRIED, gpus=2, nodes=("n1", "n2"))).kind


def test_the_numbers_stand_in_the_reason() -> None:
    reason = decided().reason
    assert "expected cost 0.41 GPU-h if retried, 28.80 if stopped (p = 0.90)" in reason


@pytest.mark.parametrize("job", [replace(JOB, wish=RetryPreference.NEVER), replace(JOB, may_requeue=False)])
def test_the_owners_wish_is_honoured(job: Job) -> None:
    assert decided(job=job).kind is DecisionKind.STOP


def test_what_cannot_be_put_back_is_diagnosed_all_the_same() -> None:
    for job, words in (
        (replace(JOB, is_batch=False), "not a batch job"),
        (replace(JOB, may_requeue=False), "Requeue=0"),
        (replace(JOB, may_requeue=False, is_cron=True), "its scrontab starts it again at its next time"),
    ):
        decision = decided(job=job)
        assert decision.kind is DecisionKind.STOP
        assert decision.reason.startswith("connection lost: ")
        assert words in decision.reason


def test_each_return_elsewhere_multiplies_the_odds() -> None:
    decision = decided(past=earlier(2))  # odds 9 -> 9/16
    assert decision.p_transient == pytest.approx(9 / 25)


def test_what_is_certain_stays_certain() -> None:
    """Also where a return counts for everything: its odds are not multiplied by 0."""
    certain, doubtful = (replace(TRANSIENT, p_transient=p) for p in (1.0, 0.99))
    rules = replace(RULES, repeat_odds=0.0)
    assert decided(certain, past=[replace(each, p_transient=1.0) for each in earlier(1)], rules=rules).retries
    assert not decided(doubtful, past=earlier(1), rules=rules).retries


def test_a_return_on_the_same_node_lowers_it_less() -> None:
    assert decided(past=earlier(1, node="n2")).p_transient == pytest.approx(5.4 / 6.4)  # odds 9 -> 9 * 0.6


VERDICTS = st.builds(
    Verdict,
    st.sampled_from(Label),
    st.floats(1e-9, 1.0 - 1e-9) | st.sampled_from([0.0, 1.0]),
    st.just("net"),
    st.just("it failed"),
    fingerprint=st.sampled_from(["", "f", "g"]),
)
ENDS = st.builds(
    lambda code, signal, node: replace(TRIED, exit_code=code, signal=signal, nodes=(node,)),
    st.integers(0, 2),
    st.sampled_from([0, 9, 11]),
    st.sampled_from(["n1", "n2"]),
)


@given(st.lists(st.tuples(VERDICTS, ENDS), min_size=2, max_size=6))
def test_a_failure_that_came_back_is_less_likely_to_pass_than_before(story: list[Any]) -> None:
    """Whatever surrounds it: `p_transient` of the verdicts is what circumstances make of it."""
    past, before = [], {}
    for verdict, attempt in story:
        p, equal = decided(verdict, attempt=attempt, past=past).p_transient, fingerprint_of(verdict, attempt)
        assert p <= verdict.p_transient
        if equal in before:
            assert p < before[equal] or before[equal] in (0.0, 1.0)
            assert p <= before[equal]
        before[equal] = p
        past.append(as_past(verdict, attempt, p))


def as_past(verdict: Verdict, attempt: Attempt, p: float) -> PastFailure:
    fingerprint = fingerprint_of(verdict, attempt)
    said = (verdict.label, verdict.category, fingerprint, False, 60.0, True, p)
    return PastFailure(attempt.id, NOW, attempt.nodes, *said)


def test_what_nobody_recognises_is_equal_where_it_ended_alike() -> None:
    silent = replace(UNSURE, fingerprint="")
    first = as_past(silent, TRIED, 0.5)
    assert decided(silent, past=[first]).p_transient < 0.5
    assert decided(silent, past=[first], attempt=replace(TRIED, exit_code=2)).p_transient == 0.5


@pytest.mark.parametrize("number", sorted(SENT_BY_PERSONS))
def test_a_job_that_a_person_ended_by_a_signal_is_that_persons(number: int) -> None:
    decision = decided(attempt=replace(TRIED, exit_code=0, signal=number))
    assert decision.kind is DecisionKind.STOP
    assert f"signal {number} (" in decision.reason
    assert "nobody starts it again but its owner" in decision.reason


def test_of_a_program_that_ended_by_a_code_of_its_own_a_signal_is_no_persons_word() -> None:
    assert persons_signal(replace(TRIED, exit_code=0, signal=15)) == 15
    assert persons_signal(replace(TRIED, exit_code=1, signal=15)) == 0
    assert persons_signal(replace(TRIED, exit_code=143)) == 0


def test_of_what_a_shell_tells_an_interrupt_alone_is_a_persons_word() -> None:
    assert persons_signal(replace(TRIED, exit_code=130)) == 2
    decision = decided(TRANSIENT, attempt=replace(TRIED, exit_code=130))
    assert decision.kind is DecisionKind.STOP
    assert "as scancel -s INT does; nobody" in decision.reason
    assert persons_signal(replace(TRIED, exit_code=130, failed_nodes=("n1",))) == 0


def test_a_machine_that_shuts_down_sends_the_same_signal() -> None:
    ended = replace(TRIED, exit_code=0, signal=15, failed_nodes=("n2",))
    assert decided(attempt=ended).kind is DecisionKind.RETRY


@pytest.mark.parametrize(("verdict", "most"), [(UNSURE, 1), (TRANSIENT, RULES.max_infrastructure_retries)])
def test_starts_that_only_the_resource_manager_counted_are_tries(verdict: Verdict, most: int) -> None:
    """Those that another state directory granted among them."""
    assert decided(verdict, uncounted=most - 1).retries
    stopped = decided(verdict, uncounted=most)
    assert stopped.kind is DecisionKind.STOP
    assert f", {most} of them by the resource manager's count alone" in stopped.reason
    lost = replace(TRIED, state=AttemptState.NODE_FAIL)
    assert decided(verdict, attempt=lost, uncounted=most).retries  # what the site did is not a try of its own


OUT_OF_TIME = replace(TRIED, state=AttemptState.TIMEOUT, exit_code=0, end_s=100 * HOUR_S)
TIMEOUT = Verdict(Label.DETERMINISTIC, 0.04, "time_limit", "the walltime was reached", fingerprint="t")


def test_what_its_walltime_warning_ended_is_put_back_where_its_owner_asks_for_that() -> None:
    warned = replace(OUT_OF_TIME, warning="--signal=B:USR1@80", signal=10)
    stopped = decided(TIMEOUT, attempt=warned)
    assert stopped.kind is DecisionKind.STOP
    goes_on = decided(TIMEOUT, replace(JOB, requeue_at_timeout=True), warned)
    assert goes_on.kind is DecisionKind.RETRY
    for decision in (stopped, goes_on):
        assert decision.reason.startswith("its walltime warning ended it (--signal=B:USR1@80: ")
        assert "nothing caught" not in decision.reason  # a script that did, and then ended itself so, looks the same


def test_what_catches_its_walltime_warning_and_leaves_would_take_as_long_again() -> None:
    caught = replace(TRIED, warning="--signal=USR1@80", exit_code=85)
    unknown = Verdict(Label.UNSURE, 0.36, "unknown", "nothing that looks like a failure")
    said = "it ended with exit code 85 when its walltime was near, as --signal=USR1@80 shows"
    for verdict in (unknown, replace(unknown, label=Label.TRANSIENT, p_transient=0.75, category="preempt")):
        stopped = decided(verdict, attempt=caught)
        assert stopped.kind is DecisionKind.STOP
        assert stopped.told == f"{said}: it would take as long again"
        assert decided(verdict, replace(JOB, requeue_at_timeout=True), caught).retries  # its owner asks for it
        assert decided(verdict, attempt=replace(caught, exit_code=75)).retries  # so does the program
    lost_peer = decided(attempt=caught)  # its log names another cause
    assert lost_peer.retries
    assert "walltime" not in lost_peer.reason


def timed_out(*steps: int | None) -> list[Any]:
    one = earlier(1, fingerprint="t", infrastructure=False)[0]
    return [replace(one, state=AttemptState.TIMEOUT, steps=each) for each in steps]


@pytest.mark.parametrize(
    ("steps", "goes_on"),
    [
        ((10,), True),
        ((None,), True),  # nobody knows: once
        ((None, None), False),
        ((10, 20, 30, 40), True),
        ((10, 10), True),
        ((10, 20, 20), True),
        ((10, 20, 20, 15), False),
        ((10, None, 20), True),
        ((10, None, None), False),
    ],
)
def test_a_job_that_saves_checkpoints_goes_on_at_its_walltime_while_it_makes_progress(
    steps: tuple[int | None, ...], goes_on: bool
) -> None:
    *before, now = steps
    verdict, past = replace(TIMEOUT, steps=now), timed_out(*before)
    for job, rules in [
        (replace(JOB, requeue_at_timeout=True), RULES),
        (replace(JOB, partition="gpu"), replace(RULES, requeue_at_timeout=("gpu",))),
    ]:
        decision = decided(verdict, job, OUT_OF_TIME, past, rules=rules)
        assert decision.retries is goes_on
        assert decision.exclude == ()
        refused = decided(verdict, replace(job, may_requeue=False), OUT_OF_TIME, past, rules=rules)
        assert "--no-requeue" in refused.reason
    assert decided(verdict, attempt=OUT_OF_TIME, past=past).kind is DecisionKind.STOP  # nobody asked for it


def test_what_its_owner_wrote_and_nobody_understands_is_said() -> None:
    assert (
        '"perdure:retry=nevr" in its comment is not understood'
        in decided(job=replace(JOB, misread="perdure:retry=nevr")).reason
    )


def test_a_cause_of_the_jobs_own_that_comes_back_is_probed_whatever_the_first_verdict_was() -> None:
    own = replace(TRANSIENT, p_transient=0.7, infrastructure=False)
    assert decided(own).kind is DecisionKind.RETRY
    again = decided(own, past=earlier(1, infrastructure=False))
    said = "it was retried once after this failure, and fails the same way again"
    assert (again.kind, again.limit) == (DecisionKind.STOP, said)
    assert "it was retried 2 times after" in decided(own, past=earlier(2, infrastructure=False)).reason
    assert decided(replace(own, infrastructure=True), past=earlier(1)).kind is DecisionKind.RETRY  # of the site's


def test_where_there_are_no_gpus_a_try_costs_its_nodes() -> None:
    tried = (replace(TRIED, gpus=0, nodes=nodes) for nodes in (("n2",), ("n2", "n3", "n4")))
    one, three = (decided(attempt=each).reason for each in tried)
    assert "0.05 node-h if retried, 3.60 if stopped" in one
    assert "0.15 node-h if retried, 10.80 if stopped" in three


def test_preemptions_are_no_tries_and_cost_no_budget() -> None:
    preempted = [replace(one, state=AttemptState.PREEMPTED) for one in earlier(30, fingerprint="x")]
    assert decided(past=preempted).kind is DecisionKind.RETRY
    spent = tuple(Spent(NOW - 1, "9", "ada", ("n2",)) for _ in range(500))
    decision = decided(attempt=replace(TRIED, state=AttemptState.PREEMPTED), fleet=replace(FLEET, spent=spent))
    assert decision.delay_s == 0.0
    assert decided(past=[replace(one, state=AttemptState.PREEMPTED) for one in earlier(1)]).p_transient == 0.9
    waits = decided(job=replace(JOB, state=JobState.PENDING), fleet=replace(FLEET, spent=spent))
    assert waits.delay_s == 0.0


def test_infrastructure_and_user_causes_have_budgets_of_their_own() -> None:
    spent = earlier(RULES.max_infrastructure_retries, node="n2", fingerprint="x")
    assert decided(past=spent).kind is DecisionKind.STOP
    assert decided(replace(TRANSIENT, infrastructure=False), past=spent).kind is DecisionKind.RETRY


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        ([Spent(NOW - 1, "9", "ada", ("n9",))] * 50, "user ada's share of the cluster's retries of an hour is spent"),
        ([Spent(NOW - 1, "9", "ada", ("n2",))] * 30, "user ada's share of the retries after failures on n2"),
        (
            [Spent(NOW - 1, "9", "bob", ("n2",))] * 60,
            "the retries after failures on n2 of an hour are spent (60 of 60)",
        ),
        ([Spent(NOW - 1, "9", "bob", ("n9",))] * 100, "the cluster's retries of an hour are spent (100 of 100)"),
    ],
)
def test_a_budget_that_is_spent_means_later(spent: list[Spent], words: str) -> None:
    decision = decided(fleet=replace(FLEET, spent=tuple(spent)))
    assert decision.kind is DecisionKind.RETRY
    assert decision.delay_s == pytest.approx(HOUR_S - 1)
    assert f"later, at {at(NOW + HOUR_S - 1, NOW)}, since {words}" in decision.reason
    old = tuple(replace(s, time_s=NOW - 2 * HOUR_S) for s in spent)
    assert decided(fleet=replace(FLEET, spent=old)).delay_s == RULES.back_off_s


def test_a_users_share_of_a_nodes_retries_counts_those_after_failures_there_alone() -> None:
    elsewhere = (Spent(NOW - 1, "9", "ada", ("n9",)),) * 40
    spent = (*elsewhere, Spent(NOW - 1, "8", "ada", ("n2",)))
    assert decided(fleet=replace(FLEET, spent=spent)).delay_s == RULES.back_off_s


def test_the_failure_of_a_gang_is_charged_to_each_of_its_nodes() -> None:
    gang = replace(TRIED, nodes=("n1", "n2"))
    for node in gang.nodes:
        spent = (Spent(NOW - 1, "9", "bob", (node, "n4")),) * 60
        assert (
            f"the retries after failures on {node} of an hour"
            in decided(attempt=gang, fleet=replace(FLEET, spent=spent)).reason
        )


def test_a_retry_waits_until_every_budget_has_room_at_once() -> None:
    """Where one has room, another may be full by retries that are planned already."""
    rules = replace(RULES, cluster_floor_per_hour=2, per_cluster_per_hour=2, per_node_per_hour=1)
    after_s, beside_s = NOW - 10, NOW + HOUR_S + 100
    spent = (Spent(after_s, "8", "bob", ("n2",)), *[Spent(beside_s, "9", "bob", ("n9",))] * 2)
    assert decided(fleet=replace(FLEET, spent=spent[:1]), rules=rules).delay_s == pytest.approx(after_s + HOUR_S - NOW)
    assert decided(fleet=replace(FLEET, spent=spent), rules=rules).delay_s == pytest.approx(beside_s + HOUR_S - NOW)


def test_a_budget_needs_room_when_the_retry_starts_and_not_before() -> None:
    soon = NOW + RULES.back_off_s / 2
    spent = tuple(Spent(soon - HOUR_S, "9", "bob", ("n9",)) for _ in range(100))
    decision = decided(fleet=replace(FLEET, spent=spent))
    assert decision.delay_s == RULES.back_off_s
    assert "later" not in decision.reason


def test_an_instant_has_its_day_only_where_it_is_not_near() -> None:
    assert len(at(NOW + 11 * HOUR_S, NOW)) == len("08:04")
    assert len(at(NOW + 13 * HOUR_S, NOW)) == len("2026-11-22 08:04")


def test_what_no_retry_fixes_is_called_so_whatever_its_chance_was() -> None:
    verdict = replace(DETERMINISTIC, p_transient=0.4)
    assert Decision(DecisionKind.STOP, "", p_transient=0.3).headline(verdict) == Label.DETERMINISTIC


def test_a_nodes_budget_of_nothing_stops_though_nothing_was_charged_to_it() -> None:
    decision = decided(rules=replace(RULES, per_node_per_hour=0, cluster_share_per_hour=0.0))
    assert (decision.kind, decision.limit) == (
        DecisionKind.STOP, "user ada's share of the retries after failures on n2 of an hour is spent (0 of 0)"
    )  # fmt: skip


def test_a_budget_of_nothing_stops() -> None:
    decision = decided(rules=replace(RULES, per_cluster_per_hour=0))
    assert decision.kind is DecisionKind.STOP
    assert "(0 of 0)" in decision.reason


def test_saved_is_what_a_retry_would_have_wasted_and_never_what_a_limit_forced() -> None:
    """The headline of the first page: it must not grow when Perdure fails its users."""
    hours = TRIED.gpu_hours
    assert decided(DETERMINISTIC).saved_gpu_h(TRIED) == pytest.approx((1 - DETERMINISTIC.p_transient) * hours)
    forced = decided(past=earlier(RULES.max_infrastructure_retries, fingerprint="other"))
    assert (forced.kind, forced.saved_gpu_h(TRIED)) == (DecisionKind.STOP, 0.0)
    refused = decided(job=replace(JOB, wish=RetryPreference.NEVER))
    assert (refused.kind, refused.saved_gpu_h(TRIED), refused.limit) == (DecisionKind.STOP, 0.0, "")
    assert decided().saved_gpu_h(TRIED) == 0.0
    long = replace(TRIED, end_s=TRIED.start_s + 40 * HOUR_S)  # not worth a retry, though it may well pass
    dear = decided(replace(TRANSIENT, label=Label.UNSURE, p_transient=0.6), attempt=long)
    assert (dear.kind, dear.saved_gpu_h(long)) == (DecisionKind.STOP, 0.0)


def test_what_limits_cost_stands_beside_what_was_saved() -> None:
    forced = decided(past=earlier(RULES.max_infrastructure_retries, fingerprint="other"))
    assert forced.limit == "the job's retries for the site's causes are spent (8 of 8)"
    assert forced.limit_cost_gpu_h == pytest.approx(forced.stop_cost_gpu_h - forced.retry_cost_gpu_h)
    later = decided(fleet=replace(FLEET, spent=(Spent(NOW, "9", "bob", ("n9",)),) * 100))
    assert (later.limit, later.limit_cost_gpu_h) == ("the cluster's retries of an hour are spent (100 of 100)", 0.0)
    assert (decided().limit, decided(DETERMINISTIC).limit) == ("", "")


def test_how_the_budgets_stand() -> None:
    spent = tuple(Spent(NOW - 10 * i, str(i), "ada" if i % 2 else "bob", ("n1", "n2")) for i in range(60))[::-1]
    fleet = replace(FLEET, spent=spent)
    stand = {each.name: each for each in standing(fleet, RULES, NOW)}
    assert stand["the cluster's retries"] == (
        "the cluster's retries",
        60,
        100,
        NOW,
        "cluster_floor_per_hour",
        "cluster",
    )
    assert stand["user ada's share of the cluster's retries"][1:] == (30, 50, NOW, "user_share", "user")
    on_n1 = stand["the retries after failures on n1"]
    assert on_n1[1:] == (60, 60, spent[0].time_s + HOUR_S, "per_node_per_hour", "node")
    assert len(stand) == 5
    assert standing(fleet, replace(RULES, per_cluster_per_hour=0), NOW)[0].room_s == math.inf
    half_gone = standing(fleet, RULES, spent[30].time_s + HOUR_S)  # what was spent an hour ago or more counts no longer
    assert half_gone[0].used == 29


ARRIVALS = st.lists(
    st.tuples(st.floats(0, 1800), st.sampled_from(["ada", "bob", "eve"]), st.sampled_from(["n1", "n2"])), max_size=60
)


@given(ARRIVALS, st.integers(1, 8), st.integers(1, 5))
def test_no_hour_holds_more_retries_than_its_budgets(
    arrivals: list[tuple[float, str, str]], of_all: int, of_node: int
) -> None:
    """However they arrive: counted at the instants for which they are planned; a user has half of each at most."""
    rules = replace(RULES, cluster_floor_per_hour=0, cluster_share_per_hour=0.0, per_node_per_hour=of_node)
    rules = replace(rules, cluster_floor_per_hour=of_all, per_cluster_per_hour=of_all)
    fleet, now, planned = FLEET, NOW, []
    for wait_s, user, node in arrivals:
        now += wait_s
        job, attempt = replace(JOB, user=user), replace(TRIED, nodes=(node,))
        decision = decided(job=job, attempt=attempt, fleet=fleet, rules=rules, now=now)
        assert decision.kind is DecisionKind.RETRY
        assert decision.delay_s >= RULES.back_off_s
        one = Spent(now + decision.delay_s, "1", user, (node,))
        planned.append(one)
        fleet = fleet.with_spent(one, now)
    most_in_an_hour(planned, of_all)
    for user in ("ada", "bob", "eve"):
        most_in_an_hour([s for s in planned if s.user == user], max(1, of_all // 2))
    for node in ("n1", "n2"):
        most_in_an_hour([s for s in planned if node in s.nodes], of_node)


def most_in_an_hour(spent: Sequence[Spent], limit: int) -> None:
    times = sorted(s.time_s for s in spent)
    assert all(last - first > HOUR_S - 0.01 for first, last in zip(times, times[limit:], strict=False))


@pytest.mark.parametrize(("live", "limit"), [(4, 100), (400, 400), (50_000, 5000)])
def test_the_clusters_budget_grows_with_its_jobs(live: int, limit: int) -> None:
    assert cluster_limit(replace(FLEET, live_jobs=live), RULES) == limit


def test_a_nodes_budget_grows_with_what_runs_on_it() -> None:
    assert node_limit(replace(FLEET, running_jobs=8, live_jobs=50_000), RULES) == RULES.per_node_per_hour
    assert node_limit(replace(FLEET, running_jobs=800), RULES) == 200


@given(st.integers(0, 40))
def test_the_back_off_doubles_up_to_its_cap(failures: int) -> None:
    rules = replace(RULES, max_infrastructure_retries=100, repeat_odds=1.0)
    decision = decided(past=earlier(failures, fingerprint="x"), rules=rules)
    assert decision.delay_s == min(RULES.back_off_cap_s, RULES.back_off_s * 2**failures)


def test_a_service_is_given_time() -> None:
    decision = decided(replace(TRANSIENT, bound=Bound.SERVICE, wait_s=300.0))
    assert decision.delay_s == 300.0
    assert "once the service had time to come back" in decision.reason
    assert "once the service" not in decided().reason


def test_who_asked_a_remote_service_too_often_waits_and_goes_anywhere() -> None:
    throttled = judge(b"requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url", TRIED)
    decision = decided(throttled)
    assert (decision.kind, decision.exclude) == (DecisionKind.PROBE, ())
    assert decision.delay_s >= 60.0
    assert "the node did nothing wrong" in decision.reason
    assert blamed(FLEET, JOB, TRIED, throttled, 1e9, NOW) == FLEET


def test_a_preempted_job_goes_anywhere_at_once() -> None:
    decision = decided(attempt=replace(TRIED, state=AttemptState.PREEMPTED))
    assert (decision.exclude, decision.delay_s) == ((), 0.0)


def test_only_the_node_that_failed_is_avoided_where_it_is_known() -> None:
    gang = replace(TRIED, nodes=("n1", "n2"), failed_nodes=("n1",))
    assert decided(attempt=gang, job=replace(JOB, node_count=2)).exclude == ("n1",)


def test_a_gang_that_needs_every_node_avoids_none() -> None:
    gang = replace(TRIED, nodes=("n1", "n2", "n3", "n4"))
    decision = decided(attempt=gang, job=replace(JOB, node_count=4))
    assert decision.exclude == ()
    assert "too few are left" in decision.reason


def test_what_earlier_retries_were_kept_off_is_lifted_where_too_few_are_left() -> None:
    """Never what the job's owner excluded, and the words say where it may go."""
    past = [replace(earlier(1)[0], avoided=("n1", "n3"))]
    kept_off = replace(JOB, excluded=("n1", "n3", "n4"))
    decision = decided(job=kept_off, past=past)
    assert (decision.exclude, decision.lift) == ((), ("n1", "n3"))
    assert "retry on any node but n4, since without n1, n3, n2 too few are left" in decision.reason
    assert decided(job=replace(JOB, excluded=("n1", "n3")), past=past).lift == ()  # n4 is left


@given(st.permutations(("n1", "n3", "n5")), st.lists(st.integers(0, 2), min_size=3, max_size=3), st.booleans())
def test_what_is_lifted_is_what_all_earlier_retries_were_kept_off_whichever_it_was(
    nodes: list[Any], by: list[Any], and_n4: bool
) -> None:
    past = [
        replace(one, avoided=tuple(n for n, k in zip(nodes, by, strict=True) if k == at))
        for at, one in enumerate(earlier(3))
    ]
    kept_off = tuple(n for n in nodes if n != "n5" or and_n4)
    decision = decided(job=replace(JOB, excluded=(*kept_off, "n4")), past=past)
    assert (decision.exclude, decision.lift) == ((), kept_off)


@given(st.lists(st.sampled_from(("n1", "n3", "n4")), max_size=3), st.lists(st.booleans(), min_size=3, max_size=3))
def test_a_node_that_is_asked_for_by_name_is_kept_unless_it_failed_there_before_whenever_that_was(
    failed_on: list[Any], preempted: list[Any]
) -> None:
    """A preemption is no failure of the node's."""
    past = [
        replace(before, nodes=(node,), state=AttemptState.PREEMPTED if is_preempted else AttemptState.FAILED)
        for before, node, is_preempted in zip(earlier(3), failed_on, preempted, strict=False)
    ]
    lost = {failure.nodes[0] for failure in past if not failure.preempted}
    gang = replace(TRIED, nodes=("n2", "n1"))
    decision = decided(job=replace(JOB, node_count=2, required=("n1",)), attempt=gang, past=past)
    assert (decision.exclude == ("n2", "n1")) is ("n1" in lost)
    assert ("on n1 as asked for by" in decision.reason) is ("n1" not in lost)


def test_what_the_owner_excluded_is_not_excluded_again() -> None:
    """Else it would count as ours, and be lifted."""
    suspect = NodeTrouble(NOW - 1.0, "8", "bob", "net", witnessed=True)
    fleet = FLEET
    for trouble in (suspect, suspect):
        fleet = fleet.with_trouble(("n1",), trouble, RULES.node_memory_s)
    assert decided(fleet=fleet).exclude == ("n2", "n1")
    assert decided(job=replace(JOB, excluded=("n1",)), fleet=fleet).exclude == ("n2",)


def test_nodes_that_are_reserved_are_none_that_a_retry_could_get() -> None:
    reserved = replace(FLEET, reserved=frozenset({"n3", "n4"}))
    assert decided(fleet=reserved).exclude == ("n2",)  # n1 is left
    two: dict[str, Any] = {"job": replace(JOB, node_count=2), "attempt": replace(TRIED, nodes=("n1", "n2"))}
    assert decided(**two).exclude == ("n1", "n2")
    decision = decided(fleet=reserved, **two)
    assert decision.exclude == ()
    assert "too few are left" in decision.reason
    within = replace(FLEET, reserved=frozenset({"n1", "n2", "n3", "n4"}))  # it ran within the reservation
    assert decided(fleet=within, **two).exclude == ("n1", "n2")


def test_only_the_nodes_of_the_jobs_partition_count() -> None:
    assert decided(job=replace(JOB, partition="two", node_count=1)).exclude == ("n2",)
    assert decided(job=replace(JOB, partition="two", node_count=2)).exclude == ()


def test_a_job_of_several_partitions_may_go_to_the_nodes_of_each_and_one_of_an_unknown_one_to_all() -> None:
    fleet = replace(FLEET, usable={**FLEET.usable, "one": frozenset({"n4"})})
    assert fleet.nodes_for("two,one") == {"n1", "n2", "n4"}
    assert fleet.nodes_for("nobody's") == fleet.nodes_for("") == FLEET.usable[""]
    assert Fleet().nodes_for("two") == frozenset()


def test_a_node_whose_state_nobody_knows_is_not_given_up() -> None:
    """Seen on a real Slurm: right after its controller came back, every node's state was unknown."""
    nodes = [Node("n1", NodeState.UP), Node("n2", NodeState.UNKNOWN, partitions=("p",)), Node("n3", NodeState.DOWN)]
    assert usable_nodes(nodes) == {"": frozenset({"n1", "n2"}), "p": frozenset({"n2"})}


def trouble(user: str, witnessed: bool = False) -> NodeTrouble:
    return NodeTrouble(NOW - 10, "9", user, "gpu_hw", witnessed)


@pytest.mark.parametrize(
    ("troubles", "suspected"),
    [
        ([trouble("eve")] * 50, False),  # one user alone moves no node's verdict
        ([trouble("eve"), trouble("bob")], False),
        ([trouble("eve"), trouble("eve"), trouble("bob")], True),
        ([trouble("eve", witnessed=True)] * 2, True),
        ([trouble("eve", witnessed=True), trouble("eve")], False),
        ([replace(trouble("bob"), time_s=NOW - RULES.node_memory_s), *[trouble("eve")] * 3], False),  # forgotten
        ([replace(trouble("bob"), shared=True), *[trouble("eve")] * 3], False),  # of what jobs share
    ],
)
def test_suspects_need_two_users_or_the_resource_manager(troubles: list[NodeTrouble], suspected: bool) -> None:
    fleet = replace(FLEET, troubles={"n3": tuple(troubles)})
    assert ("n3" in fleet.suspects(NOW, RULES.node_memory_s)) is suspected
    assert ("n3" in decided(fleet=fleet).exclude) is suspected


def test_a_preemption_says_nothing_of_the_node() -> None:
    lost = replace(TRIED, state=AttemptState.PREEMPTED)
    assert blamed(FLEET, JOB, lost, TRANSIENT, 3600.0, NOW) is FLEET
    assert set(blamed(FLEET, JOB, TRIED, TRANSIENT, 3600.0, NOW).troubles) == {"n2"}


def test_a_node_that_a_person_set_down_is_not_charged_with_the_jobs_lost_there() -> None:
    fleet = replace(FLEET, set_down=frozenset({"n2"}))
    lost = replace(TRIED, state=AttemptState.NODE_FAIL, nodes=("n1", "n2"), failed_nodes=("n2",))
    assert blamed(fleet, JOB, lost, TRANSIENT, 3600.0, NOW).troubles == {}
    assert blamed(fleet, JOB, replace(lost, failed_nodes=()), TRANSIENT, 3600.0, NOW).troubles == {}
    both = replace(lost, failed_nodes=("n1", "n2"))
    assert set(blamed(fleet, JOB, both, TRANSIENT, 3600.0, NOW).troubles) == {"n1"}
    failed = replace(lost, state=AttemptState.FAILED)  # before, by itself
    assert set(blamed(fleet, JOB, failed, TRANSIENT, 3600.0, NOW).troubles) == {"n2"}


def test_what_took_a_node_down_that_nobody_names_is_charged_to_all_of_its_nodes() -> None:
    lost = replace(TRIED, state=AttemptState.NODE_FAIL, nodes=("n1", "n2"))
    assert set(blamed(FLEET, JOB, lost, TRANSIENT, 3600.0, NOW).troubles) == {"n1", "n2"}
    set_down = replace(FLEET, set_down=frozenset({"n1"}))
    assert set(blamed(set_down, JOB, lost, TRANSIENT, 3600.0, NOW).troubles) == set()


def test_what_is_taken_back_is_the_jobs_latest_retry() -> None:
    fleet = FLEET
    for time_s, job_id in ((30.0, "1"), (10.0, "1"), (20.0, "2")):  # planned in another order than they start
        fleet = fleet.with_spent(Spent(NOW + time_s, job_id, "ada", ()), NOW)
    assert [s.time_s - NOW for s in fleet.spent] == [10.0, 20.0, 30.0]
    assert [(s.time_s - NOW, s.job_id) for s in fleet.without_spent("1").spent] == [(10.0, "1"), (20.0, "2")]
    assert fleet.without_spent("3") is fleet


def test_troubles_are_forgotten_in_time() -> None:
    fleet = FLEET.with_trouble(("n3",), trouble("eve", witnessed=True), 50.0)
    fleet = fleet.with_trouble(("n1",), replace(trouble("bob"), time_s=NOW + 100), 50.0)
    assert list(fleet.troubles) == ["n1"]
    fleet = fleet.with_trouble(("n1",), replace(trouble("eve"), time_s=NOW + 150), 50.0)
    assert [t.user for t in fleet.troubles["n1"]] == ["eve"]  # what is as old as the memory is forgotten, too


def test_of_many_troubles_the_latest_are_remembered() -> None:
    """Else whoever fails often on a node keeps it from ever being suspected."""
    fleet = FLEET
    for _ in range(MAX_TROUBLES + 1):
        fleet = fleet.with_trouble(("n3",), trouble("eve"), 3600.0)
    for _ in range(2):
        fleet = fleet.with_trouble(("n3",), trouble("bob", witnessed=True), 3600.0)
    assert len(fleet.troubles["n3"]) == MAX_TROUBLES
    assert fleet.suspects(NOW, 3600.0) == {"n3"}


def test_what_a_log_shows_broken_is_remembered_of_the_node_that_it_names() -> None:
    shown = replace(TRANSIENT, hardware="n3: NVRM: Xid 79, GPU has fallen off the bus")
    gang = blamed(Fleet(), JOB, replace(TRIED, nodes=("n2", "n3")), shown, 3600.0, NOW)
    assert {name: one.hardware for name, (one,) in gang.troubles.items()} == {"n2": "", "n3": shown.hardware}
    alone = blamed(Fleet(), JOB, TRIED, shown, 3600.0, NOW)  # no other node can be meant
    assert {name: one.hardware for name, (one,) in alone.troubles.items()} == {"n2": shown.hardware}


def test_a_program_that_asks_to_be_run_again_is_within_the_budgets() -> None:
    attempt = replace(TRIED, exit_code=75, end_s=100 * HOUR_S)
    decision = decided(DETERMINISTIC, attempt=attempt)
    assert decision.kind is DecisionKind.RETRY
    assert "the program asks for it by exit code 75" in decision.reason
    spent = earlier(RULES.max_user_retries, fingerprint="d", infrastructure=False)
    assert decided(DETERMINISTIC, attempt=attempt, past=spent).kind is DecisionKind.STOP
    blames_the_site = replace(TRANSIENT, hearsay=True)  # in its own log alone
    assert decided(blames_the_site, attempt=attempt, past=spent).kind is DecisionKind.STOP


def test_one_whose_log_names_a_cause_that_stays_is_not() -> None:
    """A script may ask for it whatever happened."""
    named = replace(DETERMINISTIC, evidence=(Evidence(3, "RuntimeError: shapes", CauseRole.ROOT, "shape"),))
    assert decided(named, attempt=replace(TRIED, exit_code=75)).kind is DecisionKind.STOP
    followed = replace(DETERMINISTIC, evidence=(Evidence(3, "rank 3 is gone", CauseRole.CASCADE, "peer"),))
    assert decided(followed, attempt=replace(TRIED, exit_code=75)).kind is DecisionKind.RETRY


@pytest.mark.parametrize("code", [78, 93])
def test_a_program_that_asks_not_to_be_run_again_is_not(code: int) -> None:
    decision = decided(TRANSIENT, attempt=replace(TRIED, exit_code=code))
    assert decision.kind is DecisionKind.STOP
    assert decision.reason == f"the program asks not to be run again (exit code {code})"


@pytest.mark.parametrize(
    "attempt",
    [replace(TRIED, exit_code=75, state=AttemptState.TIMEOUT), replace(TRIED, exit_code=75, signal=9)],
    ids=["walltime", "signal"],
)
def test_a_code_that_the_program_did_not_choose_asks_for_nothing(attempt: Attempt) -> None:
    assert decided(DETERMINISTIC, attempt=attempt).kind is DecisionKind.STOP


def test_suspects_are_avoided_only_while_half_of_the_nodes_are_left() -> None:
    """A job's exclusions are never lifted: it must not be driven onto the one node that nobody has suspected yet."""
    names = [f"n{i}" for i in range(1, 11)]
    usable = {"": frozenset(names)}
    (failed,) = TRIED.nodes
    others = [name for name in names if name != failed]
    for suspects in range(10):
        troubles = {name: (trouble("eve"), trouble("eve"), trouble("bob")) for name in others[:suspects]}
        exclude = decided(fleet=replace(FLEET, usable=usable, troubles=troubles)).exclude
        assert set(exclude) == {failed, *(others[:suspects] if suspects <= 4 else ())}


def test_a_node_that_was_asked_for_by_name_is_kept_unless_the_failure_is_its_own() -> None:
    job = replace(JOB, required=("n2",))
    kept = decided(job=job)
    assert kept.exclude == ()
    assert "retry, on n2 as asked for by -w" in kept.reason
    lost = replace(TRIED, state=AttemptState.NODE_FAIL, failed_nodes=("n2",))
    for decision in (decided(replace(TRANSIENT, bound=Bound.NODE), job), decided(job=job, attempt=lost)):
        assert decision.exclude == ("n2",)
        assert "retry away from n2, though n2 was asked for by -w" in decision.reason
    drained = decided(job=job, fleet=replace(FLEET, usable={"": frozenset({"n1", "n3"})}))
    assert drained.exclude == ("n2",)
    (before,) = earlier(1, node="n2")
    assert decided(job=job, past=[before]).exclude == ("n2",)
    assert decided(job=job, past=[replace(before, state=AttemptState.PREEMPTED)]).exclude == ()  # that was no failure
    two = decided(job=replace(JOB, required=("n1",)), attempt=replace(TRIED, nodes=("n1", "n2")))
    assert two.exclude == ("n2",)
    assert decided(job=job, fleet=Fleet(live_jobs=10)).exclude == ()  # no node is known: it may be had
    embedded = replace(job, required_by="the job's owner")
    assert "retry, on n2 as asked for by the job's owner" in decided(job=embedded).reason
    lost_there = decided(job=embedded, attempt=lost).reason
    assert "retry away from n2, though n2 was asked for by the job's owner" in lost_there


def test_of_two_nodes_asked_for_by_name_the_one_that_did_not_fail_is_kept() -> None:
    """Others' trouble on it makes it a suspect, and no more."""
    job = replace(JOB, required=("n2", "n1"), node_count=2)
    lost = replace(TRIED, state=AttemptState.NODE_FAIL, nodes=("n1", "n2"), failed_nodes=("n2",))
    verdict = replace(TRANSIENT, bound=Bound.NODE)
    fleet = replace(FLEET, troubles={"n1": [trouble("bob", True), trouble("eve", True)]})
    first = decided(verdict, job, lost, fleet=fleet)
    assert first.exclude == ("n2",)
    assert "on n1 as asked for by -w" in first.reason
    before = [replace(each, nodes=("n1", "n2"), failed_nodes=("n2",)) for each in earlier(1)]
    again = replace(lost, nodes=("n1", "n3"), failed_nodes=("n3",))
    assert decided(verdict, replace(job, required=("n1",)), again, before, fleet).exclude == ("n3",)


def test_a_suspect_of_a_partition_in_which_the_job_never_starts_is_not_spoken_of() -> None:
    suspects = dict.fromkeys(("n3", "n4", "n9"), (trouble("eve"), trouble("eve"), trouble("bob")))
    nodes = [Node(name, NodeState.UP, partitions=("two",)) for name in ("n1", "n2", "n5", "n6", "n7")]
    nodes += [Node("n3", NodeState.UP, partitions=("one",)), Node("n4", NodeState.DOWN, partitions=("two",))]
    fleet = Fleet(usable_nodes(nodes), nodes_by_partition(nodes), live_jobs=10, troubles=suspects)
    of_two = decided(job=replace(JOB, partition="two", node_count=1), fleet=fleet)
    assert of_two.exclude == ("n2", "n4")  # what is down may come back
    of_any = decided(job=replace(JOB, partition="not-seen,two,one", node_count=1), fleet=fleet)
    assert of_any.exclude == ("n2", "n3", "n4")
    assert "n9" in decided(job=JOB, fleet=replace(fleet, members={})).exclude  # nobody has seen the nodes yet


def test_a_suspect_that_was_asked_for_by_name_is_kept() -> None:
    fleet = replace(FLEET, troubles={"n1": [trouble("bob", True), trouble("eve", True)]})
    assert set(decided(fleet=fleet).exclude) == {"n1", "n2"}
    assert decided(job=replace(JOB, required=("n1",)), fleet=fleet).exclude == ("n2",)


TOLD = Verdict(Label.TRANSIENT, 0.98, "time_limit", "its walltime was near", fingerprint=WALLTIME_FINGERPRINT)


def told(*steps: int | None) -> list[Any]:
    one = earlier(1, fingerprint=WALLTIME_FINGERPRINT, infrastructure=False)[0]
    return [replace(one, state=AttemptState.FAILED, steps=each) for each in steps]


@pytest.mark.parametrize(
    ("steps", "goes_on"),
    [
        ((10,), True),
        (range(0, 400, 10), True),
        ((None, None), False),
        ((10, 20, 20, 20), False),
        ((10, 20, 20, 30), True),
    ],
)
@pytest.mark.parametrize("exit_code", [1, 75, 143])
def test_a_program_that_is_told_of_its_walltime_goes_on_while_it_makes_progress(
    steps: Sequence[int | None], goes_on: bool, exit_code: int
) -> None:
    """However often, without a wait, on any node: nobody's fault and no try."""
    *before, now = steps
    verdict, attempt = replace(TOLD, steps=now), replace(TRIED, exit_code=exit_code, end_s=24 * HOUR_S)
    decision = decided(verdict, attempt=attempt, past=told(*before))
    assert decision.kind is (DecisionKind.RETRY if goes_on else DecisionKind.STOP)
    assert (decision.exclude, decision.delay_s) == ((), 0.0)
    if not goes_on:
        assert "neither log shows a newer step" in decision.reason


def test_a_program_that_begins_anew_each_time_makes_no_progress() -> None:
    """It gets a little further now and then."""

    def runs(*first_and_last: tuple[int, int]) -> list[Any]:
        return [replace(told(last)[0], first_step=first) for first, last in first_and_last]

    def decision(now: tuple[int, int], *before: tuple[int, int]) -> Decision:
        return decided(replace(TOLD, first_step=now[0], steps=now[1]), past=runs(*before))

    assert decision((1, 20), (1, 19)).retries  # the first was the first that anybody saw
    assert not decision((1, 21), (1, 19), (1, 20)).retries
    assert decision((20, 40), (1, 19), (1, 20)).retries
    assert decision((41, 60), (1, 20), (21, 40)).retries
    assert not decision((21, 42), (1, 20), (21, 40), (21, 41)).retries  # nothing was saved since step 20


def test_what_went_on_at_its_walltime_has_all_its_retries_left() -> None:
    past = told(*range(10))
    for verdict in (TRANSIENT, UNSURE, replace(TRANSIENT, infrastructure=False)):
        assert replace(decided(verdict, past=past), reason="") == replace(decided(verdict), reason="")


def test_a_delay_that_the_resource_manager_does_not_keep_is_not_promised() -> None:
    """What it has put back by itself it starts when it likes."""
    back = decided(job=replace(JOB, state=JobState.PENDING, restarts=1))
    assert back.retries
    assert (back.delay_s, ", in " in back.reason) == (0.0, False)
    assert ", in " in decided().reason


HUB_DOWN = replace(TRANSIENT, category="hub", bound=Bound.SERVICE)


def charged(*failures: tuple[str, str, float], verdict: Verdict = HUB_DOWN, fleet: Fleet = FLEET) -> Fleet:
    """The fleet after failures of (user, node, seconds ago)."""
    for user, node, age_s in failures:
        attempt = replace(TRIED, user=user, nodes=(node,))
        fleet = blamed(fleet, replace(JOB, user=user), attempt, verdict, 1e9, NOW - age_s)
    return fleet


def test_what_jobs_share_is_no_nodes_fault() -> None:
    """The first failure may still be its node's; once others fail alike elsewhere, no node is avoided or charged."""
    assert decided(HUB_DOWN).exclude == ("n2",)
    assert is_shared(charged(("bob", "n1", NEARBY_S)), TRIED, HUB_DOWN, NOW)
    fleet = charged(("bob", "n1", 60), ("bob", "n1", 50))
    decision = decided(HUB_DOWN, fleet=fleet)
    assert (decision.kind, decision.exclude) == (DecisionKind.RETRY, ())
    assert "other users' jobs failed alike on other nodes" in decision.reason
    after = charged(("ada", "n2", 30), ("eve", "n1", 20), ("eve", "n2", 10), ("bob", "n2", 5), fleet=fleet)
    assert after.suspects(NOW, 3600.0) == frozenset()
    apart = charged(("bob", "n2", 60), ("bob", "n2", 50), ("eve", "n2", 10))  # all on one node: it may be that
    assert apart.suspects(NOW, 3600.0) == {"n2"}


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([("ada", "n1", 60)], HUB_DOWN),  # one user's own failures elsewhere show nothing
        ([("bob", "n2", 60)], HUB_DOWN),  # nor does the same node
        ([("bob", "n1", NEARBY_S + 1)], HUB_DOWN),
        ([("bob", "n1", 60)], replace(HUB_DOWN, category="net")),
        ([("bob", "n1", 60)], replace(HUB_DOWN, bound=Bound.NODE)),
    ],
)
def test_what_does_not_show_that_jobs_share_a_cause(others: Sequence[tuple[str, str, float]], verdict: Verdict) -> None:
    fleet = charged(*others)
    assert not is_shared(fleet, TRIED, verdict, NOW)
    assert decided(verdict, fleet=fleet).exclude == ("n2",)


def test_a_full_file_system_is_no_nodes_fault() -> None:
    full = replace(TRANSIENT, category="disk_quota", full_store="/scratch")
    assert decided(full).exclude == ()
    fleet = charged(("bob", "n2", 30), ("eve", "n2", 20), ("ada", "n2", 10), verdict=full)
    assert fleet.suspects(NOW, 3600.0) == frozenset()


def test_what_the_manager_saw_of_a_node_stands_whatever_others_share() -> None:
    fleet = charged(("bob", "n1", 60))
    down = replace(TRIED, failed_nodes=("n2",))
    for at_s in (NOW - 20, NOW - 10):
        fleet = blamed(fleet, JOB, down, HUB_DOWN, 1e9, at_s)
    assert fleet.absolved(Likeness("hub"), 0.0).suspects(NOW, 3600.0) == {"n2"}
    assert decided(HUB_DOWN, attempt=down, fleet=fleet).exclude == ("n2",)


def test_a_job_whose_work_was_done_is_not_run_again() -> None:
    done = replace(TRANSIENT, work_done=True, ending="the work was done (line 7: 'Training complete')")
    decision = decided(done)
    assert decision.kind is DecisionKind.STOP
    assert "connection lost: the work was done (line 7: 'Training complete'), and do by hand" in decision.reason
    assert decided(done, attempt=replace(TRIED, state=AttemptState.NODE_FAIL)).retries  # what is left ran on that node
    assert decided(done, attempt=replace(TRIED, exit_code=75)).retries  # its program asks for it


STALE = "OSError: [Errno 116] Stale file handle"


def judged(line: str) -> Verdict:
    return judge(f"{line}\n".encode(), TRIED)


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        (f"{STALE}: '/proj/x'", f"{STALE}: '/proj/y'", True),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/s3fs/a.tar'",
         f"{STALE}: '/proj/x'", False),
        (f"{STALE}: '/mnt/a/x'", f"{STALE}: '/mnt/b/x'", False),
        (STALE, f"{STALE}: '/proj/x'", True),
        ("requests.exceptions.HTTPError: 504 Server Error: Gateway Time-out for url: https://huggingface.co/api/x",
         "requests.exceptions.HTTPError: 504 Server Error: Gateway Time-out for url: https://huggingface.co/y", True),
        ("requests.exceptions.HTTPError: 504 Server Error: Gateway Time-out for url: https://huggingface.co/api/x",
         "requests.exceptions.HTTPError: 504 Server Error: Gateway Time-out for url: https://pypi.org/y", False),
        ("ConnectionRefusedError: [Errno 111] Connection refused: ('db.site.org', 5432)",
         "[c10d] The client socket has failed to connect to [node1]:29500 (errno: 111 - Connection refused).", False),
    ],
)  # fmt: skip
def test_only_failures_of_one_thing_are_alike(one: str, other: str, are_alike: bool) -> None:
    mine = replace(judged(one), bound=Bound.SERVICE, infrastructure=True)
    fleet = charged(("bob", "n1", 60), verdict=replace(judged(other), bound=Bound.SERVICE, infrastructure=True))
    assert is_shared(fleet, TRIED, mine, NOW) is are_alike
    context = context_of(TRIED, None, fleet, None, NOW)
    told = judge(f"{one}\n".encode(), TRIED, context)
    said = any(each.rule == "others-alike" for each in told.evidence)
    assert said is (are_alike and judged(one).bound in (Bound.SERVICE, Bound.CALLER))


def test_no_node_is_remembered_for_what_is_too_old_though_something_newer_is_known_of_it() -> None:
    fleet = Fleet()
    for at_s, node in ((100.0, "n1"), (900.0, "n1"), (200.0, "n2"), (1500.0, "n3")):
        fleet = fleet.with_trouble((node,), NodeTrouble(at_s, "1", "ada", "net", False), 1000.0)
    assert {name: [each.time_s for each in kept] for name, kept in fleet.troubles.items()} == {
        "n1": [900.0], "n3": [1500.0]
    }  # fmt: skip


def test_a_partition_without_a_node_in_service_has_none_of_anothers() -> None:
    nodes = Node("n1", NodeState.UP, partitions=("a",)), Node("n2", NodeState.DOWN, partitions=("b",))
    fleet = Fleet(usable=usable_nodes(nodes))
    assert [fleet.nodes_for(name) for name in ("a", "b", "unknown")] == [{"n1"}, frozenset(), {"n1"}]
