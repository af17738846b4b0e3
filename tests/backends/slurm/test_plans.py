"""What Slurm is told for an action, from what it says of the job now."""

from typing import Any

import pytest

from perdure.backends.slurm.het import read_one_job
from perdure.backends.slurm.plans import (
    Accounted,
    Dependant,
    Todo,
    asks_for_admin,
    for_job,
    for_node,
    lets_go,
    refused,
    refused_twice,
    takes_back,
    without_admin,
)
from perdure.backends.slurm.records import JobRecord
from perdure.errors import ClusterBusy
from perdure.model.actions import (
    Cancel,
    Comment,
    Down,
    Drain,
    Exclude,
    Extend,
    Hold,
    JobAction,
    NodeAction,
    Outcome,
    OutcomeStatus,
    Preempt,
    Release,
    Requeue,
    Undrain,
)
from perdure.model.identity import AttemptId
from perdure.model.nodes import Node, NodeState
from tests.backends.slurm.text import MARK, job
from tests.copying import replace

NOW = 1000.0
ATTEMPT = AttemptId("c", "7", 100)
DONE, REFUSED, SUPERSEDED = OutcomeStatus.DONE, OutcomeStatus.REFUSED, OutcomeStatus.SUPERSEDED


def record(**fields: Any) -> JobRecord:
    found = read_one_job(job(7, **fields).encode(), MARK, "7")
    assert found is not None
    return found


FAILED = record(state="FAILED", end="110")
PUT_BACK = replace(
    record(state="PENDING", nodes="", start="Unknown", submit=990, restarts=1, priority=0),
    reason="job_requeued_in_held_state",
    eligible_s=996,
)
WAITS = replace(PUT_BACK, priority=1, reason="")


def step(action: JobAction, found: JobRecord | None, last_start: int = 100) -> Outcome | Todo | Accounted:
    return for_job(action, found, last_start, NOW)


def status(action: JobAction, found: JobRecord | None, last_start: int = 100) -> OutcomeStatus:
    outcome = step(action, found, last_start)
    assert not isinstance(outcome, Todo), outcome
    return outcome.status


def test_a_requeue_puts_back_excludes_and_lets_go_one_look_at_a_time() -> None:
    action = Requeue(ATTEMPT, exclude=("n1",))
    assert step(action, FAILED) == Todo(("requeuehold 7",))
    assert step(action, PUT_BACK) == Todo(("update jobid=7 ExcNodeList=n1", "release 7"))
    assert status(action, replace(WAITS, excluded=("n1",))) is DONE


def test_a_users_name_comes_and_goes_and_it_is_one_users_job() -> None:
    """Seen with a user of no name where the service runs: every retry was superseded, by words of another's job."""
    named, number = record(state="FAILED", end="110", user="root", uid=0), replace(FAILED, user="nobody", uid=4242)
    of_number, of_root = Requeue(ATTEMPT, user="4242"), Requeue(ATTEMPT, user="root")
    put_back = Todo(("requeuehold 7",))
    assert step(of_number, number) == step(of_root, named) == put_back
    assert step(of_number, replace(number, user="eve")) == put_back  # the name is known by now
    assert step(of_root, replace(named, user="nobody")) == put_back  # and here it is not known any more
    assert step(Requeue(ATTEMPT, user="no-such-user"), number) == put_back  # nor anything of that name: it may be it
    for another in (replace(FAILED, user="eve", uid=4243), replace(FAILED, user="nobody", uid=4243)):
        assert [status(meant, another) for meant in (of_number, of_root)] == [SUPERSEDED] * 2


