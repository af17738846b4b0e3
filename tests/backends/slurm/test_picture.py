"""One picture from the controller's and accounting's words."""

from collections.abc import Mapping
from typing import Any

import pytest

from perdure.backends.slurm import picture
from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.node_records import read_nodes
from perdure.backends.slurm.records import read_jobs
from perdure.backends.slurm.sbatch import warning_of
from perdure.model.exits import NEVER_AGAIN
from perdure.model.jobs import AttemptState, JobState
from perdure.model.signals import persons_signal
from tests.backends.slurm.text import MARK, job, node
from tests.copying import replace

NOW = 1000.0
A = AttemptState
ROW = AccountingRow("7", 7, "FAILED", 3, 0, 90, 100, 110, 1000, "ada", ("n1",), 2, "")


def look(*jobs: str, nodes: tuple[str, ...] = (), rows: tuple[AccountingRow, ...] = ()) -> picture.Sources:
    whole = read_jobs("".join(jobs).encode(), MARK).whole
    return picture.Sources(whole, read_nodes("".join(nodes).encode(), MARK), rows)


def states(sources: picture.Sources) -> dict[Any, Any]:
    return {a.id.incarnation: a.state for a in picture.attempts("c", sources, NOW)}


def test_both_sources_tell_of_one_start() -> None:
    seen = look(job(7, state="FAILED", end="110", exit_code="3:0", reason="NonZeroExitCode"), rows=(ROW,))
    (attempt,) = picture.attempts("c", seen, NOW)
    assert (attempt.reason, attempt.stdout, attempt.end_s) == ("NonZeroExitCode", "/home/out", 110.0)


def test_what_was_put_back_before_its_launch_is_no_attempt() -> None:
    """Seen on 22.05 where a node froze as jobs were launched to it: the row names the next node, which is innocent."""
    rewritten = replace(ROW, state="NODE_FAIL", exit_code=0, start_s=100, end_s=100, nodes=("n6",))
    waits, runs = replace(ROW, submit_s=100, start_s=None), replace(ROW, submit_s=100, start_s=120)
    put_back = job(7, state="PENDING", start="Unknown", restarts=1)
    assert states(look(put_back, rows=(rewritten,))) == {}
    assert states(picture.Sources(None, (), (rewritten, waits))) == {}
    assert states(picture.Sources(None, (), (rewritten, runs))) == {120: A.FAILED}
    at_once = replace(rewritten, submit_s=100), runs  # it was submitted, begun and put back within one second
    assert states(picture.Sources(None, (), at_once)) == {120: A.FAILED}
    assert states(look(put_back, rows=(replace(rewritten, end_s=160),))) == {100: A.NODE_FAIL}
    assert states(picture.Sources(None, (), (rewritten,))) == {100: A.NODE_FAIL}  # that was the job's end


@pytest.mark.parametrize(
    ("state", "preempt", "code", "meant"),
    [
        ("FAILED", 105, "143:0", A.PREEMPTED),
        ("FAILED", 110, "0:15", A.PREEMPTED),
        ("COMPLETING", 105, "143:0", A.PREEMPTED),
        ("FAILED", "None", "143:0", A.FAILED),
        ("FAILED", 99, "143:0", A.FAILED),  # an earlier start
        ("FAILED", 105, f"{NEVER_AGAIN}:0", A.FAILED),  # it asks not to be run again
        ("COMPLETED", 105, "0:0", A.COMPLETED),
        ("NODE_FAIL", 105, "0:0", A.NODE_FAIL),
    ],
)
def test_what_ends_itself_in_the_grace_time_of_a_preemption_was_preempted(
    state: str, preempt: int | str, code: str, meant: AttemptState
) -> None:
    """Slurm 22.05 tells of it as failed; accounting says 15 of a code of 143."""
    reason = "NonZeroExitCode" if state == "COMPLETING" else "None"
    seen = job(7, state=state, end="110", exit_code=code, reason=reason, preempt=preempt)
    word = "FAILED" if state == "COMPLETING" else state
    for rows in ((), (replace(ROW, state=word, exit_code=int(code.split(":")[0]), signal=int(code.split(":")[1])),)):
        assert states(look(seen, rows=rows)) == {100: meant}


