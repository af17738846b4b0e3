"""Every program of the demonstration, run for real on the embedded cluster, ends as its truth says."""

import sys
from collections.abc import Iterator

import pytest

from perdure.demo.workload import Truth
from perdure.model.jobs import Attempt, AttemptState, JobState
from perdure.triage.judge import judge
from perdure.triage.verdict import Label
from tests.demo.stage import ARRIVALS, Stage, open_stage

NODE_BOUND = "n1"  # where the pinned scenarios begin
IN_A_STORY = {"lm-finetune", "resnet-long"}  # deterministic, with a test of their own
ALONE = [a for a in ARRIVALS.values() if a.truth is Truth.DETERMINISTIC and a.name not in IN_A_STORY]
WELL = ["resnet-8", "resnet-8b", "lr-sweep", "prep", "eval", "reindex", "notebook", "warm-cache", "eval-urgent"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("stage")) as opened:
        yield opened


def judged_rightly(stage: Stage, name: str, attempt: Attempt) -> None:
    """Triage finds what the workload knows to be true, where the log can tell it."""
    verdict = judge(stage.backend.output(attempt).main.tail, attempt)
    expected = ARRIVALS[name]
    if expected.tells:
        assert (str(verdict.label), verdict.category) == (str(expected.truth), expected.category), verdict
    else:
        assert verdict.label is not Label.DETERMINISTIC, verdict


def fails_first(stage: Stage, name: str, job_id: str) -> Attempt:
    """The job's attempt that has failed, with the text that its arrival announces."""
    attempt = stage.until_over(job_id)
    assert attempt.state.is_failure
    assert ARRIVALS[name].shows in stage.log(attempt)
    judged_rightly(stage, name, attempt)
    return attempt


def passes(stage: Stage, job_id: str) -> Attempt:
    attempt = stage.until_over(job_id)
    assert attempt.state is AttemptState.COMPLETED, stage.log(attempt)
    assert "finished" in stage.log(attempt)
    return attempt


def last_line(stage: Stage, attempt: Attempt) -> str:
    return stage.log(attempt).splitlines()[-1]


@pytest.mark.parametrize("name", [a.name for a in ALONE])
def test_deterministic_failures_are_alike_on_three_nodes(stage: Stage, name: str) -> None:
    if ARRIVALS[name].memory_mib and sys.platform == "darwin":
        pytest.skip("macOS does not enforce a limit on address space")
    job_id = stage.submit(name)
    ends = set()
    for incarnation in (1, 2, 3):
        attempt = fails_first(stage, name, job_id)
        assert attempt.id.incarnation == incarnation
        ends.add((attempt.exit_code, attempt.signal, last_line(stage, attempt)))
        if incarnation < 3:
            stage.retry_elsewhere(attempt)
    assert len(ends) == 1
    assert len({attempt.nodes for attempt in stage.attempts(job_id)}) == 3


def test_bad_options_end_with_2_as_usage_errors_do(stage: Stage) -> None:
    assert stage.until_over(stage.submit("distill")).exit_code == 2


def test_a_run_from_half_a_checkpoint_fails_again_and_again(stage: Stage) -> None:
    stage.until_over(stage.submit("lm-pretrain"))
    job_id = stage.submit("lm-finetune")
    for _ in range(2):
        stage.retry_elsewhere(fails_first(stage, "lm-finetune", job_id))
    fails_first(stage, "lm-finetune", job_id)


def test_good_programs_finish(stage: Stage) -> None:
    jobs = {name: stage.submit(name) for name in WELL}
    for name, job_id in jobs.items():
        assert ARRIVALS[name].shows in stage.log(passes(stage, job_id)), name
    assert not list(stage.workspace.root.glob("home/*/runs/*")), "checkpoints of finished runs stay"


def test_a_port_is_taken_on_one_node_and_free_on_another(stage: Stage) -> None:
    notebook = stage.submit("notebook", pace=1.0)
    stage.until_says(notebook, "listening on port")
    board = stage.submit("seg-board")
    stage.retry_elsewhere(fails_first(stage, "seg-board", board))
    assert passes(stage, board).nodes != (NODE_BOUND,)
    assert stage.job(notebook).state is JobState.RUNNING


