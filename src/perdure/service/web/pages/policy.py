"""Policy: waiting jobs in the policy's order beside the resource manager's, who makes room, and the switch."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response

from perdure.service.access.auth import Identity
from perdure.service.store.queries import history
from perdure.service.web.api.models import ComparisonItem
from perdure.service.web.api.policy import OrderedJobItem, standing_of, turn
from perdure.service.web.api.whatif import item
from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, arranged, csv_file
from perdure.service.web.pages.policies import policy_title
from perdure.service.web.pages.render import done, page
from perdure.service.web.state import Here, Operator, Viewer, WebState
from perdure.service.whatif.policy_promise import latest_of

router = APIRouter()

MOST_ROWS = 500
COLUMNS: Columns[OrderedJobItem] = (
    ("job_id", lambda row: row.job),
    ("user", lambda row: row.user),
    ("gpus", lambda row: row.gpus),
    ("attained_s", lambda row: row.attained_s),
    ("place", lambda row: row.place),
    ("place_now", lambda row: row.place_seen),
    ("priority", lambda row: row.priority),
    ("wanted_priority", lambda row: row.wanted_priority),
)
SORTED_BY = {
    "place": lambda row: row.place,
    "now": lambda row: row.place_seen,
    "job": lambda row: row.job,
    "user": lambda row: row.user,
    "gpus": lambda row: row.gpus,
    "attained": lambda row: row.attained_s,
}


@router.get("/policy")
def policy_page(request: Request, web: Here, identity: Viewer, asked: Wanted) -> Response:
    """What the policy in force decided last; the waiting jobs as CSV."""
    found = standing_of(web.policy)
    rows = arranged(found.order, SORTED_BY, asked)
    if asked.is_csv:
        return csv_file("policy", COLUMNS, rows)
    compared = _comparison(web, identity, found.name) if found.name else None
    return page(
        request,
        web,
        "policy",
        "Policy",
        compared=compared,
        figures=compared.summary.compared if compared and compared.summary else [],
        spec=history.cluster_spec(web.reader) if web.whatif is not None and found.name else "",
        policy=found,
        promised_name=policy_title(found.term.policy) if found.term else "",
        policy_name=policy_title(found.name) if found.name else "",
        rows=rows[:MOST_ROWS],
        listing=ListingAddress("/policy", asked, {}, tuple(SORTED_BY)),
    )


def _comparison(web: WebState, identity: Identity, policy: str) -> ComparisonItem | None:
    """The latest finished what-if of this site's history that has both Slurm's own way and the policy."""
    if web.whatif is None:
        return None
    latest = latest_of(web.whatif.visible_to(identity), policy)
    return None if latest is None else item(web.whatif, latest)


@router.post("/do/policy")
def switch(request: Request, web: Here, identity: Operator, on: Annotated[bool, Form()]) -> Response:
    """Turn the policy on or off."""
    turn(web, on=on, by=identity.user)
    off = "The policy is off: jobs get their own places back unless the kill switch is on"
    return done(request, "The policy is on" if on else off)