@pytest.mark.parametrize(
    ("code", "ran_s", "meant", "noted"),
    [
        ("0:10", 40, A.TIMEOUT, True),
        ("0:10", 3, A.TIMEOUT, True),  # Slurm is up to a minute early
        ("138:0", 40, A.TIMEOUT, True),
        ("0:10", 1, A.FAILED, False),  # long before it
        ("0:12", 40, A.FAILED, False),  # another signal
        ("1:0", 40, A.FAILED, True),  # it may have caught it
        ("1:0", 1, A.FAILED, False),
        ("1:0", 663, A.FAILED, False),  # long after it
    ],
)
def test_what_the_signal_ended_that_it_asked_for_has_reached_its_walltime(
    code: str, ran_s: int, meant: AttemptState, noted: bool
) -> None:
    """Slurm 22.05 says FAILED and JobLaunchFailure of a script without a trap."""
    reason = "JobLaunchFailure" if code.startswith("0:") else "NonZeroExitCode"
    text = job(7, state="FAILED", end=str(100 + ran_s), exit_code=code, reason=reason, limit="00:02:22")
    warning = warning_of("#SBATCH --signal=B:USR1@80")
    seen = replace(look(text), warnings={"7": warning})
    (attempt,) = picture.attempts("c", seen, NOW)
    assert attempt.state is meant
    assert attempt.warning == ("--signal=B:USR1@80" if noted else "")
    assert persons_signal(replace(attempt, state=A.FAILED)) == (attempt.signal if code.startswith("0:") else 0)
    unlimited = replace(look(text.replace("00:02:22", "UNLIMITED")), warnings={"7": warning})
    assert states(unlimited) == {100: A.FAILED}


def test_starts_that_were_put_back_come_from_accounting() -> None:
    seen = look(job(7, start="500", restarts=1), rows=(ROW, replace(ROW, state="RUNNING", start_s=500, end_s=None)))
    assert states(seen) == {100: A.FAILED, 500: A.RUNNING}


def test_a_waiting_jobs_start_is_only_a_forecast() -> None:
    seen = look(job(7, state="PENDING", start="1500", nodes="", restarts=1), rows=(ROW,))
    assert states(seen) == {100: A.FAILED}
    (waiting,) = picture.jobs("c", seen, NOW)
    assert (waiting.state, waiting.eligible_s) == (JobState.PENDING, 90.0)


@pytest.mark.parametrize(("state", "said"), [("PENDING", "BeginTime"), ("CANCELLED", "")])
def test_a_job_that_waits_no_more_keeps_no_reason_for_waiting(state: str, said: str) -> None:
    """Slurm leaves it in the record of a job that was cancelled while it waited."""
    (found,) = picture.jobs("c", look(job(7, state=state, reason="BeginTime", nodes="")), NOW)
    assert found.reason == said


GANG = {"state": "PENDING", "nodes": "", "start": "Unknown", "comment": "perdure:nodes=2-3"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"tasks": 2}, (2, (2, 3))),  # NumNodes=1 in this text: it had one when it ran
        ({"tasks": 12, "tasks_per_node": 4}, (3, (2, 3))),
        ({"tasks": 6}, (1, None)),  # -n 6: a total
        ({"tasks": 3, "tail": "TresPerJob=gres:gpu:6"}, (1, None)),  # --gpus 6: a total
        ({"tasks": 3, "comment": ""}, (1, None)),
    ],
)
def test_what_is_asked_for_by_the_node_may_be_cut(
    more: Mapping[str, Any], told: tuple[int, tuple[int, int] | None]
) -> None:
    (found,) = picture.jobs("c", look(job(7, **{**GANG, **more})), NOW)
    assert (found.node_count, found.restart_nodes) == told