def test_a_server_refuses_until_it_listens(stage: Stage) -> None:
    client = stage.submit("recsys")
    refused = fails_first(stage, "recsys", client)
    server = stage.submit("params")
    stage.until_says(server, "listening on port")
    stage.retry_elsewhere(refused)
    passes(stage, client)
    assert "clients served" in stage.log(passes(stage, server))


def test_a_lock_passes_and_an_owner_may_refuse_a_retry(stage: Stage) -> None:
    writer = stage.submit("reindex", pace=0.15)
    stage.until_says(writer, "200 passages")
    again, once = stage.submit("retrieval"), stage.submit("retrieval-once")
    locked = fails_first(stage, "retrieval", again)
    fails_first(stage, "retrieval-once", once)
    assert not stage.job(once).may_requeue
    passes(stage, writer)
    stage.retry_elsewhere(locked)
    passes(stage, again)


def test_a_lost_rank_leaves_its_peer_with_a_dead_connection(stage: Stage) -> None:
    job_id = stage.submit("bert-ddp", pace=0.05)
    lost = fails_first(stage, "bert-ddp", job_id)
    assert lost.signal == 9
    stage.retry_elsewhere(lost)
    assert "resuming from step 4" in stage.log(passes(stage, job_id))


def test_a_rank_that_waits_for_ever_is_ended_by_its_peers_watchdog(stage: Stage) -> None:
    warmer = stage.submit("warm-cache", pace=1.0)
    stage.until_says(warmer, "holding the cache lock")
    job_id = stage.submit("moe-2x", pace=0.05)
    hung = fails_first(stage, "moe-2x", job_id)
    assert hung.signal == 6
    assert "load_shard" in stage.log(hung), "the stacks show where the other rank is"
    stage.retry_elsewhere(hung)
    passes(stage, job_id)
    assert stage.job(warmer).state is JobState.RUNNING


@pytest.mark.parametrize(("name", "fault", "fix"), [("resnet-32", "fail", "return"), ("resnet-16", "freeze", "thaw")])
def test_a_run_goes_on_elsewhere_when_its_node_is_gone(stage: Stage, name: str, fault: str, fix: str) -> None:
    job_id = stage.submit(name, pace=0.1)
    (node,) = stage.until_says(job_id, "checkpoint saved at step 10").nodes
    stage.backend.fault(node, fault)
    gone = fails_first(stage, name, job_id)
    assert (gone.state, gone.failed_nodes) == (AttemptState.NODE_FAIL, (node,))
    stage.retry_elsewhere(gone)
    stage.until_says(job_id, "resuming from step")
    stage.backend.fault(node, fix)
    assert passes(stage, job_id).nodes != (node,)
    assert "finished" not in stage.log(gone)


def test_an_urgent_job_pushes_another_aside_which_then_goes_on(stage: Stage) -> None:
    low = stage.submit("resnet-low", pace=0.1)
    stage.until_says(low, "step 5/")
    urgent = stage.submit("eval-urgent")
    passes(stage, urgent)
    passes(stage, low)
    first, second = stage.attempts(low)
    assert first.state is AttemptState.PREEMPTED
    assert ARRIVALS["resnet-low"].shows in stage.log(first)
    assert "resuming from step" in stage.log(second)
    judged_rightly(stage, "resnet-low", first)


def test_a_walltime_that_is_too_short_is_announced_and_then_reached(stage: Stage) -> None:
    job_id = stage.submit("resnet-long", pace=1.0, walltime_s=3.0, signal_before_s=2.0)
    over = fails_first(stage, "resnet-long", job_id)
    assert over.state is AttemptState.TIMEOUT
    assert "checkpoint saved" in stage.log(over)


def test_every_arrival_has_a_test_here() -> None:
    """A scenario that is added to the workload is added here too."""
    told = {"lm-pretrain", "lm-finetune", "resnet-long", "seg-board", "recsys", "params", "retrieval", "retrieval-once"}
    told |= {"bert-ddp", "moe-2x", "resnet-32", "resnet-16", "resnet-low", *WELL, *(a.name for a in ALONE)}
    assert told == ARRIVALS.keys()