def test_a_node_is_taken_back_where_no_other_has_what_the_job_asks_for() -> None:
    """Seen on 22.05: Slurm sets the priority to 0, and lets the job start as soon as the list allows it."""
    stuck = replace(PUT_BACK, reason="BadConstraints", excluded=("n1", "n9"))
    todo = step(Requeue(ATTEMPT, exclude=("n1",)), stuck)
    assert todo.commands == ("update jobid=7 ExcNodeList=n9", "release 7")
    assert isinstance(todo, Todo)
    assert takes_back(todo)
    said = "perdure: a peer left: retry away from n1. perdure why 7 #a"
    told, _ = step(Requeue(ATTEMPT, exclude=("n1",), comment=said), stuck).commands
    assert 'AdminComment="perdure: a peer left: retry on any node but n9. perdure why 7 #a"' in told
    elsewhere = step(Requeue(ATTEMPT, exclude=("n1",)), PUT_BACK)
    assert isinstance(elsewhere, Todo)
    assert not takes_back(elsewhere)
    left = step(Requeue(ATTEMPT, exclude=("n1",)), replace(stuck, excluded=("n9",)))
    assert left == refused("it is in the queue, where no node has what it asks for: BadConstraints")


def test_what_earlier_retries_were_kept_off_is_lifted_and_nothing_else() -> None:
    kept_off = replace(PUT_BACK, excluded=("n1", "n2", "n9"))
    again = Requeue(ATTEMPT, lift=("n1", "n2"))
    assert step(again, kept_off) == Todo(("update jobid=7 ExcNodeList=n9", "release 7"))
    assert status(again, replace(WAITS, excluded=("n9",))) is DONE
    exclusion = Exclude(ATTEMPT, (), lift=("n1", "n2"))
    assert step(exclusion, replace(WAITS, excluded=("n1", "n2"))) == Todo(("update jobid=7 ExcNodeList=",))
    assert status(exclusion, WAITS) is DONE


def test_what_slurm_cannot_put_back_is_refused_in_plain_words() -> None:
    """Its own words are: Only batch jobs are accepted or processed."""
    for found, words in ((record(batch=0), "not a batch job"), (record(requeue=0), "(Requeue=0)")):
        outcome = step(Requeue(ATTEMPT), replace(found, state="FAILED", end_s=110))
        assert outcome.status is REFUSED
        assert words in outcome.detail


def test_exclusions_are_added_and_taken_out_of_what_is_required() -> None:
    found = replace(PUT_BACK, excluded=("n9",), required=("n1", "n2"))
    assert step(Requeue(ATTEMPT, exclude=("n1",)), found) == Todo(
        ("update jobid=7 ExcNodeList=n9,n1 ReqNodeList=n2", "release 7"), said=("n1, asked for by -w, is replaced",)
    )
    only = replace(WAITS, required=("n1",))
    assert step(Exclude(ATTEMPT, ("n1",)), only) == Todo(("update jobid=7 ExcNodeList=n1 ReqNodeList=",))


def test_a_job_is_put_back_on_fewer_nodes_in_the_command_that_comes_before_its_release() -> None:
    """Killed between any two steps, the next look finds the job held as it was, or as it is to be."""
    action = Requeue(ATTEMPT, exclude=("n1",), node_count=2)
    wide = {"node_count": 3, "tasks": 12, "tasks_per_node": 4, "cpus_per_task": 2}
    changed = "update jobid=7 ExcNodeList=n1 NumNodes=2 NumTasks=8 NumCPUs=16"
    assert step(action, replace(FAILED, **wide)) == Todo(("requeuehold 7",))
    assert step(action, replace(PUT_BACK, **wide)) == Todo((changed, "release 7"))
    made = wide | {"excluded": ("n1",), "tasks": 8}  # Slurm goes on to print the nodes that it had
    assert step(action, replace(PUT_BACK, **made)) == Todo(("release 7",))
    assert status(action, replace(WAITS, **made)) is DONE
    assert step(Exclude(ATTEMPT, ("n1",), 2), replace(WAITS, **wide)) == Todo((changed,))
    assert status(replace(action, node_count=0), replace(WAITS, **made)) is DONE


