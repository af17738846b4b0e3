"""The state machine of a chain: what was seen goes in, what is to be done comes out. Pure.

    step(chain, event) -> chain, effects

Whoever drives it writes the chain down before it carries out an effect. An effect that is lost is wanted again at the
next look: a link is intended once and submitted under one key, and is submitted again only where a look that was made
after the intent does not show that key. There is at most one link beyond the running one. Where the disk was full, a
link may have been submitted that is not written down: it is taken over from what a look shows (`unwritten`).
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain_state import ChainStanding, JobChain, Link, LinkEnding, Phase, Strategy
from perdure.succession.following import SKEW_S, ending_of, followed, job_of, runs_again
from perdure.succession.messages import (
    AskEnd,
    CancelLink,
    Effect,
    EndTold,
    Event,
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
from perdure.succession.protocol import Forecast
from perdure.succession.unwritten import with_unwritten

MOST_FAILURES = 3  # in a row that pass, by `why`'s word
MOST_LOST = 20  # in a row, through faults of the site
STUCK = (
    "BadConstraints", "DependencyNeverSatisfied", "JobHeld", "PartitionDown", "PartitionInactive", "PartitionNodeLimit",
    "PartitionTimeLimit", "QOSMax", "AssocMax", "AssocGrp", "QOSGrp", "InvalidAccount", "InvalidQOS",
)  # fmt: skip
"""Reasons that do not pass with the queue."""
RETRY_S = 60.0  # until a link that was refused is submitted again
WAIT = "wait: "  # begins what is noted of a decision not to submit yet
LOST_S = 45.0  # a job that no look shows for this long is lost

Step = tuple[JobChain, list[Effect]]


def step(chain: JobChain, event: Event) -> Step:
    """What the chain becomes, and what is to be done."""
    match event:
        case LinksSeen():
            return _seen(chain, event)
        case LinkSubmitted():
            return _submitted(chain, event)
        case LinkReleased():
            return _released(chain, event)
        case LinkRefused():
            return _refused(chain, event)
        case EndTold():
            return _end_told(chain, event)
        case LinkJudged():
            return _judged(chain, event)
        case LinkPlanned():
            return _planned(chain, event)
        case StopAsked():
            return _stop_asked(chain, event)


# ---------------------------------------------------------------- looks


def _seen(chain: JobChain, seen: LinksSeen) -> Step:
    chain = with_unwritten(chain, seen)
    for link in chain.links:
        if not link.is_settled:
            chain = _noted(chain, link, followed(chain, link, seen), seen.now)
    chain, effects = _put_back(chain, seen)
    for link in chain.links:
        if link.phase is Phase.ENDED and not link.is_settled:
            chain, more = _settle(chain, link, seen)
            effects += more
    effects += [AskEnd(link.number, link.job_id) for link in chain.live if link.missed_s and not seen.is_stale]
    effects += [*_strays(chain, seen), *_cancel_spares(chain)]
    chain = _without_unsent(chain, seen)
    if chain.standing is not ChainStanding.RUNNING:
        return chain, list(dict.fromkeys(effects))
    chain, more = _go_on(chain, seen)
    return chain, list(dict.fromkeys([*effects, *more]))


def _noted(chain: JobChain, before: Link, after: Link, now: float) -> JobChain:
    chain = chain.with_link(after)
    name = f"link {after.number}, job {after.job_id}"
    by_us = after.is_held and after.reason.startswith("JobHeldUser")
    is_stuck = after.phase is Phase.WAITING and after.reason.startswith(STUCK) and not by_us
    if is_stuck and after.reason != before.reason:
        chain = chain.noting(now, f"{name}, does not start as it is: Slurm says {after.reason}")
    if before.phase is after.phase and before.job_id == after.job_id:
        return chain
    if after.phase is Phase.RUNNING:
        return chain.noting(now, f"{name}, runs")
    if after.phase is Phase.WAITING and before.phase is Phase.RUNNING:
        return chain.noting(now, f"{name}, was put back into the queue")
    if after.phase is Phase.WAITING:
        return chain.noting(now, f"{name}, was found in the queue")
    return chain


def _put_back(chain: JobChain, seen: LinksSeen) -> Step:
    """A link that had ended may be in the queue again: the newest is waited for, an older one is not needed."""
    effects: list[Effect] = []
    newest = max((link.number for link in chain.links), default=0)
    for link in chain.links:
        if link.phase is not Phase.ENDED or not link.job_id or seen.looked_s <= link.ended_s + SKEW_S:
            continue
        job = job_of(chain, link, seen)
        if job is None or not (job.waits or runs_again(link, job)):
            continue
        if link.number == newest and chain.standing is ChainStanding.RUNNING and not link.is_cancelled:
            again = replace(link, phase=Phase.WAITING, ending=LinkEnding.UNKNOWN, why="", judged="", is_settled=False,
                            started_s=0.0, ended_s=0.0, ends_s=0.0, submitted_s=job.submit_s)  # fmt: skip
            chain = chain.with_link(followed(chain, again, seen)).noting(
                seen.now, f"link {link.number}, job {link.job_id}, was put back into the queue"
            )
        else:
            effects.append(CancelLink(link.number, link.job_id))
    return chain, effects


def _strays(chain: JobChain, seen: LinksSeen) -> list[Effect]:
    """Jobs of submissions that were given up, and came after all."""
    keys = {link.key for link in chain.links}
    numbers = {link.number for link in chain.links}
    return [
        CancelLink(int(job.key.partition(".")[0]), job.job_id)
        for job in seen.jobs or ()
        if job.chain == chain.spec.tag and not job.is_over and job.key not in keys
        and int(job.key.partition(".")[0]) in numbers
    ]  # fmt: skip


def _without_unsent(chain: JobChain, seen: LinksSeen) -> JobChain:
    """A link that was to be submitted and is not needed any more is dropped once no look shows it."""
    for link in chain.live:
        if chain.standing is ChainStanding.RUNNING and not link.is_cancelled:
            continue
        is_unsent = not link.job_id and not seen.in_flight and seen.looked_s > link.intended_s + SKEW_S
        if link.phase is Phase.REFUSED or (is_unsent and link.phase is Phase.INTENDED):
            chain = chain.with_link(replace(link, phase=Phase.ENDED, ending=LinkEnding.DROPPED, is_settled=True))
    return chain


def _settle(chain: JobChain, link: Link, seen: LinksSeen) -> Step:
    """Do what the end of a link means for the chain, once that is known."""
    ending, why = (link.ending, link.why) if link.ending else ending_of(link, chain.spec.walltime_s)
    if ending is LinkEnding.UNKNOWN:
        return chain, [AskEnd(link.number, link.job_id)]
    if not link.ending:
        link = replace(link, ending=ending, why=why)
        chain = chain.with_link(link).noting(seen.now, f"link {link.number} has ended: {why}")
    follows = any(each.number > link.number and each.marks.begun and each.marks.begun.ran_s for each in chain.links)
    if ending is LinkEnding.FAILED and not link.judged and not follows:
        return chain, [JudgeLink(link.number)]
    chain = chain.with_link(replace(link, is_settled=True))
    if follows and ending is LinkEnding.FAILED:  # its successor shows whether it would fail too
        return chain, []
    match ending:
        case LinkEnding.DONE:
            return _finish(chain, ChainStanding.DONE, f"the work is done: {why}", seen.now)
        case LinkEnding.CANCELLED if link.started_s:
            return _finish(chain, ChainStanding.STOPPED, f"link {link.number} was cancelled by hand", seen.now)
        case LinkEnding.CANCELLED:
            told = f"link {link.number}, which waited, was cancelled by hand"
            return replace(chain, last=told), []
        case LinkEnding.HANDED_OVER if chain.spec.progress_file and link.marks.ended and link.progress is None:
            told = f"link {link.number}: {chain.spec.progress_file} says nothing, so nobody can tell whether it gets on"
            return chain.noting(seen.now, told), []
        case LinkEnding.HANDED_OVER | LinkEnding.LOST if stuck := _stands_still(chain, link):
            return _finish(chain, ChainStanding.STOPPED, stuck, seen.now)
        case LinkEnding.LOST | LinkEnding.FAILED if told := _too_often(chain):
            return _finish(chain, ChainStanding.STOPPED, told, seen.now)
    return chain, []


def _stands_still(chain: JobChain, link: Link) -> str:
    """Why another link would help nothing: this one came as far as the one before it."""
    before = [each for each in chain.links if each.number < link.number and each.progress is not None]
    if link.ending is not LinkEnding.HANDED_OVER or not before or link.progress is None:
        return ""
    last = before[-1]
    if last.progress != link.progress or last.ending is not LinkEnding.HANDED_OVER:
        return ""
    return f"links {last.number} and {link.number} ended at the same progress, {link.progress!r}: it never checkpoints"


def _too_often(chain: JobChain) -> str:
    """Why no link is tried any more: too many in a row did not get through."""
    failed = lost = 0
    for link in reversed(chain.links):
        if link.ending is LinkEnding.FAILED:
            failed += 1
        elif link.ending is LinkEnding.LOST:
            lost += 1
        elif link.ending in (LinkEnding.HANDED_OVER, LinkEnding.DONE):
            break
    if failed >= MOST_FAILURES:
        return (
            f"{failed} links in a row have failed: {next(each.judged for each in reversed(chain.links) if each.judged)}"
        )
    return f"{lost} links in a row were lost" if lost >= MOST_LOST else ""


# ---------------------------------------------------------------- what comes next


def _go_on(chain: JobChain, seen: LinksSeen) -> Step:
    """Submit what is to be submitted now, or ask the planner whether it is."""
    if seen.is_stale:
        return chain, []
    live = chain.live
    intended = next((link for link in live if link.phase in (Phase.INTENDED, Phase.REFUSED)), None)
    if intended is not None:
        return _again(chain, intended, seen)
    if any(link.phase is Phase.ENDED and not link.is_settled for link in chain.links):
        return chain, []
    current = chain.current
    if not live:
        if standing := _nothing_more(chain, seen):
            return _finish(chain, *standing, seen.now)
        return _intend(chain, seen.now)
    if current is None:
        return _let_go(chain, live[0])
    if sum(link.phase is Phase.RUNNING for link in live) > 1:  # its job waits for the one before it: no third has GPUs
        return chain, []
    following = next((link for link in live if link.number > current.number), None)
    if following is not None:
        if following.is_due:
            return _let_go(chain, following)
        return _planning(chain, current, seen) if following.is_held and not following.is_cancelled else (chain, [])
    if _nothing_more(chain, seen):
        return chain, []
    if chain.spec.strategy in (Strategy.NONE,):
        return _planning(chain, current, seen)
    return _intend(chain, seen.now)


def _let_go(chain: JobChain, link: Link) -> Step:
    """Release a link that we hold; it is wanted again until that is done."""
    if not link.is_held or not link.job_id:
        return chain, []
    return chain.with_link(replace(link, is_due=True)), [ReleaseLink(link.number, link.job_id)]


def _planning(chain: JobChain, current: Link, seen: LinksSeen) -> Step:
    return chain, [PlanLink(current.number)] if seen.now >= chain.plan_at_s else []


def _nothing_more(chain: JobChain, seen: LinksSeen) -> tuple[ChainStanding, str] | None:
    """Why no further link is submitted, and what the chain then is once no link runs."""
    spec = chain.spec
    ran = sum(link.ending not in (LinkEnding.LOST, LinkEnding.FAILED, LinkEnding.DROPPED) for link in chain.links)
    if seen.done_file:
        return ChainStanding.DONE, f"{spec.done_file} is there"
    if spec.most_links is not None and ran >= spec.most_links:
        return ChainStanding.DONE, f"all {spec.most_links} links have run"
    if spec.until_s is not None and seen.now >= spec.until_s:
        return ChainStanding.DONE, "its last day is over"
    return (ChainStanding.STOPPED, chain.last) if chain.last else None


def _intend(chain: JobChain, now: float, said: Forecast | None = None) -> Step:
    number = max((link.number for link in chain.links), default=0) + 1
    return _intended(replace(chain, plan_at_s=0.0), Link(number, intended_s=now, said=said))


def _intended(chain: JobChain, link: Link) -> Step:
    """Write down that a link is about to be submitted, and how; then it is."""
    submission = _submission(chain, link)
    return chain.with_link(replace(link, is_held=submission.hold)), [submission]


def _submission(chain: JobChain, link: Link) -> SubmitLink:
    current = chain.current
    if current is None or current.number >= link.number:
        return SubmitLink(link.number)
    match chain.spec.strategy:
        case Strategy.DEPENDENCY:
            return SubmitLink(link.number, after_job=current.job_id)
        case Strategy.BEGIN:
            return SubmitLink(link.number, begin_s=current.ends_s or current.started_s + chain.spec.walltime_s)
        case Strategy.HOLD:
            return SubmitLink(link.number, hold=True)
    return SubmitLink(link.number)


def _again(chain: JobChain, link: Link, seen: LinksSeen) -> Step:
    """A link that was to be submitted: it is, unless it may have been."""
    if link.is_cancelled:
        return chain, []
    if link.phase is Phase.REFUSED:
        waits = link.retry_at_s > seen.now or chain.current is not None
        if waits:
            return chain, []
        link = replace(link, phase=Phase.INTENDED, tries=link.tries + 1, intended_s=seen.now)
        return _intended(chain, link)
    if seen.in_flight or seen.jobs is None or seen.looked_s <= link.intended_s + SKEW_S:
        return chain, []
    link = replace(link, tries=link.tries + 1, intended_s=seen.now)
    return _intended(chain, link)


# ---------------------------------------------------------------- answers


def _submitted(chain: JobChain, event: LinkSubmitted) -> Step:
    link = chain.link(event.number)
    if link is None or link.job_id:
        return chain, []
    link = replace(link, phase=Phase.WAITING, job_id=event.job_id, submitted_s=event.now)
    said = "submitted, held" if link.is_held else "submitted"
    return chain.with_link(link).noting(event.now, f"link {link.number} was {said} as job {event.job_id}"), []


def _released(chain: JobChain, event: LinkReleased) -> Step:
    link = chain.link(event.number)
    if link is None or not link.is_held:
        return chain, []
    told = f"link {link.number}, job {link.job_id}, was released"
    return chain.with_link(replace(link, is_held=False, is_due=False)).noting(event.now, told), []


def _refused(chain: JobChain, event: LinkRefused) -> Step:
    link = chain.link(event.number)
    if link is None or link.phase is not Phase.INTENDED:
        return chain, []
    refused = replace(link, phase=Phase.REFUSED, why=event.why, retry_at_s=event.now + RETRY_S)
    chain = chain.with_link(refused)
    if not event.limit and chain.current is None:
        return _finish(chain, ChainStanding.STOPPED, f"link {link.number} was refused: {event.why}", event.now)
    waits = "once the running link has ended" if chain.current else "in a minute"
    return chain.noting(event.now, f"link {link.number} was refused ({event.why}): it is submitted {waits}"), []


def _end_told(chain: JobChain, event: EndTold) -> Step:
    link = chain.link(event.number)
    if link is None or link.is_settled:
        return chain, []
    job = event.job
    if job is None:
        return _lost(chain, link, event.now)
    if not job.is_over:
        return chain.with_link(replace(link, missed_s=0.0)), []
    link = _with_end(link, job, event.now)
    if not link.ending:
        ending, why = ending_of(link, chain.spec.walltime_s, job)
        link = replace(link, ending=ending, why=why)
        chain = chain.noting(event.now, f"link {link.number} has ended: {why}") if ending else chain
    return chain.with_link(link), []


def _with_end(link: Link, job: LinkJob, now: float) -> Link:
    started_s = link.started_s or (job.start_s if job.end_s > job.start_s else 0.0)
    return replace(
        link,
        phase=Phase.ENDED,
        state=job.state,
        started_s=started_s,
        ended_s=link.ended_s or job.end_s or now,
        missed_s=0.0,
    )


def _lost(chain: JobChain, link: Link, now: float) -> Step:
    """Neither the controller nor accounting knows the job."""
    if link.phase is Phase.ENDED or (link.marks.is_live and link.started_s):
        told = "nobody knows how" if link.phase is Phase.ENDED else "Slurm does not know it any more"
        ended = replace(
            link, phase=Phase.ENDED, ended_s=link.ended_s or now, ending=LinkEnding.LOST, why=told, missed_s=0.0
        )
        return chain.with_link(ended).noting(now, f"link {link.number} has ended: {told}"), []
    if not link.missed_s or now - link.missed_s < LOST_S:
        return chain, []
    if link.losses + 1 >= MOST_LOST:
        ended = replace(link, phase=Phase.ENDED, ended_s=now, ending=LinkEnding.LOST, why="Slurm lost its jobs")
        told = f"link {link.number} was lost by Slurm {MOST_LOST} times"
        return _finish(chain.with_link(replace(ended, is_settled=True)), ChainStanding.STOPPED, told, now)
    again = Link(link.number, tries=link.tries + 1, losses=link.losses + 1, intended_s=now)
    chain = chain.with_link(again).noting(
        now, f"link {link.number}, job {link.job_id}, was lost by Slurm: it is submitted again"
    )
    return _intended(chain, again)


def _judged(chain: JobChain, event: LinkJudged) -> Step:
    link = chain.link(event.number)
    if link is None or link.is_settled or link.judged:
        return chain, []
    chain = chain.with_link(replace(link, judged=event.says)).noting(event.now, f"link {link.number}: {event.says}")
    if event.is_transient:
        return chain, []
    chain = chain.with_link(replace(link, judged=event.says, is_settled=True))
    return _finish(
        chain, ChainStanding.STOPPED, f"link {link.number} has failed, and the next would too: {event.says}", event.now
    )


def _planned(chain: JobChain, event: LinkPlanned) -> Step:
    decision, current = event.decision, chain.current
    if decision.reason != chain.plan_says:
        if chain.notes and chain.notes[-1].text.startswith(WAIT):  # of many in a row the newest is kept
            chain = replace(chain, notes=chain.notes[:-1])
        chain = chain.noting(event.now, f"{'submit: ' if decision.submit else WAIT}{decision.reason}")
    chain = replace(chain, plan_at_s=decision.again_at, plan_says=decision.reason)
    if not decision.submit or current is None or chain.standing is not ChainStanding.RUNNING:
        return chain, []
    following = next((link for link in chain.live if link.number > current.number), None)
    if following is None:
        return _intend(chain, event.now, event.said)
    return _let_go(chain, following)


def _stop_asked(chain: JobChain, event: StopAsked) -> Step:
    if chain.standing is not ChainStanding.RUNNING:
        return chain, []
    if not event.at_once and chain.current is not None:
        told = "its user has stopped it"
        chain = replace(chain, last=told).noting(event.now, "its user stops it: no link follows the running one")
        waiting = [link for link in chain.live if link.number > chain.current.number] if chain.current else []
        return _cancelled(chain, waiting)
    chain = replace(chain, standing=ChainStanding.STOPPED, why="its user has stopped it").noting(
        event.now, "its user stops it at once"
    )
    return _cancelled(chain, list(chain.live))


# ---------------------------------------------------------------- the end


def _finish(chain: JobChain, standing: ChainStanding, why: str, now: float) -> Step:
    """The chain is over, by the first reason that is seen; what still waits is cancelled, and what runs alongside
    too.
    """
    if chain.standing is ChainStanding.RUNNING:
        chain = replace(chain, standing=standing, why=why).noting(now, f"the chain is {standing}: {why}")
    return _cancelled(chain, list(chain.live))


def _cancelled(chain: JobChain, links: list[Link]) -> Step:
    for link in links:
        chain = chain.with_link(replace(link, is_cancelled=True))
    return chain, [CancelLink(link.number, link.job_id) for link in links if link.job_id]


def _cancel_spares(chain: JobChain) -> list[Effect]:
    """What still lives of a chain that is over, or was given up: a cancellation that was lost is wanted again."""
    is_over = chain.standing is not ChainStanding.RUNNING
    return [
        CancelLink(link.number, link.job_id) for link in chain.live if link.job_id and (is_over or link.is_cancelled)
    ]