def test_the_controllers_running_stands_until_the_next_look() -> None:
    """Accounting was asked later: that the nodes were seen before the end must not hide which of them failed."""
    assert states(look(job(7), rows=(replace(ROW, state="NODE_FAIL"),))) == {100: A.RUNNING}


def test_completing_hides_how_it_ended_and_accounting_tells() -> None:
    completing = job(7, state="COMPLETING", end="110")
    assert states(look(completing)) == {100: A.RUNNING}
    assert states(look(completing, rows=(ROW,))) == {100: A.FAILED}


def test_a_job_that_is_cleared_up_is_said_to_have_ended_and_not_to_run_for_the_reason_of_its_end() -> None:
    completing = job(7, state="COMPLETING", end="110", exit_code="3:0", reason="NonZeroExitCode")
    (found,) = picture.jobs("c", look(completing), NOW)
    assert (found.state, found.reason) == (JobState.RUNNING, "COMPLETING: it has ended, and its nodes clear up")


def test_while_it_completes_the_controller_tells_of_nodes_that_accounting_leaves_out() -> None:
    """Seen on 22.05: of a job on three nodes sacct named the one that had still to clear up."""
    completing = job(7, state="COMPLETING", end="110", nodes="n[1-3]")
    (found,) = picture.attempts("c", look(completing, rows=(ROW,)), NOW)
    assert (found.state, found.nodes) == (A.FAILED, ("n1", "n2", "n3"))


@pytest.mark.parametrize(
    "now", [
        {"state": "COMPLETING", "end": "110"},
        {"state": "COMPLETING", "end": "110", "nodes": ""},  # they were freed before the first look at the job
        {"state": "PENDING", "start": "Unknown", "nodes": "", "restarts": 1},
    ],
)  # fmt: skip
@pytest.mark.parametrize(("told", "code"), [(11, 139), (127, 255)])
def test_the_controller_tells_what_sacct_takes_off_an_exit_code(now: Mapping[str, Any], told: int, code: int) -> None:
    """Seen on 22.05: a shell's 139 is 11:0 to sacct, and a program's 255 is that of a command that is not found."""
    seen = look(job(7, exit_code=f"{code}:0", **now), rows=(replace(ROW, exit_code=told),))
    (found,) = picture.attempts("c", seen, NOW)
    assert (found.state, found.exit_code) == (A.FAILED, code)


def test_the_code_of_an_earlier_start_is_not_that_of_the_latest() -> None:
    rows = (replace(ROW, exit_code=1), replace(ROW, exit_code=127, start_s=200, end_s=210))
    seen = look(job(7, state="FAILED", start=200, end="210", restarts=1, exit_code="129:0"), rows=rows)
    assert [found.exit_code for found in picture.attempts("c", seen, NOW)] == [1, 129]


@pytest.mark.parametrize("ahead", ["4600", "Unknown"])
def test_completing_with_an_end_that_lies_ahead_waits_again(ahead: str) -> None:
    """Slurm prints a start that moves with the clock while nodes of a job that was put back clear up.

    Without a time limit it prints no end, but that of a job that has really ended.
    """
    put_back = job(7, state="COMPLETING", start="999", end=ahead, restarts=1)
    seen = look(put_back, rows=(replace(ROW, state="NODE_FAIL"),))
    assert states(seen) == {100: A.NODE_FAIL}
    assert picture.jobs("c", seen, NOW)[0].state is JobState.PENDING


@pytest.mark.parametrize("waiting", [(), (job(7, state="PENDING", start="Unknown", nodes="", submit=996),)])
@pytest.mark.parametrize(("end_s", "told"), [(997, True), (998, True), (999, False), (1000, False), (1001, False)])
def test_what_began_and_ended_between_the_questions_is_left_to_the_next_look(
    waiting: tuple[str, ...], end_s: int, told: bool
) -> None:
    """Without the job's record nobody knows whether its owner lets it be put back, and where its log is."""
    row = replace(ROW, submit_s=996, start_s=996, end_s=end_s)
    assert states(look(*waiting, rows=(row,))) == ({996: A.FAILED} if told else {})
    assert states(picture.Sources(None, (), (row,))) == {996: A.FAILED}


