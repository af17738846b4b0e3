"""Links that are not written down, because the disk was full: taken over from the chain's jobs and their marks. Pure.

A job says in its comment which submission of which link it is, and the look has only jobs of the chain's own user.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain_state import JobChain, Link, LinkEnding, Phase, Strategy
from perdure.succession.messages import LinksSeen

UNTOLD = "nobody wrote down how"


def with_unwritten(chain: JobChain, seen: LinksSeen) -> JobChain:
    """The chain, with each link that a job or a mark shows and the chain does not know."""
    for job in _submissions(chain, seen):
        number, tries = map(int, job.key.split("."))
        known = chain.link(number)
        if known is not None and (not known.is_live or tries <= known.tries):
            continue
        submitted_s = job.submit_s or seen.looked_s
        is_held = chain.spec.strategy is Strategy.HOLD and job.waits and job.reason.startswith("JobHeldUser")
        found = Link(number, Phase.WAITING, tries, job_id=job.job_id, intended_s=submitted_s, submitted_s=submitted_s,
                     is_held=is_held)  # fmt: skip
        chain = _taken_over(chain, found, seen.now)
    for number, marks in sorted(seen.marks.items()):
        begun = marks.begun
        if begun is not None and begun.job_id and number > _newest(chain):
            found = Link(number, Phase.WAITING, job_id=begun.job_id, intended_s=begun.came_s, submitted_s=begun.came_s)
            chain = _taken_over(chain, found, seen.now)
    return chain


def _submissions(chain: JobChain, seen: LinksSeen) -> list[LinkJob]:
    """The newest submission of each link, by its number."""
    own = {job.key: job for job in seen.jobs or () if job.chain == chain.spec.tag}
    newest: dict[int, LinkJob] = {}
    for key in sorted(own, key=lambda key: tuple(map(int, key.split(".")))):
        newest[int(key.partition(".")[0])] = own[key]
    return [newest[number] for number in sorted(newest)]


def _taken_over(chain: JobChain, found: Link, now: float) -> JobChain:
    """With a link that was found; those between it and the newest one that is known have ended since."""
    for number in range(_newest(chain) + 1, found.number):
        between = Link(number, Phase.ENDED, ending=LinkEnding.HANDED_OVER, why=UNTOLD, is_settled=True)
        chain = chain.with_link(between)
    told = f"link {found.number}, job {found.job_id}, was not written down, and was found"
    return replace(chain.with_link(found), plan_at_s=0.0).noting(now, told)


def _newest(chain: JobChain) -> int:
    return max((link.number for link in chain.links), default=0)
