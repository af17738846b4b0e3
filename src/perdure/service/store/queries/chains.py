"""Chains of jobs that outlive their walltime, by what their jobs say that they are links of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from sqlalchemy import func, select, tuple_

from perdure.errors import NotFound
from perdure.model.clean_text import clean
from perdure.model.jobs import Attempt, Job, JobState
from perdure.service.store import codec
from perdure.service.store.queries.reader import Page, Reader, as_text, paged, position
from perdure.service.store.queries.story import of_this_job
from perdure.service.store.schema import attempts, jobs
from perdure.succession.spans import ChainSums, LinkSpan, LinkTimes, all_times, sums_of

MAX_LINKS = 200  # read for each chain, the latest


@dataclass(frozen=True, slots=True)
class SeenLink:
    """One link: its job, and how that followed the link before it."""

    number: int
    job: Job
    span: LinkSpan
    times: LinkTimes = field(default_factory=LinkTimes)

    @property
    def said_s(self) -> tuple[float, ...]:
        """Waits that were forecast when it was submitted, at `perdure.model.job_comment.LEVELS`."""
        return self.job.link.said_s if self.job.link is not None else ()

    @property
    def why(self) -> str:
        """Why it was submitted when it was."""
        return self.job.link.why if self.job.link is not None else ""


@dataclass(frozen=True, slots=True)
class SeenChain:
    """A chain as the cluster shows it, its links in order. A chain is one user's, whatever others' jobs say."""

    chain: str
    user: str
    links: tuple[SeenLink, ...]

    @property
    def name(self) -> str:
        return self.links[-1].job.name

    @property
    def state(self) -> JobState:
        """Of its running link, else of its newest."""
        running = [link.job.state for link in self.links if link.job.state is JobState.RUNNING]
        return running[0] if running else self.links[-1].job.state

    @property
    def sums(self) -> ChainSums:
        return sums_of([link.times for link in self.links])


def find_chains(reader: Reader, *, user: str = "", cursor: str | None = None, limit: int = 50) -> Page[SeenChain]:
    """Chains, the one with the newest link first."""
    j = jobs.c
    newest = func.max(j.seq)
    query = select(j.chain, j.user, newest.label("seq")).where(reader.owns(jobs), j.chain != "")
    if user:
        query = query.where(j.user == clean(user))
    query = query.group_by(j.chain, j.user).having(newest < position(cursor))
    rows = reader.all(query.order_by(newest.desc()).limit(limit + 1))
    found = _chains(reader, [(row.chain, row.user) for row in rows[:limit]])
    return paged(rows, found, limit)


def chain_of(reader: Reader, user: str, chain: str) -> SeenChain:
    """One user's chain. Raises `NotFound`."""
    found = _chains(reader, [(clean(chain), clean(user))])
    if not found:
        where = f"chain {chain[:80]!r} of {user[:80]!r}"
        raise NotFound(where, "no such chain is known", "See those there are: /chains")
    return found[0]


def _chains(reader: Reader, wanted: Sequence[tuple[str, str]]) -> list[SeenChain]:
    """Chains and users, with their links; others' jobs that say the same leave them room."""
    j = jobs.c
    place = func.row_number().over(partition_by=(j.chain, j.user), order_by=j.seq.desc()).label("place")
    every = (
        select(j.seq, place).where(j.cluster == reader.cluster, tuple_(j.chain, j.user).in_(list(wanted))).subquery()
    )
    latest = select(every.c.seq).where(every.c.place <= MAX_LINKS)  # of each: a long chain leaves the others room
    known: dict[tuple[str, str], list[Job]] = {each: [] for each in wanted}
    query = select(j.chain, j.user, as_text(j.payload).label("payload"))
    for row in reader.all(query.where(j.cluster == reader.cluster, j.seq.in_(latest)).order_by(j.seq.desc())):
        known[row.chain, row.user].append(codec.JOB.decode(row.payload))
    runs = _runs(reader, [job.job_id for some in known.values() for job in some])
    return [_chain(chain, user, some, runs) for (chain, user), some in known.items() if some]


def _chain(chain: str, user: str, known: Sequence[Job], runs: Mapping[str, Sequence[Attempt]]) -> SeenChain:
    """Of several tries of a link the one that ran counts, else the newest."""
    links = [_link(job, runs.get(job.job_id, ())) for job in known]
    links.sort(key=lambda link: (link.number, link.span.start_s > 0, link.job.submit_s))
    kept = [list(same)[-1] for _, same in groupby(links, key=lambda link: link.number)]
    times = all_times([link.span for link in kept])
    told = [SeenLink(link.number, link.job, link.span, each) for link, each in zip(kept, times, strict=True)]
    return SeenChain(chain, user, tuple(told))


def _link(job: Job, runs: Sequence[Attempt]) -> SeenLink:
    """A job that was put back has several runs: the first begins the link, and the last ends it."""
    number = job.link.number if job.link is not None else 0
    start_s = min((run.start_s for run in runs), default=0.0)
    ends = [run.end_s for run in runs]
    end_s = 0.0 if None in ends or not job.state.is_over else max((end for end in ends if end is not None), default=0.0)
    return SeenLink(number, job, LinkSpan(number, job.submit_s, start_s, end_s))


def _runs(reader: Reader, job_ids: list[str]) -> dict[str, list[Attempt]]:
    a = attempts.c
    query = select(a.job_id, as_text(a.payload).label("payload"))
    query = query.where(a.cluster == reader.cluster, a.job_id.in_(job_ids), of_this_job(attempts))
    found: dict[str, list[Attempt]] = {}
    for row in reader.all(query):
        found.setdefault(row.job_id, []).append(codec.ATTEMPT.decode(row.payload))
    return found