def test_a_delay_counts_from_when_the_job_was_put_back_and_never_shortens_slurms_own() -> None:
    assert step(Requeue(ATTEMPT, delay_s=60.0), WAITS) == Todo(("update jobid=7 StartTime=now+50",))
    assert status(Requeue(ATTEMPT, delay_s=5.0), WAITS) is DONE
    assert status(Requeue(ATTEMPT, delay_s=60.0), replace(WAITS, eligible_s=1050)) is DONE


def test_what_slurm_put_back_itself_is_only_kept_off_the_nodes() -> None:
    assert step(Requeue(ATTEMPT, exclude=("n1",)), WAITS) == Todo(("update jobid=7 ExcNodeList=n1",))


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (None, SUPERSEDED),
        (record(start="500"), SUPERSEDED),
        (record(state="FAILED", start="500"), SUPERSEDED),
        (record(state="RUNNING"), REFUSED),
        (record(state="FAILED", requeue=0), REFUSED),
        (replace(FAILED, priority=0), REFUSED),
        (record(state="CANCELLED"), SUPERSEDED),
        (replace(PUT_BACK, reason="JobHeldUser"), REFUSED),
        (replace(PUT_BACK, reason="JobHeldAdmin"), REFUSED),
        (replace(PUT_BACK, state="SPECIAL_EXIT"), REFUSED),
    ],
)
def test_when_a_requeue_is_not_to_be(found: JobRecord | None, outcome: OutcomeStatus) -> None:
    assert status(Requeue(ATTEMPT), found) is outcome


def test_a_waiting_job_whose_last_attempt_is_another_is_left_alone() -> None:
    for action in (Requeue(ATTEMPT), Exclude(ATTEMPT, ("n1",)), Hold(ATTEMPT), Release(ATTEMPT), Cancel(ATTEMPT)):
        assert status(action, WAITS, last_start=500) is SUPERSEDED


def test_a_release_of_what_slurm_holds_is_left_to_a_person_where_accounting_lacks_the_start() -> None:
    """Superseded, it would leave the job held with nobody told."""
    gave_up = replace(PUT_BACK, reason="launch_failed_requeued_held")
    outcome = step(Release(ATTEMPT), gave_up, last_start=50)
    assert (outcome.status, outcome.detail.rpartition(": ")[2]) == (REFUSED, "scontrol release 7")
    assert status(Release(ATTEMPT), gave_up, last_start=500) is SUPERSEDED  # a newer start has a failure of its own
    assert status(Release(ATTEMPT), replace(gave_up, reason="JobHeldUser"), last_start=50) is SUPERSEDED
    assert status(Release(ATTEMPT), WAITS, last_start=50) is SUPERSEDED
    assert status(Release(ATTEMPT, "x"), gave_up, last_start=50) is SUPERSEDED  # of a shared resource's fault


def test_a_heterogeneous_job_is_put_back_as_a_whole() -> None:
    """By its plain id Slurm changes all of its components."""
    assert step(Requeue(ATTEMPT), replace(FAILED, components=2)) == Todo(("requeuehold 7",))
    waits = replace(PUT_BACK, components=2)
    assert step(Requeue(ATTEMPT, exclude=("n1",)), waits) == Todo(("update jobid=7 ExcNodeList=n1", "release 7"))


def test_a_job_put_back_without_its_exclusion_is_put_back() -> None:
    update = Todo(("update jobid=7 ExcNodeList=n1",))
    assert refused_twice(Requeue(ATTEMPT, exclude=("n1",)), update, "Access denied").status is DONE
    assert refused_twice(Requeue(ATTEMPT), Todo(("requeuehold 7",)), "Access denied").status is REFUSED
    assert refused_twice(Exclude(ATTEMPT, ("n1",)), update, "Access denied").status is REFUSED


def test_a_job_that_slurm_does_not_let_go_is_not_called_in_the_queue() -> None:
    outcome = refused_twice(Requeue(ATTEMPT), Todo(("update jobid=7 ExcNodeList=n1", "release 7")), "Cannot modify")
    assert outcome.status is REFUSED
    assert outcome.detail == "it is held, and Slurm does not release it: Cannot modify"


