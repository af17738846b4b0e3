"""Of a link: which of its jobs it is, whether it ended near its walltime, and how it followed the one before it."""

import pytest

from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain_state import ChainSpec, JobChain, Link, LinkEnding
from perdure.succession.following import NEAR_S, ending_of, job_of
from perdure.succession.messages import LinksSeen
from perdure.succession.spans import LinkSpan, all_times, times_of

CHAIN = JobChain(ChainSpec("train-1", "train-1.ab", "train", "/home/a/train.sh", "/home/a", "a", 0.0, 400.0))


def test_of_two_jobs_of_one_submission_the_younger_is_the_links() -> None:
    jobs = tuple(LinkJob(number, "PENDING", chain="train-1.ab", key="1.1") for number in ("99", "100", "98"))
    for told in (jobs, jobs[::-1]):
        found = job_of(CHAIN, Link(1), LinksSeen(1.0, jobs=told))
        assert found is not None
        assert found.job_id == "100"


@pytest.mark.parametrize(("walltime_s", "near_s"), [(400.0, 100.0), (4000.0, NEAR_S)])
def test_who_ends_near_the_walltime_has_ended_for_it_and_of_a_short_one_a_quarter_is_near(
    walltime_s: float, near_s: float
) -> None:
    def ending(before_s: float) -> LinkEnding:
        link = Link(1, job_id="1", started_s=1000.0, ended_s=1000.0 + walltime_s - before_s, state="COMPLETED")
        return ending_of(link, walltime_s)[0]

    assert (ending(near_s - 1.0), ending(near_s + 1.0)) == (LinkEnding.HANDED_OVER, LinkEnding.DONE)


def test_a_link_that_began_while_the_one_before_ran_left_no_gap_and_one_that_came_later_no_overlap() -> None:
    first, early, late = LinkSpan(1, 0, 10, 100), LinkSpan(2, 50, 80, 200), LinkSpan(3, 110, 260, 300)
    assert (times_of(early, first).gap_s, times_of(early, first).overlap_s) == (0.0, 20.0)
    assert (times_of(late, early).gap_s, times_of(late, early).overlap_s) == (60.0, 0.0)
    assert times_of(early, first).waited_s == 30.0
    held = times_of(LinkSpan(2, 50, 80, 200, runs_s=105), first)  # its job held GPUs while its program waited
    assert (held.gap_s, held.overlap_s) == (5.0, 20.0)
    assert times_of(LinkSpan(2, 90, 80, 200), first).waited_s == 0.0  # whole seconds of two clocks


def test_a_link_follows_the_last_that_ran_and_ended() -> None:
    spans = [LinkSpan(1, 0, 10, 100), LinkSpan(2, 90, 130, 200), LinkSpan(3, 150), LinkSpan(4, 210, 250, 300)]
    assert [each.gap_s for each in all_times(spans)] == [None, 30.0, None, 50.0]
    assert [each.reactive_gap_s for each in all_times(spans)] == [None, 40.0, None, 50.0]


def test_no_gap_is_told_from_a_link_that_still_runs() -> None:
    spans = [LinkSpan(1, 0, 10, 100), LinkSpan(2, 90, 130), LinkSpan(3, 150, 160)]
    assert [each.gap_s for each in all_times(spans)] == [None, 30.0, 60.0]
