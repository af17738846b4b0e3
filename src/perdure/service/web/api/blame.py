"""Suspects: which nodes, users' code or shared parts the latest failures have in common."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from perdure.service.blame.announce import in_words, suspect_to_exception
from perdure.service.store.queries import suspects
from perdure.service.store.queries.suspects import SuspectRow
from perdure.service.web.api.models import Item
from perdure.service.web.state import Here, Viewer

router = APIRouter(tags=["blame"])


class ComponentItem(BaseModel):
    """A component: what kind of thing, and which."""

    tier: str
    name: str


class SuspectItem(Item):
    """A component to blame. `equivalent` are those that no attempt tells from it; `cleared_s` is null while it is a
    suspect.

    Of `units` + `passed` attempts on it `units` failed, of this many `users`; `rate` of them by its fault.
    """

    component: str
    tier: str
    equivalent: list[ComponentItem]
    kind: str
    rate: float
    rate_low: float
    rate_high: float
    units: int
    passed: int
    users: int
    strength: float
    since_s: float
    last_s: float
    cleared_s: float | None
    said: str
    exception_id: str

    @classmethod
    def of(cls, row: SuspectRow, cluster: str) -> SuspectItem:
        standing, said = row.standing, row.standing.accusation
        return cls.of_parts(
            said,
            standing,
            row,
            component=said.name,
            equivalent=[ComponentItem(tier=tier, name=name) for tier, name in said.components[1:]],
            units=said.failed,
            said=in_words(standing),
            exception_id=suspect_to_exception(standing, cluster).id,
        )


class SuspectsItem(BaseModel):
    """The suspects of now, and those cleared recently."""

    suspects: list[SuspectItem]
    cleared: list[SuspectItem]


@router.get("/suspects")
def list_suspects(web: Here, identity: Viewer) -> SuspectsItem:  # noqa: ARG001
    """The suspects of now, and those cleared recently, the latest first."""
    cluster = web.reader.cluster
    return SuspectsItem(
        suspects=[SuspectItem.of(row, cluster) for row in suspects.standing(web.reader)],
        cleared=[SuspectItem.of(row, cluster) for row in suspects.cleared(web.reader)],
    )