def test_an_end_that_accounting_cannot_date_yet_is_left_to_a_later_look() -> None:
    """It may be from long before: slurmdbd was down, and has been sent the starts again, and not yet the ends."""
    undated = replace(ROW, end_s=None)
    assert states(look(rows=(undated,))) == {}
    assert states(look(job(7, start="500", restarts=1), rows=(undated,))) == {500: A.RUNNING}
    assert states(look(job(7, state="COMPLETING", end="110"), rows=(undated,))) == {100: A.RUNNING}
    assert states(look(job(7, state="FAILED", end="110", exit_code="3:0"), rows=(undated,))) == {100: A.FAILED}


def test_what_was_put_back_at_once_is_told_at_once() -> None:
    put_back = job(7, state="PENDING", start="Unknown", nodes="", submit=999, restarts=1)
    row = replace(ROW, state="REQUEUED", submit_s=996, start_s=996, end_s=999)
    assert states(look(put_back, rows=(row,))) == {996: A.FAILED}


def test_what_accounting_still_calls_running_is_not_believed_against_the_controller() -> None:
    stale = replace(ROW, state="RUNNING", end_s=None)
    assert states(look(job(7, start="500", restarts=1), rows=(stale,))) == {500: A.RUNNING}
    assert states(look(rows=(stale,))) == {}
    assert states(picture.Sources(None, (), (stale,))) == {100: A.RUNNING}


def test_the_nodes_that_are_down_failed() -> None:
    seen = look(
        job(7, state="NODE_FAIL", nodes="n[1-3]", end="110"), nodes=(node("n1"), node("n2", "DOWN*", "x"), node("n3"))
    )
    assert picture.attempts("c", seen, NOW)[0].failed_nodes == ("n2",)


@pytest.mark.parametrize("came_back", [{"boot": 130}, {"daemon": 140}])
def test_nodes_that_came_back_since_failed(came_back: dict[str, Any]) -> None:
    nodes = node("n1"), node("n2", **came_back), node("n3", **came_back)
    seen = look(job(7, state="NODE_FAIL", nodes="n[1-3]", end="110"), nodes=nodes)
    assert picture.attempts("c", seen, NOW)[0].failed_nodes == ("n2", "n3")


def test_the_failed_node_that_accounting_names_is_believed() -> None:
    seen = look(nodes=(node("n1", "DOWN*", "x"),), rows=(replace(ROW, state="NODE_FAIL", failed_nodes=("n1",)),))
    assert picture.attempts("c", seen, NOW)[0].failed_nodes == ("n1",)


@pytest.mark.parametrize(
    ("uid", "end_s", "told"), [(0, 941, False), (0, 940, True), (-1, 941, False), (1000, 941, True)]
)
def test_an_end_is_told_once_it_is_known_whose_it_is(uid: int, end_s: int, told: bool) -> None:
    """For a while slurmdbd says root of a job that is new to it: nobody is to hear of another's job."""
    row = replace(ROW, uid=uid, user="root" if uid == 0 else "", end_s=end_s)
    assert states(look(rows=(row,))) == ({100: A.FAILED} if told else {})


def test_what_its_node_took_with_it_chose_no_exit_code() -> None:
    """Newer versions say 0:1 of it, and sacct 1:0."""
    gone = replace(ROW, state="NODE_FAIL", exit_code=1)
    of_both = look(job(7, state="NODE_FAIL", end="110", exit_code="0:1")), look(rows=(gone,))
    for seen in of_both:
        (attempt,) = picture.attempts("c", seen, NOW)
        assert (attempt.state, attempt.exit_code, attempt.signal) == (A.NODE_FAIL, 0, 0)


def test_of_two_nodes_the_one_that_is_down_failed_and_not_the_one_that_was_restarted_since() -> None:
    lost = job(7, state="NODE_FAIL", nodes="n[1-2]", end="110")
    seen = look(lost, nodes=(node("n1", daemon=140), node("n2", "DOWN*", "x")))
    assert picture.attempts("c", seen, NOW)[0].failed_nodes == ("n2",)