@pytest.mark.parametrize("found", [FAILED, WAITS, PUT_BACK])
def test_a_job_of_a_scrontab_is_never_put_back_nor_changed(found: JobRecord) -> None:
    """Slurm puts it back and holds it, but lets nobody release it: no run of it would ever follow."""
    cron = replace(found, is_cron=True)
    for action in (Requeue(ATTEMPT), Exclude(ATTEMPT, ("n1",)), Hold(ATTEMPT), Release(ATTEMPT)):
        assert step(action, cron).status is REFUSED
    assert step(Comment(ATTEMPT, "perdure: why"), cron) == Accounted("7", "perdure: why")


def test_while_slurm_clears_up_it_is_asked_again_later() -> None:
    with pytest.raises(ClusterBusy):
        step(Requeue(ATTEMPT), record(state="COMPLETING", end="110"))


def test_hold_and_release() -> None:
    assert step(Hold(ATTEMPT), WAITS) == Todo(("hold 7",))
    assert status(Hold(ATTEMPT), PUT_BACK) is DONE
    assert status(Hold(ATTEMPT), FAILED) is SUPERSEDED
    assert step(Release(ATTEMPT), PUT_BACK) == Todo(("release 7",))
    assert status(Release(ATTEMPT), WAITS) is DONE
    assert status(Release(ATTEMPT), FAILED) is SUPERSEDED


def test_what_starts_once_we_let_it_go_was_done_by_us() -> None:
    """Between our last step and the look after it, the job may start, end, and clear up."""
    requeue = Requeue(ATTEMPT, exclude=("n1",))
    let_go = Todo(("update jobid=7 ExcNodeList=n1", "release 7"))
    assert step(requeue, PUT_BACK) == let_go
    assert lets_go(let_go)
    assert not lets_go(Todo(("requeuehold 7",)))
    since = [record(start="995", **now) for now in ({}, {"state": "COMPLETING", "end": "997"}, {"state": "FAILED"})]
    for found in since:
        for action in (requeue, Release(ATTEMPT), Exclude(ATTEMPT, ("n1",))):
            outcome = for_job(action, found, None, NOW, let_go=True)
            assert not isinstance(outcome, Todo)
            assert (outcome.status, outcome.detail) == (DONE, "started again")
    assert for_job(requeue, WAITS, 100, NOW, let_go=True) == step(requeue, WAITS)


@pytest.mark.parametrize("action", [Requeue(ATTEMPT), Release(ATTEMPT), Exclude(ATTEMPT, ("n1",))])
def test_what_started_between_the_look_at_the_job_and_at_accounting_was_let_go_by_us(action: JobAction) -> None:
    assert for_job(action, WAITS, 995, NOW, let_go=True).status is DONE
    assert for_job(action, WAITS, 995, NOW).status is SUPERSEDED
    assert for_job(action, WAITS, 95, NOW, let_go=True).status is SUPERSEDED


def test_cancel() -> None:
    assert step(Cancel(ATTEMPT), record()) == Todo(("scancel 7",))
    assert step(Cancel(ATTEMPT), WAITS) == Todo(("scancel 7",))
    assert status(Cancel(ATTEMPT), record(state="COMPLETING", end="110")) is DONE
    assert status(Cancel(ATTEMPT), record(state="CANCELLED")) is DONE
    assert status(Cancel(ATTEMPT), FAILED) is SUPERSEDED


UP = Node("n1", NodeState.UP)
OURS = Node("n1", NodeState.DRAINED, "bad [perdure e1]")


def test_a_drain_bears_its_episode_and_no_signs_that_end_the_line() -> None:
    todo = for_node(Drain("n1", 'it\'s "bad"\n[x]\x1b', "e1"), UP)
    assert todo == Todo(('update nodename=n1 state=drain reason="it’s bad x [perdure e1]"',))
    outcome = for_node(Drain("n1", "bad", "e1"), OURS)
    assert not isinstance(outcome, Todo)
    assert outcome.status is DONE


