"""Chains: jobs that outlive their walltime, link by link, and one of them on a time line."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from perdure.service.store.queries import chains
from perdure.service.store.queries.chains import SeenChain
from perdure.service.store.queries.reader import MAX_LIMIT, Page
from perdure.service.web.api.chains import ChainTag, UserName
from perdure.service.web.pages.chain_timeline import chain_timeline
from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, csv_file, every
from perdure.service.web.pages.render import page
from perdure.service.web.pages.start_words import starts_in_words
from perdure.service.web.state import Here, Viewer, WebState
from perdure.waits.forecast import WaitForecast

router = APIRouter()

ROWS = 50
COLUMNS: Columns[SeenChain] = (
    ("chain", lambda row: row.chain),
    ("user", lambda row: row.user),
    ("name", lambda row: row.name),
    ("state", lambda row: row.state.value),
    ("links", lambda row: row.links[-1].number),
    ("job", lambda row: row.links[-1].job.job_id),
    ("interrupted_s", lambda row: row.sums.gap_s),
    ("overlap_s", lambda row: row.sums.overlap_s),
    ("interrupted_reactively_s", lambda row: row.sums.reactive_gap_s),
)


@router.get("/chains")
def chains_page(request: Request, web: Here, identity: Viewer, asked: Wanted) -> Response:  # noqa: ARG001
    """Chains, the one with the newest link first, as a page or as CSV."""

    def read(cursor: str | None, limit: int = MAX_LIMIT) -> Page[SeenChain]:
        return chains.find_chains(web.reader, user=asked.user, cursor=cursor, limit=limit)

    if asked.is_csv:
        return csv_file("chains", COLUMNS, every(read))
    found = read(asked.cursor, ROWS)
    listing = ListingAddress("/chains", asked, {}, ())
    return page(request, web, "chains", "Chains", rows=found.items, listing=listing, more=listing.onward(found))


@router.get("/chains/{user}/{chain}")
def chain_page(request: Request, web: Here, identity: Viewer, user: UserName, chain: ChainTag) -> Response:  # noqa: ARG001
    """One chain on a time line, with what was decided when and why."""
    found = chains.chain_of(web.reader, user, chain)
    told = forecast_of(web, found)
    return page(
        request,
        web,
        "chain",
        found.name or found.chain,
        chain=found,
        sums=found.sums,
        timeline=chain_timeline(found, web.now(), told),
        starts=starts_in_words(told, told.asked_s) if told is not None else "",
    )


def forecast_of(web: WebState, chain: SeenChain) -> WaitForecast | None:
    """When the newest link starts, where it waits and that is forecast."""
    newest, told = chain.links[-1].job, web.waits.latest if web.waits else None
    answer = told.of(newest.job_id) if told and newest.state.is_waiting else None
    return answer.forecast if answer is not None else None
