"""Links that a full disk kept from being written down: taken over from Slurm's jobs, and submitted by no stale look."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.job.link_marks import LinkMarks
from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain import step
from perdure.succession.chain_state import ChainStanding, LinkEnding, Phase, Strategy
from perdure.succession.following import ending_of
from perdure.succession.messages import AskEnd, CancelLink, EndTold, LinkPlanned, LinksSeen, LinkSubmitted, SubmitLink
from perdure.succession.protocol import Decision
from tests.succession.test_chain import SPEC, WALLTIME_S, begun, job, marks, running

RUNS = job(1, "RUNNING", start_s=10.0, end_s=10.0 + WALLTIME_S)


def looked(*jobs: LinkJob, at: float = 100.0, **more: Any) -> LinksSeen:
    return LinksSeen(at, jobs=jobs, looked_s=at, **more)


def test_a_job_of_a_link_that_nobody_wrote_down_is_taken_over_and_not_submitted_again() -> None:
    chain, effects = step(running(), looked(RUNS, job(2, "PENDING", "2.1", at=50.0)))
    second = chain.link(2)
    assert (second.job_id, second.phase, second.submitted_s) == ("2", Phase.WAITING, 50.0)
    assert chain.notes[-1].text == "link 2, job 2, was not written down, and was found"
    chain, more = step(chain, LinkPlanned(101.0, Decision(True, 101.0, "now")))
    assert not [each for each in (*effects, *more) if isinstance(each, SubmitLink)]


def test_a_newer_try_of_a_link_is_its_job() -> None:
    chain, _ = step(running(), LinkPlanned(20.0, Decision(True, 20.0, "now")))
    chain, effects = step(chain, looked(RUNS, job(5, "PENDING", "2.2", at=50.0)))
    assert (chain.link(2).tries, chain.link(2).job_id) == (2, "5")
    assert not [each for each in effects if isinstance(each, CancelLink | SubmitLink)]


def test_links_between_have_ended_and_count() -> None:
    spec = replace(SPEC, most_links=4)
    chain, _ = step(running(spec), looked(job(9, "RUNNING", "4.1", start_s=90.0)))
    assert [link.ending for link in chain.links[1:3]] == [LinkEnding.HANDED_OVER] * 2
    assert chain.link(4).phase is Phase.RUNNING
    _, effects = step(chain, LinkPlanned(101.0, Decision(True, 101.0, "now")))
    assert not [each for each in effects if isinstance(each, SubmitLink) and each.number > 5]


def test_a_mark_alone_tells_of_a_link_too() -> None:
    chain, _ = step(running(), LinksSeen(100.0, {1: marks(begun(1, 10.0)), 2: marks(begun(2, 90.0))}))
    assert (chain.link(2).job_id, chain.link(2).phase) == ("2", Phase.RUNNING)


def test_a_link_that_we_held_is_ours_to_release_and_one_that_its_user_holds_is_not() -> None:
    for strategy, is_held in ((Strategy.HOLD, True), (Strategy.NONE, False)):
        held = job(2, "PENDING", "2.1", at=50.0, reason="JobHeldUser")
        chain, _ = step(running(replace(SPEC, strategy=strategy)), looked(RUNS, held))
        assert chain.link(2).is_held is is_held


@pytest.mark.parametrize("other", [LinkJob("7", "PENDING"), replace(job(7, "PENDING", "2.1"), chain="train-1.cd")])
def test_jobs_that_are_no_links_of_this_chain_are_left_alone(other: LinkJob) -> None:
    chain, effects = step(running(), looked(RUNS, other))
    assert [link.number for link in chain.links] == [1]
    assert not [each for each in effects if isinstance(each, CancelLink)]


def test_nothing_is_submitted_before_a_look_of_this_life() -> None:
    ended = job(1, "TIMEOUT", start_s=10.0, end_s=90.0)
    stale = LinksSeen(120.0, jobs=(ended,), looked_s=100.0, unsure_s=110.0)
    chain, effects = step(running(), stale)
    assert not [each for each in effects if isinstance(each, SubmitLink)]
    _, effects = step(chain, looked(ended, at=130.0, unsure_s=110.0))
    assert [each.number for each in effects if isinstance(each, SubmitLink)] == [2]


def test_no_link_is_held_to_be_lost_by_a_look_from_before() -> None:
    chain, _ = step(running(), LinkPlanned(20.0, Decision(True, 20.0, "now")))
    chain, _ = step(chain, LinkSubmitted(21.0, 2, "2"))
    _, effects = step(chain, looked(RUNS, unsure_s=110.0))
    assert AskEnd(2, "2") not in effects
    _, effects = step(chain, looked(RUNS, at=120.0, unsure_s=110.0))
    assert AskEnd(2, "2") in effects


def test_an_end_without_a_mark_is_asked_of_slurm_and_exit_code_75_asks_for_the_next_link() -> None:
    link = replace(running().links[0], phase=Phase.ENDED, state="FAILED", ended_s=300.0, marks=LinkMarks())
    assert ending_of(link, WALLTIME_S)[0] is LinkEnding.UNKNOWN
    told = job(1, "FAILED", exit_code=75)
    assert ending_of(link, WALLTIME_S, told)[0] is LinkEnding.HANDED_OVER
    assert ending_of(link, WALLTIME_S, replace(told, exit_code=1)) == (
        LinkEnding.FAILED, "it failed with exit code 1",
    )  # fmt: skip


def test_a_chain_that_is_done_stays_done_whatever_becomes_of_its_spare() -> None:
    chain, _ = step(running(), LinkPlanned(20.0, Decision(True, 20.0, "now")))
    both = (job(1, "COMPLETED", start_s=10.0, end_s=200.0), job(2, "CANCELLED", "2.1", start_s=150.0, end_s=210.0))
    chain, _ = step(chain, looked(*both, at=220.0))
    chain, _ = step(chain, EndTold(221.0, 1, both[0]))
    assert (chain.standing, chain.why) == (ChainStanding.DONE, "the work is done: it completed")