@pytest.mark.parametrize(
    ("action", "node", "outcome"),
    [
        (Undrain("n1", "e1"), Node("n1", NodeState.DRAINED, "by hand"), REFUSED),
        (Undrain("n1", "e1"), UP, DONE),
        (Undrain("n1", "e1"), None, REFUSED),
        (Drain("n1", "bad", "e1"), None, REFUSED),
        (Down("n1", "bad", "e1"), None, REFUSED),
        (Down("n1", "bad", "e1"), Node("n1", NodeState.DOWN, "Not responding"), DONE),
        (Undrain("n1", "e1"), Node("n1", NodeState.DOWN, "Not responding"), DONE),
    ],
)
def test_nobody_elses_drain_is_undone(action: NodeAction, node: Node | None, outcome: OutcomeStatus) -> None:
    found = for_node(action, node)
    assert not isinstance(found, Todo)
    assert found.status is outcome


def test_our_own_drain_is_undone() -> None:
    assert for_node(Undrain("n1", "e1"), OURS) == Todo(("update nodename=n1 state=undrain",))
    assert for_node(Undrain("n1", "by hand, later"), OURS) == Todo(("update nodename=n1 state=undrain",))


def test_a_node_is_given_up_and_taken_back() -> None:
    assert for_node(Down("n1", "silent", "e1"), UP) == Todo(
        ('update nodename=n1 state=down reason="silent [perdure e1]"',)
    )
    down = Node("n1", NodeState.DOWN, "silent [perdure e1]")
    assert for_node(Undrain("n1", "e1"), down) == Todo(("update nodename=n1 state=resume",))


COMPLETES = replace(record(state="COMPLETING", end="995"), reason="NonZeroExitCode")
SHAPE = "perdure: a wrong shape: it would fail again. perdure why 7 #0a1b2c"


@pytest.mark.parametrize("nodes", [("n1",), ()])
def test_a_job_that_failed_is_put_back_before_its_epilogs_end(nodes: tuple[str, ...]) -> None:
    """24.11 gives its nodes away before EpilogSlurmctld ends."""
    completes = replace(COMPLETES, nodes=nodes)
    assert step(Requeue(ATTEMPT), completes) == Todo(("requeuehold 7",))
    put_back = replace(completes, reason="job_requeued_in_held_state", start_s=995, end_s=4600, restarts=1, priority=0)
    with pytest.raises(ClusterBusy):
        step(Requeue(ATTEMPT), put_back)
    with pytest.raises(ClusterBusy):  # a person's requeue leaves the reason as it is
        step(Requeue(ATTEMPT), replace(put_back, reason="NonZeroExitCode", priority=1))
    with pytest.raises(ClusterBusy):  # cancelled, say
        step(Requeue(ATTEMPT), replace(completes, reason=""))
    for action in (Hold(ATTEMPT), Release(ATTEMPT), Exclude(ATTEMPT, ("n1",))):
        with pytest.raises(ClusterBusy):
            step(action, completes)


def test_dependants_are_mended_before_the_job_is_let_go() -> None:
    waits = replace(WAITS, job_id="9", raw_id=9, dependency="afterok:7(failed),afterany:8(unfulfilled)")
    ran = replace(record(state="COMPLETED", start=996), job_id="10")
    dependants = (Dependant(waits.dependency, waits), Dependant("afterany:7(unfulfilled)", ran))
    found = for_job(Requeue(ATTEMPT), PUT_BACK, 100, NOW, dependants=dependants)
    assert found == Todo(
        ("release 7",),
        ("update jobid=9 dependency=afterok:7,afterany:8",),
        ("job 10 ran at this failure (afterany)",),
    )


