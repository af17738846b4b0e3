"""Looks against marks while clocks differ: a link is what its newest evidence says, by whatever clock that was noted.

A job starts, ends and is put back a few times. The clock of its node is wrong by up to `SKEW_S`, its marks are seen
late, the manager learns late of ends, and a look may be an old one. Two changes are further apart than two such errors.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.job.link_marks import HandoverAsked, LinkBegun, LinkEnded, LinkMarks
from perdure.model.exits import RETRY_ME
from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain import step
from perdure.succession.chain_state import ChainSpec, JobChain, Link, LinkEnding, Phase
from perdure.succession.following import SKEW_S, ending_of
from perdure.succession.messages import AskEnd, EndTold, LinksSeen, LinkSubmitted

WALLTIME_S = 1000.0
SPEC = ChainSpec("c-1", "c-1.ab", "c", "/c.sh", "/", "a", 0.0, WALLTIME_S)
APART_S = 2 * SKEW_S + 2.0


@dataclass(frozen=True)
class OneRun:
    """Of a job, by the controller's clock."""

    start_s: float
    shown_s: float  # when its first mark can be read
    end_s: float
    back_s: float  # when the manager has seen the end, and has put the job back
    skew_s: float  # of the node's clock
    is_killed: bool  # before it left its last mark

    def marks(self, now: float) -> LinkMarks:
        begun = LinkBegun("1", self.start_s + self.skew_s, self.start_s + self.skew_s)
        has_ended = self.end_s <= now and not self.is_killed
        ended = LinkEnded("1", self.end_s + self.skew_s, 143, ("TERM",)) if has_ended else None
        return LinkMarks(begun=begun, ended=ended)


def some_runs(rng: random.Random, start_s: float) -> list[OneRun]:
    runs, now = [], start_s
    for _ in range(rng.randint(1, 3)):
        start_s = now + APART_S + rng.choice((0.0, 40.0))
        is_short = rng.random() < 0.3
        end_s = start_s + (3.0 if is_short else APART_S + rng.choice((0.0, 90.0)))
        is_killed = not is_short and rng.random() < 0.4
        now = end_s + (0.0 if is_killed else APART_S)
        skew_s = rng.choice((-0.98, 0.0, 0.98)) * SKEW_S
        runs.append(
            OneRun(start_s, start_s + (0.0 if is_short else rng.choice((0.0, 4.0))), end_s, now, skew_s, is_killed)
        )
    return runs


def looked_at(runs: list[OneRun], at_s: float) -> LinkJob:
    started = [run for run in runs if run.start_s <= at_s]
    if not started or started[-1].back_s <= at_s:
        return LinkJob("1", "PENDING", submit_s=1000.0, chain=SPEC.tag, key="1.1")
    start_s = started[-1].start_s
    return LinkJob("1", "RUNNING", "", 1000.0, start_s, start_s + WALLTIME_S, SPEC.tag, "1.1")


def newest_says(runs: list[OneRun], now: float, looked_s: float) -> tuple[Phase, OneRun | None]:
    """What a link is by the newest of a look and of the marks, and in which of its runs."""
    seen = [run for run in runs if run.start_s <= looked_s or run.shown_s <= now]
    if not seen or seen[-1].back_s <= looked_s:
        return Phase.WAITING, None
    run = seen[-1]
    has_ended = run.shown_s <= now and run.end_s <= now and not run.is_killed
    return (Phase.ENDED if has_ended else Phase.RUNNING), run


@given(seed=st.integers(0, 10**9))
@settings(max_examples=400, deadline=None)
def test_a_link_is_what_the_newest_of_looks_and_marks_says(seed: int) -> None:
    rng = random.Random(seed)
    chain, _ = step(JobChain(SPEC), LinksSeen(1000.0))
    chain, _ = step(chain, LinkSubmitted(1000.0, 1, "1"))
    runs = some_runs(rng, 1000.0)
    changes = sorted({at for run in runs for at in (run.start_s, run.shown_s, run.end_s, run.back_s)})
    looked_s = 1000.0
    for now in sorted(at + after for at in changes for after in (0.5, 3.0, 9.0) if rng.random() < 0.7):
        looked_s = now if rng.random() < 0.6 else looked_s
        shown = [run for run in runs if run.shown_s <= now]
        marks = {1: shown[-1].marks(now)} if shown else {}
        had_ended = chain.links[0].phase is Phase.ENDED
        chain, _ = step(chain, LinksSeen(now, marks, (looked_at(runs, looked_s),), looked_s))
        phase, run = newest_says(runs, now, looked_s)
        link = chain.links[0]
        if had_ended and run is not None and run.start_s > looked_s:
            phase, run = Phase.ENDED, None  # only a look brings one back that had ended
        assert (link.number, link.phase) == (1, phase), (now, looked_s, runs)
        told = [note for note in chain.notes if "was put back" in note.text]
        assert len(told) <= sum(each.back_s <= now for each in runs), (now, looked_s, runs)
        if run is not None:
            assert phase is Phase.ENDED or run.start_s > looked_s or link.started_s == run.start_s
            assert link.ended_s == (run.end_s + run.skew_s if phase is Phase.ENDED else 0.0)
        elif phase is Phase.WAITING:
            assert (link.started_s, link.ended_s, link.marks) == (0.0, 0.0, LinkMarks())