@pytest.mark.parametrize("state", [A.FAILED, A.NODE_FAIL, A.COMPLETED])
def test_that_a_job_waits_since_a_launch_failed_says_nothing_of_a_start_that_ran(state: AttemptState) -> None:
    held = job(7, state="PENDING", reason="launch_failed_requeued_held", start="Unknown", nodes="", restarts=1)
    ran = replace(ROW, state=state.name, exit_code=0)
    assert states(look(held, rows=(ran,))) == {100: state}


def test_a_prolog_that_failed_is_a_launch_failure() -> None:
    held = job(7, state="PENDING", reason="launch_failed_requeued_held", start="Unknown", nodes="", priority=0)
    put_back = replace(ROW, state="REQUEUED", exit_code=0)
    seen = look(held, nodes=(node("n1", "IDLE+DRAIN", "Prolog error"),), rows=(put_back,))
    (attempt,) = picture.attempts("c", seen, NOW)
    assert attempt.state is A.LAUNCH_FAILED
    assert attempt.reason == "launch_failed_requeued_held; n1: Prolog error"


def test_a_job_that_shrinks_stays_one_attempt() -> None:
    rows = picture.with_reported_ends((replace(ROW, state="RESIZING"), replace(ROW, nodes=("n2",))), {})
    (attempt,) = picture.attempts("c", look(rows=rows), NOW)
    assert (attempt.state, attempt.nodes) == (A.FAILED, ("n2",))


def test_a_hook_knows_how_it_ended_where_accounting_has_forgotten() -> None:
    told = replace(ROW, state="TIMEOUT", exit_code=0, gpus=0)
    (row,) = picture.with_reported_ends((replace(ROW, state="REQUEUED", exit_code=0),), {("7", 100): told})
    assert (row.state, row.gpus) == ("TIMEOUT", 2)
    assert picture.with_reported_ends((), {("7", 100): told}) == (told,)


@pytest.mark.parametrize(("word", "told"), [("CANCELLED by 1000", "CANCELLED by 1000"), ("TIMEOUT", "")])
def test_accounting_names_who_cancelled(word: str, told: str) -> None:
    (attempt,) = picture.attempts("c", look(rows=(replace(ROW, state=word),)), NOW)
    assert attempt.reason == told


def test_a_user_that_cannot_be_looked_up_goes_by_number() -> None:
    assert picture.user_name("nobody", 4711) == "4711"
    assert picture.user_name("", 4711) == "4711"
    assert picture.user_name("ada", 1000) == "ada"


@pytest.mark.parametrize(
    ("went_down", "told"), [({"boot": 130}, ("n1",)), ({"state": "DOWN"}, ("n1",)), ({}, ()), ({"boot": 5000}, ())]
)
def test_a_machine_that_shuts_down_ends_scripts_by_a_signal(
    went_down: Mapping[str, Any], told: tuple[str, ...]
) -> None:
    ended = job(7, state="FAILED", end="110", exit_code="0:15", reason="JobLaunchFailure")
    (attempt,) = picture.attempts("c", look(ended, nodes=(node("n1", **went_down),)), NOW)
    assert (attempt.state, attempt.signal, attempt.failed_nodes) == (A.FAILED, 15, told)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"uid": 1003, "user": "chen", "submit_s": 80}, False),  # another user's, which had the id before
        ({"submit_s": 80}, False),  # the same user's, before the state was lost
        ({}, True),
    ],
)
def test_what_accounting_tells_of_a_job_that_had_the_id_before_is_left_out(row: Mapping[str, Any], told: bool) -> None:
    seen = look(job(7, state="RUNNING", start="200", end="Unknown"), rows=(replace(ROW, **row),))
    assert (100 in states(seen)) is told


def test_what_was_submitted_anew_by_a_requeue_is_still_the_same_job() -> None:
    seen = look(job(7, state="PENDING", start="Unknown", restarts=1), rows=(replace(ROW, submit_s=80),))
    assert states(seen) == {100: A.FAILED}