def test_a_dependant_that_was_cancelled_is_not_repaired() -> None:
    gone = replace(record(state="CANCELLED", start=0), job_id="9", raw_id=9, dependency="afterok:7(failed)")
    found = for_job(Requeue(ATTEMPT), PUT_BACK, 100, NOW, dependants=(Dependant(gone.dependency, gone),))
    assert (found.commands, found.repairs) == (("release 7",), ())


def test_a_retry_waits_for_the_singleton_that_overtook_it() -> None:
    runs = replace(record(state="RUNNING", start=996), job_id="10")
    found = for_job(Requeue(ATTEMPT), PUT_BACK, 100, NOW, dependants=(Dependant("singleton(unfulfilled)", runs),))
    assert found.commands == ("update jobid=7 dependency=singleton", "release 7")


def test_a_retry_waits_for_the_retry_of_a_singleton() -> None:
    """Slurm has forgotten of both that they were to run alone."""
    again = replace(WAITS, job_id="10", raw_id=10, restarts=1)
    found = for_job(Requeue(ATTEMPT), PUT_BACK, 100, NOW, dependants=(Dependant("singleton(unfulfilled)", again),))
    assert found.commands == ("update jobid=7 dependency=singleton", "release 7")


def test_a_retry_does_not_wait_for_a_singleton_that_waits_for_it() -> None:
    waits = replace(WAITS, job_id="10", raw_id=10, restarts=0, dependency="singleton(unfulfilled)")
    found = for_job(Requeue(ATTEMPT), PUT_BACK, 100, NOW, dependants=(Dependant(waits.dependency, waits),))
    assert found.commands == ("release 7",)


def test_what_its_owner_lets_a_retry_wait_for_stays() -> None:
    runs = replace(record(state="RUNNING", start=996), job_id="10")
    waits = replace(PUT_BACK, dependency="afterok:12(unfulfilled)")
    found = for_job(Requeue(ATTEMPT), waits, 100, NOW, dependants=(Dependant("singleton(unfulfilled)", runs),))
    assert found.commands == ("release 7",)


def test_no_walltime_is_shorter_than_what_was_asked_for() -> None:
    """Slurm takes whole minutes."""
    runs = replace(record(), walltime_s=3600.0)
    assert step(Extend(ATTEMPT, walltime_s=3601.0), runs) == Todo(("update jobid=7 TimeLimit=61",))
    assert status(Extend(ATTEMPT, walltime_s=3600.0), runs) is DONE
    assert status(Extend(ATTEMPT, walltime_s=7200.0), FAILED) is SUPERSEDED


def test_a_comment_is_written_with_the_requeue_and_takes_nobody_s_words_away() -> None:
    new, old = (f'"perdure: {word}: retry. perdure why 7 #0a1b2c"' for word in ("new", "old"))
    action = Requeue(ATTEMPT, comment=new.strip('"'))

    def commands(admin: str, own: str) -> Any:
        return step(action, replace(PUT_BACK, admin_comment=admin, comment=own)).commands

    both = f"update jobid=7 AdminComment={new} Comment={new}"
    assert commands("", "") == commands(old, old) == commands(old.strip('"'), old) == (both, "release 7")
    assert commands("", "perdure:retry=never") == (f"update jobid=7 AdminComment={new}", "release 7")
    for own in ("perdure: retry=never", "perdure: please do not retry this one", '"perdure: see #12"'):
        assert commands(own, own) == ("release 7",)
    assert commands("mine", "") == (f"update jobid=7 Comment={new}", "release 7")
    assert commands('{"site": 1}', "x") == commands(new, new) == ("release 7",)


