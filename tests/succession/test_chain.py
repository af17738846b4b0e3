"""The state machine of a chain, event by event: no link is lost, none is doubled, and people are followed."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.job.link_marks import HandoverAsked, HandoverTold, LinkBegun, LinkEnded, LinkMarks
from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain import MOST_FAILURES, MOST_LOST, step
from perdure.succession.chain_state import ChainSpec, ChainStanding, JobChain, Link, LinkEnding, Phase, Strategy
from perdure.succession.following import ending_of
from perdure.succession.messages import (
    AskEnd,
    CancelLink,
    Effect,
    EndTold,
    JudgeLink,
    LinkJudged,
    LinkPlanned,
    LinkRefused,
    LinkReleased,
    LinksSeen,
    LinkSubmitted,
    PlanLink,
    ReleaseLink,
    StopAsked,
    SubmitLink,
)
from perdure.succession.protocol import Decision

WALLTIME_S = 1000.0
SPEC = ChainSpec("train-1", "train-1.ab", "train", "/home/a/train.sh", "/home/a", "a", 0.0, WALLTIME_S)


def job(number: int, state: str, key: str = "1.1", at: float = 0.0, **more: Any) -> LinkJob:
    return LinkJob(str(number), state, submit_s=at, chain="train-1.ab", key=key, **more)


def begun(number: int, at: float, **more: Any) -> LinkBegun:
    return LinkBegun(str(number), at, at, **more)


def marks(
    begun: LinkBegun | None = None, ended: LinkEnded | None = None, asked: HandoverAsked | None = None
) -> LinkMarks:
    return LinkMarks(begun=begun, asked=asked, ended=ended)


def running(spec: ChainSpec = SPEC, now: float = 10.0) -> JobChain:
    """A chain whose first link, job 1, runs since 10."""
    chain, _ = step(JobChain(spec), LinksSeen(1.0))
    chain, _ = step(chain, LinkSubmitted(2.0, 1, "1"))
    chain, _ = step(chain, LinksSeen(now, {1: marks(begun(1, 10.0))}))
    return chain


def submits(effects: list[Effect]) -> list[Any]:
    return [effect.number for effect in effects if isinstance(effect, SubmitLink)]


def test_a_new_chain_intends_its_first_link_before_it_is_submitted() -> None:
    chain, effects = step(JobChain(SPEC), LinksSeen(1.0))
    assert [(link.number, link.phase) for link in chain.links] == [(1, Phase.INTENDED)]
    assert effects == [SubmitLink(1)]


def test_no_third_link_is_submitted_while_the_second_waits_for_the_first_to_end() -> None:
    chain, _ = step(running(), LinkPlanned(20.0, Decision(True, 20.0, "now")))
    chain, _ = step(chain, LinkSubmitted(21.0, 2, "2"))
    both = {1: marks(begun(1, 10.0)), 2: marks(LinkBegun("2", 30.0))}
    chain, effects = step(chain, LinksSeen(31.0, both))
    assert [link.phase for link in chain.live] == [Phase.RUNNING] * 2
    assert effects == []
    alone = {1: marks(begun(1, 10.0), LinkEnded("1", 500.0, 0, ("TERM",)), HandoverAsked("2", 30.0, 150.0))}
    _, effects = step(chain, LinksSeen(501.0, {**both, **alone}))
    assert PlanLink(2) in effects


def test_a_link_that_was_put_back_and_started_between_two_looks_runs() -> None:
    old = marks(begun(1, 10.0), ended=LinkEnded("1", 100.0, 143, ("TERM",)))
    chain, _ = step(running(), LinksSeen(101.0, {1: old}))
    assert chain.links[0].phase is Phase.ENDED
    again = LinksSeen(160.0, {1: marks(begun(1, 125.0))}, (job(1, "RUNNING", start_s=124.0, end_s=1124.0),), 160.0)
    chain, effects = step(chain, again)
    link = chain.links[0]
    assert (link.phase, link.started_s, link.ends_s, link.ended_s) == (Phase.RUNNING, 124.0, 1124.0, 0.0)
    assert submits(effects) == []
    _, effects = step(chain, StopAsked(161.0, at_once=True))
    assert effects == [CancelLink(1, "1")]


def test_a_job_whose_end_slurm_has_not_seen_yet_has_ended() -> None:
    old = marks(begun(1, 10.0), ended=LinkEnded("1", 100.0, 143, ("TERM",)))
    look = LinksSeen(160.0, {1: old}, (job(1, "RUNNING", start_s=9.0, end_s=1009.0),), 160.0)
    assert step(running(), look)[0].links[0].phase is Phase.ENDED


def test_an_intent_is_not_submitted_again_before_a_later_look_says_that_it_is_not_there() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    for seen in (
        LinksSeen(20.0),
        LinksSeen(20.0, jobs=(), looked_s=0.5),
        LinksSeen(20.0, jobs=(), looked_s=19.0, in_flight=True),
    ):
        assert step(chain, seen)[1] == []
    again, effects = step(chain, LinksSeen(20.0, jobs=(), looked_s=19.0))
    assert (submits(effects), again.links[0].key) == ([1], "1.2")


def test_a_job_that_was_submitted_before_its_id_was_noted_is_found_by_its_key() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    chain, effects = step(chain, LinksSeen(20.0, jobs=(job(7, "PENDING", at=2.0),), looked_s=19.0))
    assert (effects, chain.links[0].job_id, chain.links[0].phase) == ([], "7", Phase.WAITING)


def test_one_that_has_begun_is_found_by_its_mark() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    chain, _ = step(chain, LinksSeen(20.0, {1: marks(begun(7, 12.0))}))
    assert (chain.links[0].job_id, chain.links[0].phase) == ("7", Phase.RUNNING)


def test_a_job_of_the_same_name_that_is_not_the_chains_is_not_taken() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    stranger = LinkJob("7", "PENDING", submit_s=2.0)
    other = LinkJob("8", "PENDING", submit_s=2.0, chain="train-1.cd", key="1.1")
    assert submits(step(chain, LinksSeen(20.0, jobs=(stranger, other), looked_s=19.0))[1]) == [1]


def test_a_running_link_asks_the_planner_and_a_decision_submits_one_successor() -> None:
    chain = running()
    assert step(chain, LinksSeen(20.0, {1: marks(begun(1, 10.0))}))[1] == [PlanLink(1)]
    waiting, effects = step(chain, LinkPlanned(20.0, Decision(False, 300.0, "later")))
    assert effects == []
    assert step(waiting, LinksSeen(200.0, {1: marks(begun(1, 10.0))}))[1] == []
    chain, effects = step(waiting, LinkPlanned(300.0, Decision(True, 300.0, "now")))
    assert submits(effects) == [2]
    chain, _ = step(chain, LinkSubmitted(301.0, 2, "2"))
    assert step(chain, LinksSeen(310.0, {1: marks(begun(1, 10.0))}))[1] == []


def test_after_a_handover_the_successor_is_the_running_link() -> None:
    chain, _ = step(running(), LinkPlanned(300.0, Decision(True, 300.0, "now")))
    chain, _ = step(chain, LinkSubmitted(301.0, 2, "2"))
    handed = {
        1: marks(begun(1, 10.0), LinkEnded("1", 420.0, 0, ("TERM",)), HandoverAsked("2", 400.0, 520.0)),
        2: marks(LinkBegun("2", 400.0, 421.0)),
    }
    chain, effects = step(chain, LinksSeen(430.0, handed))
    assert (chain.links[0].ending, chain.current.number, effects) == (LinkEnding.HANDED_OVER, 2, [PlanLink(2)])


def test_an_exit_with_0_that_nobody_asked_for_is_the_end_and_cancels_the_spare() -> None:
    chain, _ = step(running(), LinkPlanned(300.0, Decision(True, 300.0, "now")))
    chain, _ = step(chain, LinkSubmitted(301.0, 2, "2"))
    chain, effects = step(chain, LinksSeen(430.0, {1: marks(begun(1, 10.0), LinkEnded("1", 420.0, 0))}))
    assert (chain.standing, effects) == (ChainStanding.DONE, [CancelLink(2, "2")])
    cancelled = job(2, "CANCELLED", "2.1", at=301.0)
    chain, effects = step(chain, LinksSeen(500.0, jobs=(cancelled,), looked_s=499.0))
    assert (chain.live, effects, chain.links[1].ending) == ((), [], LinkEnding.DROPPED)


def test_a_walltime_that_is_over_submits_the_next_link_at_once() -> None:
    chain, effects = step(running(), LinksSeen(1100.0, jobs=(job(1, "TIMEOUT", end_s=1010.0),), looked_s=1090.0))
    assert (chain.links[0].ending, submits(effects)) == (LinkEnding.HANDED_OVER, [2])


def test_a_signal_alone_does_not_tell_a_cancellation_from_a_failure_so_slurm_is_asked() -> None:
    told = {1: marks(begun(1, 10.0), LinkEnded("1", 50.0, 143, ("TERM",)))}
    chain, effects = step(running(), LinksSeen(51.0, told))
    assert effects == [AskEnd(1, "1")]
    chain, _ = step(chain, EndTold(52.0, 1, job(1, "CANCELLED", start_s=10.0, end_s=50.0)))
    chain, effects = step(chain, LinksSeen(53.0, told))
    assert (chain.standing, effects) == (ChainStanding.STOPPED, [])
    assert chain.why == "link 1 was cancelled by hand"


def test_a_successor_that_was_cancelled_by_hand_is_not_submitted_again() -> None:
    chain, _ = step(running(), LinkPlanned(300.0, Decision(True, 300.0, "now")))
    chain, _ = step(chain, LinkSubmitted(301.0, 2, "2"))
    jobs = (job(1, "RUNNING", start_s=10.0, end_s=1010.0), job(2, "CANCELLED", "2.1", at=301.0))
    seen = LinksSeen(400.0, {1: marks(begun(1, 10.0))}, jobs, 390.0)
    chain, effects = step(chain, seen)
    assert (submits(effects), chain.standing) == ([], ChainStanding.RUNNING)
    chain, effects = step(chain, LinksSeen(1100.0, {}, (job(1, "TIMEOUT", end_s=1010.0),), 1090.0))
    assert (chain.standing, submits(effects)) == (ChainStanding.STOPPED, [])
    assert "link 2, which waited, was cancelled by hand" in chain.why


def test_a_limit_that_was_changed_by_hand_is_followed() -> None:
    longer = job(1, "RUNNING", start_s=10.0, end_s=5010.0)
    chain, _ = step(running(), LinksSeen(100.0, {1: marks(begun(1, 10.0))}, (longer,), 99.0))
    assert chain.current.ends_s == 5010.0


def test_a_failure_is_judged_and_the_chain_goes_on_where_it_passes() -> None:
    failed = {1: marks(begun(1, 10.0), LinkEnded("1", 50.0, 1))}
    chain, effects = step(running(), LinksSeen(51.0, failed))
    assert effects == [AskEnd(1, "1")]
    chain, _ = step(chain, EndTold(52.0, 1, job(1, "FAILED", exit_code=1)))
    chain, effects = step(chain, LinksSeen(53.0, failed))
    assert effects == [JudgeLink(1)]
    passes, _ = step(chain, LinkJudged(54.0, 1, True, "a connection was reset"))
    assert submits(step(passes, LinksSeen(55.0, failed))[1]) == [2]
    stays, _ = step(chain, LinkJudged(54.0, 1, False, "ModuleNotFoundError"))
    assert (stays.standing, submits(step(stays, LinksSeen(55.0, failed))[1])) == (ChainStanding.STOPPED, [])
    assert "ModuleNotFoundError" in stays.why


def test_a_lost_node_is_no_reason_to_ask_why() -> None:
    chain, effects = step(running(), LinksSeen(100.0, {}, (job(1, "NODE_FAIL", end_s=90.0),), 95.0))
    assert (chain.links[0].ending, submits(effects)) == (LinkEnding.LOST, [2])


def test_failures_in_a_row_end_the_chain() -> None:
    chain = running()
    for number in range(1, MOST_FAILURES + 1):
        chain, _ = step(chain, LinkSubmitted(10.0 * number, number, str(number)))
        failed = {number: marks(begun(number, 10.0), LinkEnded(str(number), 20.0, 1))}
        chain, _ = step(chain, EndTold(20.0, number, job(number, "FAILED", f"{number}.1")))
        chain, _ = step(chain, LinksSeen(20.0, failed))
        chain, _ = step(chain, LinkJudged(20.0, number, True, "a connection was reset"))
        chain, effects = step(chain, LinksSeen(21.0, failed))
    assert (chain.standing, submits(effects)) == (ChainStanding.STOPPED, [])
    assert chain.why.startswith("3 links in a row have failed")


def test_a_job_that_slurm_has_forgotten_is_submitted_again_once_nobody_knows_it() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    chain, _ = step(chain, LinkSubmitted(2.0, 1, "1"))
    chain, effects = step(chain, LinksSeen(70.0, jobs=(), looked_s=65.0))
    assert effects == [AskEnd(1, "1")]
    chain, effects = step(chain, EndTold(71.0, 1, None))
    assert effects == []
    chain, effects = step(chain, EndTold(125.0, 1, None))
    assert (submits(effects), chain.links[0].key) == ([1], "1.2")


def test_a_job_that_came_after_it_was_given_up_is_cancelled() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    chain, _ = step(chain, LinksSeen(20.0, jobs=(), looked_s=19.0))
    chain, _ = step(chain, LinkSubmitted(21.0, 1, "9"))
    jobs = (job(8, "PENDING", "1.1"), job(9, "PENDING", "1.2"))
    assert step(chain, LinksSeen(80.0, jobs=jobs, looked_s=79.0))[1] == [CancelLink(1, "8")]


def test_a_link_that_slurm_puts_back_is_waited_for() -> None:
    chain, effects = step(running(), LinksSeen(100.0, {1: marks(begun(1, 10.0))}, (job(1, "PENDING", at=90.0),), 95.0))
    assert (chain.links[0].phase, effects) == (Phase.WAITING, [])


def test_a_progress_file_that_says_nothing_is_told() -> None:
    spec = replace(SPEC, progress_file="/home/a/progress")
    chain, _ = step(running(spec), EndTold(1011.0, 1, job(1, "TIMEOUT")))
    ended = {1: marks(begun(1, 10.0), LinkEnded("1", 1010.0, 0, ("TERM",)))}
    chain, effects = step(chain, LinksSeen(1011.0, ended))
    assert submits(effects) == [2]
    assert "/home/a/progress says nothing" in chain.notes[-1].text


def test_a_link_that_slurm_loses_again_and_again_is_submitted_no_more() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    now, submitted = 1.0, 1
    while chain.standing is ChainStanding.RUNNING and submitted < 100:
        chain, _ = step(chain, LinkSubmitted(now + 1, 1, str(submitted)))
        chain, _ = step(chain, LinksSeen(now + 60, jobs=(), looked_s=now + 60))
        chain, effects = step(chain, EndTold(now + 120, 1, None))
        now, submitted = now + 121, submitted + len(submits(effects))
    assert (submitted, chain.live) == (MOST_LOST, ())
    assert chain.why == f"link 1 was lost by Slurm {MOST_LOST} times"


def test_an_answer_of_sbatch_that_comes_after_its_job_was_seen_changes_nothing() -> None:
    chain = running()
    assert step(chain, LinkSubmitted(50.0, 1, "1")) == (chain, [])


def test_twenty_links_in_a_row_that_are_lost_stop_the_chain() -> None:
    lost = [Link(number, Phase.ENDED, job_id=str(number), started_s=1.0, ending=LinkEnding.LOST, is_settled=True)
            for number in range(1, 20)]  # fmt: skip
    chain = JobChain(SPEC, (*lost, Link(20, Phase.RUNNING, job_id="20", submitted_s=1.0, started_s=2.0)))
    seen = LinksSeen(50.0, jobs=(job(20, "NODE_FAIL", "20.1", start_s=2.0, end_s=40.0),), looked_s=50.0)
    chain, effects = step(chain, seen)
    assert (chain.why, submits(effects)) == ("20 links in a row were lost", [])


def test_a_failure_just_before_the_walltime_that_nobody_asked_for_is_judged() -> None:
    failed = {1: marks(begun(1, 10.0), LinkEnded("1", 1000.0, 1))}
    seen = LinksSeen(1002.0, failed, (job(1, "FAILED", start_s=10.0, end_s=1000.0),), 1002.0)
    assert JudgeLink(1) in step(running(), seen)[1]


def test_no_progress_in_two_links_stops_the_chain() -> None:
    spec = replace(SPEC, progress_file="/home/a/progress")
    ended = {1: marks(begun(1, 10.0), LinkEnded("1", 1010.0, 0, ("TERM",), progress="step 5"))}
    chain, _ = step(running(spec), EndTold(1011.0, 1, job(1, "TIMEOUT")))
    chain, effects = step(chain, LinksSeen(1011.0, ended))
    assert submits(effects) == [2]
    chain, _ = step(chain, LinkSubmitted(1012.0, 2, "2"))
    ended[2] = marks(begun(2, 1020.0), LinkEnded("2", 2020.0, 0, ("TERM",), progress="step 5"))
    chain, _ = step(chain, EndTold(2021.0, 2, job(2, "TIMEOUT", "2.1")))
    chain, effects = step(chain, LinksSeen(2021.0, ended))
    assert (chain.standing, submits(effects)) == (ChainStanding.STOPPED, [])
    assert "it never checkpoints" in chain.why


@pytest.mark.parametrize("said", [*product(("a", "b", ""), repeat=4)], ids="".join)
def test_a_chain_stops_at_the_first_link_that_came_no_further_than_the_last_that_said_how_far_it_came(
    said: tuple[str, ...],
) -> None:
    chain, ended, told = running(replace(SPEC, progress_file="/home/a/progress")), {}, ""
    for number, progress in enumerate(said, 1):
        began_s, ended_s = number * 1010.0 - 1000.0, number * 1010.0
        ended[number] = marks(begun(number, began_s), LinkEnded(str(number), ended_s, 0, ("TERM",), progress=progress))
        chain, _ = step(chain, EndTold(ended_s + 1, number, job(number, "TIMEOUT", f"{number}.1")))
        chain, effects = step(chain, LinksSeen(ended_s + 1, ended))
        if progress and progress == told:
            assert (chain.standing, submits(effects)) == (ChainStanding.STOPPED, [])
            assert "ended at the same progress" in chain.why
            return
        assert (chain.standing, submits(effects)) == (ChainStanding.RUNNING, [number + 1])
        chain, _ = step(chain, LinkSubmitted(ended_s + 2, number + 1, str(number + 1)))
        told = progress or told


def test_a_limit_on_submissions_falls_back_to_submitting_when_the_link_has_ended() -> None:
    chain, _ = step(running(), LinkPlanned(300.0, Decision(True, 300.0, "now")))
    chain, _ = step(chain, LinkRefused(301.0, 2, "QOSMaxSubmitJobPerUserLimit", limit=True))
    assert "QOSMaxSubmitJobPerUserLimit" in chain.notes[-1].text
    live = {1: marks(begun(1, 10.0))}
    assert submits(step(chain, LinksSeen(500.0, live))[1]) == []
    over = LinksSeen(1100.0, {}, (job(1, "TIMEOUT", end_s=1010.0),), 1090.0)
    assert submits(step(chain, over)[1]) == [2]


def test_a_first_link_that_is_refused_ends_the_chain() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    chain, _ = step(chain, LinkRefused(2.0, 1, "Invalid account"))
    assert (chain.standing, chain.why) == (ChainStanding.STOPPED, "link 1 was refused: Invalid account")


def test_until_counts_links_that_came_to_their_end() -> None:
    chain = running(replace(SPEC, most_links=1))
    chain, effects = step(chain, LinksSeen(1100.0, {}, (job(1, "TIMEOUT", end_s=1010.0),), 1090.0))
    assert (chain.standing, chain.why, submits(effects)) == (ChainStanding.DONE, "all 1 links have run", [])


@pytest.mark.parametrize("ending", [LinkEnding.LOST, LinkEnding.FAILED, LinkEnding.DROPPED])
def test_until_counts_no_link_that_did_not_come_to_its_end(ending: LinkEnding) -> None:
    went = Link(1, Phase.ENDED, job_id="1", started_s=1.0, ending=LinkEnding.HANDED_OVER, is_settled=True)
    did_not = Link(2, Phase.ENDED, job_id="2", ending=ending, is_settled=True)
    chain, effects = step(JobChain(replace(SPEC, most_links=2), (went, did_not)), LinksSeen(50.0))
    assert (chain.standing, submits(effects)) == (ChainStanding.RUNNING, [3])


def test_strategies_submit_the_successor_while_the_link_runs() -> None:
    live = LinksSeen(20.0, {1: marks(begun(1, 10.0))}, (job(1, "RUNNING", start_s=10.0, end_s=1010.0),), 19.0)
    wanted = {
        Strategy.DEPENDENCY: SubmitLink(2, after_job="1"),
        Strategy.BEGIN: SubmitLink(2, begin_s=1010.0),
        Strategy.HOLD: SubmitLink(2, hold=True),
    }
    for strategy, effect in wanted.items():
        assert step(running(replace(SPEC, strategy=strategy)), live)[1][-1:] == [effect]


def test_a_held_successor_is_released_when_the_planner_says_so() -> None:
    chain, _ = step(running(replace(SPEC, strategy=Strategy.HOLD)), LinksSeen(20.0, {1: marks(begun(1, 10.0))}))
    chain, _ = step(chain, LinkSubmitted(21.0, 2, "2"))
    assert step(chain, LinksSeen(22.0, {1: marks(begun(1, 10.0))}))[1] == [PlanLink(1)]
    chain, effects = step(chain, LinkPlanned(23.0, Decision(True, 23.0, "now")))
    assert effects == [ReleaseLink(2, "2")]
    assert step(chain, LinksSeen(24.0, {1: marks(begun(1, 10.0))}))[1] == [ReleaseLink(2, "2")]  # it may have been lost
    chain, _ = step(chain, LinkReleased(25.0, 2))
    assert step(chain, LinksSeen(26.0, {1: marks(begun(1, 10.0))}))[1] == []


def test_a_held_successor_is_released_at_the_latest_when_no_link_runs() -> None:
    chain, _ = step(running(replace(SPEC, strategy=Strategy.HOLD)), LinksSeen(20.0, {1: marks(begun(1, 10.0))}))
    chain, _ = step(chain, LinkSubmitted(21.0, 2, "2"))
    over = LinksSeen(1100.0, {}, (job(1, "TIMEOUT", end_s=1010.0), job(2, "PENDING", "2.1")), 1090.0)
    assert step(chain, over)[1] == [ReleaseLink(2, "2")]


def test_a_stop_lets_the_running_link_end_and_cancels_what_waits() -> None:
    chain, _ = step(running(), LinkPlanned(300.0, Decision(True, 300.0, "now")))
    chain, _ = step(chain, LinkSubmitted(301.0, 2, "2"))
    chain, effects = step(chain, StopAsked(310.0))
    assert (chain.standing, effects) == (ChainStanding.RUNNING, [CancelLink(2, "2")])
    chain, effects = step(chain, StopAsked(320.0, at_once=True))
    assert (chain.standing, effects) == (ChainStanding.STOPPED, [CancelLink(1, "1"), CancelLink(2, "2")])


def test_deciding_twice_changes_nothing() -> None:
    seen = LinksSeen(430.0, {1: marks(begun(1, 10.0), LinkEnded("1", 420.0, 0))})
    chain, _ = step(running(), seen)
    assert step(chain, seen)[0] == chain


def test_a_failure_whose_successor_runs_already_is_not_judged() -> None:
    chain, _ = step(running(), LinkPlanned(300.0, Decision(True, 300.0, "now")))
    chain, _ = step(chain, LinkSubmitted(301.0, 2, "2"))
    seen = {1: marks(begun(1, 10.0), LinkEnded("1", 390.0, 1)), 2: marks(LinkBegun("2", 400.0, 401.0))}
    chain, _ = step(chain, EndTold(391.0, 1, job(1, "FAILED", exit_code=1)))
    chain, effects = step(chain, LinksSeen(410.0, seen))
    assert (chain.standing, effects) == (ChainStanding.RUNNING, [PlanLink(2)])


def test_a_stop_drops_a_link_that_may_have_been_submitted_once_no_look_shows_it() -> None:
    chain, _ = step(running(), LinkPlanned(300.0, Decision(True, 300.0, "now")))
    chain, _ = step(chain, StopAsked(301.0))
    live = {1: marks(begun(1, 10.0))}
    waiting = LinksSeen(310.0, live, (job(1, "RUNNING", start_s=10.0, end_s=1010.0),), 299.0)
    chain, effects = step(chain, waiting)
    assert (submits(effects), len(chain.live)) == ([], 2)
    found = (job(1, "RUNNING", start_s=10.0, end_s=1010.0), job(2, "PENDING", "2.1", at=300.0))
    assert step(chain, LinksSeen(380.0, live, found, 370.0))[1] == [CancelLink(2, "2")]
    chain, effects = step(chain, LinksSeen(380.0, live, found[:1], 370.0))
    assert ([link.number for link in chain.live], submits(effects)) == ([1], [])


def test_of_many_decisions_to_wait_the_newest_is_noted() -> None:
    chain = running()
    for at in (20.0, 30.0, 40.0):
        chain, _ = step(chain, LinkPlanned(at, Decision(False, at + 5.0, f"{at:.0f} s are left")))
    assert [note.text for note in chain.notes if note.text.startswith("wait")] == ["wait: 40 s are left"]


def test_slurms_word_is_taken_from_a_later_look_where_nobody_else_tells_how_a_link_ended() -> None:
    told = {1: marks(begun(1, 10.0), LinkEnded("1", 50.0, 143, ("TERM",)))}
    chain, _ = step(running(), LinksSeen(51.0, told))
    chain, _ = step(chain, LinksSeen(120.0, told, (job(1, "CANCELLED", end_s=50.0),), 110.0))
    assert chain.why == "link 1 was cancelled by hand"


def test_a_link_that_cannot_start_as_it_is_is_told_once() -> None:
    chain, _ = step(JobChain(SPEC), LinksSeen(1.0))
    chain, _ = step(chain, LinkSubmitted(2.0, 1, "1"))
    for at in (10.0, 70.0):
        stuck = job(1, "PENDING", reason="PartitionTimeLimit")
        chain, effects = step(chain, LinksSeen(at, jobs=(stuck,), looked_s=at))
        assert effects == []
    told = [note.text for note in chain.notes if "does not start" in note.text]
    assert told == ["link 1, job 1, does not start as it is: Slurm says PartitionTimeLimit"]


@pytest.mark.parametrize(("ended_s", "words"), [(600.0, "its successor took over"), (1010.0, "its walltime was over")])
def test_a_link_that_ends_at_its_walltime_is_not_said_to_have_been_taken_over(ended_s: float, words: str) -> None:
    said = LinkMarks(begun(1, 10.0), HandoverAsked("2", 500.0, 620.0), None, LinkEnded("1", ended_s, 143, ("TERM",)))
    link = Link(1, job_id="1", started_s=10.0, ends_s=1010.0, ended_s=ended_s, state="FAILED", marks=said)
    assert ending_of(link, WALLTIME_S) == (LinkEnding.HANDED_OVER, words)


def ended_so(chain: JobChain, number: int, state: str, **more: Any) -> tuple[JobChain, list[Effect]]:
    """The chain once a link was submitted, ran and ended; `more` is what is judged of it."""
    chain, _ = step(chain, LinkSubmitted(10.0 * number, number, str(number)))
    code = 1 if state == "FAILED" else 0
    left = {number: marks(begun(number, 10.0), LinkEnded(str(number), 20.0, code) if code else None)}
    chain, _ = step(chain, LinksSeen(15.0, {number: marks(begun(number, 10.0))}))
    chain, _ = step(chain, LinksSeen(20.0, left, (job(number, state, f"{number}.1", end_s=20.0),), 20.0))
    if more:
        chain, _ = step(chain, LinkJudged(20.0, number, **more))
    return step(chain, LinksSeen(21.0, left))


def test_a_lost_link_between_failures_forgives_none() -> None:
    passes = {"is_transient": True, "says": "a connection was reset"}
    chain, effects = JobChain(SPEC), []
    chain, _ = step(chain, LinksSeen(1.0))
    for number, state in enumerate(("FAILED", "FAILED", "NODE_FAIL", "FAILED"), 1):
        assert chain.standing is ChainStanding.RUNNING
        chain, effects = ended_so(chain, number, state, **(passes if state == "FAILED" else {}))
    assert (chain.standing, submits(effects)) == (ChainStanding.STOPPED, [])
    assert chain.why.startswith("3 links in a row have failed")


def test_a_link_that_came_to_its_end_between_failures_forgives_those_before_it() -> None:
    passes = {"is_transient": True, "says": "a connection was reset"}
    chain, effects = step(JobChain(SPEC), LinksSeen(1.0))
    for number, state in enumerate(("FAILED", "FAILED", "TIMEOUT", "FAILED"), 1):
        chain, effects = ended_so(chain, number, state, **(passes if state == "FAILED" else {}))
    assert (chain.standing, submits(effects)) == (ChainStanding.RUNNING, [5])


def test_what_is_said_of_a_failed_link_first_counts() -> None:
    failed = {1: marks(begun(1, 10.0), LinkEnded("1", 50.0, 1))}
    chain, _ = step(running(), LinksSeen(51.0, failed, (job(1, "FAILED", end_s=50.0),), 51.0))
    chain, _ = step(chain, LinkJudged(54.0, 1, True, "a connection was reset"))
    for again in (True, False):
        assert step(chain, LinkJudged(55.0, 1, again, "something else")) == (chain, [])


@pytest.mark.parametrize(("asked_s", "ending"), [(9.5, LinkEnding.FAILED), (10.0, LinkEnding.HANDED_OVER)])
def test_a_link_was_asked_to_hand_over_only_since_it_began(asked_s: float, ending: LinkEnding) -> None:
    """One that was put back begins again; its successor had asked the start before."""
    asked = HandoverAsked("2", asked_s, asked_s + 60.0)
    left = {1: marks(begun(1, 10.0), LinkEnded("1", 50.0, 1, ("TERM",)), asked)}
    chain, _ = step(running(), LinksSeen(51.0, left, (job(1, "FAILED", end_s=50.0),), 51.0))
    assert chain.links[0].ending is ending


def test_a_job_that_could_not_be_started_has_failed_and_is_not_submitted_for_ever() -> None:
    """Its output could not be opened: it begins and ends within one second, leaves no mark, and its exit code is 0."""
    chain, effects = step(JobChain(SPEC), LinksSeen(5000.0))
    for number in range(1, MOST_FAILURES + 1):
        now = 5000.0 + 100 * number
        assert submits(effects) == [number]
        chain, _ = step(chain, LinkSubmitted(now, number, str(number)))
        times = {"at": now, "start_s": now + 2, "end_s": now + 2}
        over = job(number, "FAILED", f"{number}.1", reason="JobLaunchFailure", exit_code=0, **times)
        look = LinksSeen(now + 60, jobs=(over,), looked_s=now + 60)
        chain, effects = step(chain, look)
        assert effects == [AskEnd(number, str(number))]
        chain, _ = step(chain, EndTold(now + 61, number, over))
        chain, effects = step(chain, look)
        assert effects == [JudgeLink(number)]
        chain, _ = step(chain, LinkJudged(now + 63, number, True, chain.links[-1].why))
        chain, effects = step(chain, look)
    assert chain.standing is ChainStanding.STOPPED
    assert chain.why == "3 links in a row have failed: it failed before its program began: Slurm says JobLaunchFailure"


@pytest.mark.parametrize(
    ("code", "signals", "asked", "told", "is_done"),
    [
        (0, (), False, None, True),
        (1, (), False, None, False),
        (0, ("USR1",), False, None, False),  # its walltime was near
        (0, (), True, None, False),
        (0, (), True, HandoverTold(1, 30.0), False),
        (0, (), True, HandoverTold(0, 30.0), True),  # nothing of it listened
    ],
)
def test_work_is_done_where_the_program_ended_well_and_nothing_told_it_to_end(
    code: int, signals: tuple[str, ...], asked: bool, told: HandoverTold | None, is_done: bool
) -> None:
    marks = LinkMarks(LinkBegun("7", 10.0), HandoverAsked("8", 20.0, 140.0) if asked else None, told)
    assert replace(marks, ended=LinkEnded("7", 40.0, code, signals)).is_done is is_done