def chain_after(looked_s: float, jobs: tuple[LinkJob, ...], link: Link, marks: LinkMarks | None = None) -> JobChain:
    seen = LinksSeen(looked_s, {} if marks is None else {1: marks}, jobs, looked_s)
    return step(JobChain(SPEC, (link,)), seen)[0]


def link_after(looked_s: float, jobs: tuple[LinkJob, ...], link: Link, marks: LinkMarks | None = None) -> Link:
    return chain_after(looked_s, jobs, link, marks).links[0]


def test_a_job_is_missed_since_the_first_look_that_was_surely_made_after_its_submission() -> None:
    waiting = Link(1, Phase.WAITING, job_id="1", submitted_s=1000.0)
    assert link_after(1000.0 + SKEW_S - 1.0, (), waiting).missed_s == 0.0
    missed = link_after(1010.0, (), waiting)
    assert (missed.missed_s, link_after(1020.0, (), missed).missed_s) == (1010.0, 1010.0)
    chain, effects = step(JobChain(SPEC, (waiting,)), LinksSeen(1010.0, jobs=(), looked_s=1010.0))
    assert effects == [AskEnd(1, "1")]
    assert step(chain, EndTold(1010.0, 1, LinkJob("1", "PENDING")))[0].links[0].missed_s == 0.0


def test_a_job_that_says_that_it_runs_is_not_missed() -> None:
    live = LinkMarks(begun=LinkBegun("1", 1005.0))
    link = link_after(1010.0, (), Link(1, Phase.WAITING, job_id="1", submitted_s=1000.0), live)
    assert (link.phase, link.missed_s) == (Phase.RUNNING, 0.0)


def test_a_job_that_was_cancelled_while_it_waited_never_began() -> None:
    """Slurm gives it a start all the same: that of its end."""
    waiting = Link(1, Phase.WAITING, job_id="1", submitted_s=1000.0)
    for start_s, began_s in ((1020.0, 0.0), (1015.0, 1015.0)):
        job = LinkJob("1", "CANCELLED", "", 1000.0, start_s, 1020.0, SPEC.tag, "1.1")
        link = link_after(1030.0, (job,), waiting)
        assert (link.phase, link.started_s, link.ended_s) == (Phase.ENDED, began_s, 1020.0)


def test_a_job_whose_first_start_nobody_saw_does_not_run_again() -> None:
    ended = Link(1, Phase.ENDED, job_id="1", submitted_s=1000.0, ended_s=1020.0)
    job = LinkJob("1", "RUNNING", "", 1000.0, 1020.0 - SKEW_S / 2, 2000.0, SPEC.tag, "1.1")
    assert link_after(1030.0, (job,), ended).phase is Phase.ENDED


def test_a_start_long_before_the_end_is_no_new_one() -> None:
    """No look came between a start and the next: that the first is over was not seen, and the second's mark told."""
    ended = Link(1, Phase.ENDED, job_id="1", submitted_s=1000.0, started_s=1001.0, ended_s=1200.0)
    job = LinkJob("1", "RUNNING", "", 1000.0, 1100.0, 2100.0, SPEC.tag, "1.1")
    assert not [note for note in chain_after(1230.0, (job,), ended).notes if "was put back" in note.text]


def test_who_was_asked_before_it_began_and_left_no_mark_has_not_handed_over() -> None:
    failed = Link(1, Phase.ENDED, job_id="1", started_s=1100.0, ended_s=1200.0, state="FAILED")
    for asked_s, ending in ((1099.0, LinkEnding.UNKNOWN), (1100.0, LinkEnding.HANDED_OVER)):
        asked = LinkMarks(asked=HandoverAsked("2", asked_s, asked_s + 60.0))
        assert ending_of(replace(failed, marks=asked), WALLTIME_S)[0] is ending


def test_of_exit_codes_that_slurm_tells_one_alone_asks_for_another_link() -> None:
    failed = Link(1, Phase.ENDED, job_id="1", started_s=1100.0, ended_s=1200.0, state="FAILED")
    told = {code: ending_of(failed, WALLTIME_S, LinkJob("1", "FAILED", exit_code=code))[0] for code in range(256)}
    assert [code for code, ending in told.items() if ending is not LinkEnding.FAILED] == [RETRY_ME]
    assert told[RETRY_ME] is LinkEnding.HANDED_OVER