def test_a_comment_is_written_with_the_exclusion_or_the_release() -> None:
    line = '"perdure: lost: kept off n1. perdure why 7 #0a1b2c"'
    both = f"AdminComment={line} Comment={line}"
    kept_off, let_go = Exclude(ATTEMPT, ("n1",), comment=line.strip('"')), Release(ATTEMPT, comment=line.strip('"'))
    assert step(kept_off, WAITS) == Todo((f"update jobid=7 ExcNodeList=n1 {both}",))
    assert status(kept_off, record()) is SUPERSEDED  # it runs: the line would say what was not done
    assert step(let_go, PUT_BACK) == Todo((f"update jobid=7 {both}", "release 7"))
    away = replace(WAITS, excluded=("n1",))
    assert step(kept_off, away) == Todo((f"update jobid=7 {both}",))
    assert for_job(kept_off, away, 100, NOW, let_go=True).status is DONE  # however Slurm shows what it took


def test_the_comment_of_a_job_that_is_over_goes_to_accounting() -> None:
    assert step(Comment(ATTEMPT, SHAPE), FAILED) == Accounted("7", SHAPE)
    assert step(Comment(ATTEMPT, SHAPE), COMPLETES) == Accounted("7", SHAPE)
    assert status(Comment(ATTEMPT, SHAPE), replace(FAILED, admin_comment="mine")) is DONE
    waits = replace(WAITS, comment="x")
    assert step(Comment(ATTEMPT, SHAPE), waits) == Todo((f'update jobid=7 AdminComment="{SHAPE}"',))


def test_the_comment_on_a_failure_after_which_slurm_has_started_the_job_again_is_written_all_the_same() -> None:
    """It says when that was. A line about a newer failure stays, and so does what is said of a job that ended again."""
    old, new = (f"perdure: failed 2026-11-23 18:31:0{second}: lost: retry. perdure why 7 #0a1b2c" for second in "45")
    started = record(start="500", restarts=1)
    assert step(Comment(ATTEMPT, new), started) == Todo((f'update jobid=7 AdminComment="{new}" Comment="{new}"',))
    told = replace(started, admin_comment=f'"{old}"')
    assert step(Comment(ATTEMPT, new), told) == Todo((f'update jobid=7 AdminComment="{new}" Comment="{new}"',))
    assert status(Comment(ATTEMPT, old), replace(told, admin_comment=f'"{new}"')) is SUPERSEDED
    assert status(Comment(ATTEMPT, new), record(state="FAILED", start="500", end="600", restarts=1)) is SUPERSEDED
    assert status(Comment(ATTEMPT, new), record(start="50")) is SUPERSEDED  # another job had this id


def test_an_apostrophe_is_kept_as_slurm_keeps_it() -> None:
    """A plain one ends an argument of scontrol, or begins one that does not end."""
    said = "perdure: the job's \"user\" can't. perdure why 7 #0a1b2c"
    (command,) = step(Comment(ATTEMPT, said), replace(WAITS, comment="x")).commands
    assert command == 'update jobid=7 AdminComment="perdure: the job’s user can’t. perdure why 7 #0a1b2c"'


def test_what_only_administrators_may_write_is_left_out() -> None:
    line = '"perdure: new: retry. perdure why 7 #0a1b2c"'
    both = f"update jobid=7 ExcNodeList=n1 AdminComment={line} Comment={line}"
    assert asks_for_admin(both)
    assert without_admin((both, "release 7")) == (f"update jobid=7 ExcNodeList=n1 Comment={line}", "release 7")
    assert without_admin((f"update jobid=7_2 AdminComment={line}", "release 7_2")) == ("release 7_2",)
    assert not asks_for_admin("release 7")


def test_a_running_job_is_put_back_and_no_other() -> None:
    assert step(Preempt(ATTEMPT), record()) == Todo(("requeue 7",))
    assert status(Preempt(ATTEMPT), record(state="COMPLETING", end="2000")) is DONE  # it clears up, and waits again
    assert status(Preempt(ATTEMPT), WAITS) is DONE
    assert status(Preempt(ATTEMPT), FAILED) is SUPERSEDED
    assert status(Preempt(ATTEMPT), record(start="500")) is SUPERSEDED
    for lacks in (record(requeue=0), replace(record(), is_batch=False), replace(record(), priority=0)):
        assert status(Preempt(ATTEMPT), lacks) is REFUSED
