"""Chains: jobs that go on where the one before them stopped, with their gaps and overlaps."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from perdure.service.store.queries import chains
from perdure.service.store.queries.chains import SeenChain, SeenLink
from perdure.service.web.api.models import Listing
from perdure.service.web.api.params import Cursor, Limit, Word
from perdure.service.web.state import Here, Viewer

router = APIRouter(tags=["chains"])

UserName = Annotated[str, Path(min_length=1, max_length=256, description="Whose chain it is")]
ChainTag = Annotated[str, Path(min_length=1, max_length=80, description="The chain, as its jobs' comments name it")]


class ChainItem(BaseModel):
    """A chain. Reactively: had each successor been submitted at the end, and waited as long as it did."""

    chain: str
    user: str
    name: str
    state: str
    links: int
    job: str = Field(description="Of its newest link")
    interrupted_s: float
    overlap_s: float
    interrupted_reactively_s: float

    @classmethod
    def of(cls, found: SeenChain) -> ChainItem:
        sums = found.sums
        return cls(
            chain=found.chain, user=found.user, name=found.name, state=found.state.value, links=found.links[-1].number,
            job=found.links[-1].job.job_id, interrupted_s=sums.gap_s, overlap_s=sums.overlap_s,
            interrupted_reactively_s=sums.reactive_gap_s,
        )  # fmt: skip


class LinkItem(BaseModel):
    """One link. Null where something is not known yet; `said_wait_s` is what was forecast when it was submitted."""

    number: int
    job: str
    state: str
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    waited_s: float | None
    gap_s: float | None
    overlap_s: float | None
    reactive_gap_s: float | None
    said_wait_s: list[float] = Field(description="Waits not exceeded once, five and nine times of ten; or none")
    why: str = Field(description="Why it was submitted when it was, by whoever submitted it")

    @classmethod
    def of(cls, link: SeenLink) -> LinkItem:
        times, span = link.times, link.span
        return cls(
            number=link.number, job=link.job.job_id, state=link.job.state.value, submitted_s=span.submit_s,
            started_s=span.start_s or None, ended_s=span.end_s or None, waited_s=times.waited_s, gap_s=times.gap_s,
            overlap_s=times.overlap_s, reactive_gap_s=times.reactive_gap_s, said_wait_s=list(link.said_s), why=link.why,
        )  # fmt: skip


class ChainFull(ChainItem):
    """A chain with its links, the oldest that is known first."""

    all_links: list[LinkItem]


@router.get("/chains")
def list_chains(
    web: Here,
    identity: Viewer,  # noqa: ARG001
    user: Annotated[Word, Query(description="Only chains of this user")] = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[ChainItem]:
    """Chains, the one with the newest link first."""
    page = chains.find_chains(web.reader, user=user, cursor=cursor, limit=limit)
    return Listing(items=[ChainItem.of(each) for each in page.items], next_cursor=page.next_cursor)


@router.get("/chains/{user}/{chain}")
def get_chain(web: Here, identity: Viewer, user: UserName, chain: ChainTag) -> ChainFull:  # noqa: ARG001
    """One chain, link by link."""
    found = chains.chain_of(web.reader, user, chain)
    links = [LinkItem.of(link) for link in found.links]
    return ChainFull(**ChainItem.of(found).model_dump(), all_links=links)
