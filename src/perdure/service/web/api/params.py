"""Query parameters that listings share."""

from __future__ import annotations

from typing import Annotated

import re2
from fastapi import Header, Path, Query, Request
from pydantic import AfterValidator, Field

from perdure.errors import InputError
from perdure.service.store.queries.reader import CURSOR_DIGITS, MAX_LIMIT
from perdure.service.web.idempotency import MAX_KEY

_COMPONENT = re2.compile(r"(\d+)\+\d+")


def _whole(job_id: str) -> str:
    """A job's id where it names a component of a heterogeneous job as Slurm's tools do: 46 of 46+1."""
    found = _COMPONENT.fullmatch(job_id)
    return str(found[1]) if found else job_id


# What `json_schema_extra` says is checked where it is used, and refused there in words of our own.
_Place = Annotated[str, Field(json_schema_extra={"pattern": f"^[0-9]{{0,{CURSOR_DIGITS}}}$"})]
_Key = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_KEY})]
Cursor = Annotated[_Place | None, Query(description="next_cursor of the page before")]
LastName = Annotated[str | None, Query(description="next_cursor of the page before", max_length=300)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of rows")]
Word = Annotated[str, Query(max_length=200)]
OfJob = Annotated[Word, Query(description="Only what is about this job")]
JobId = Annotated[
    str, Path(min_length=1, max_length=256, description="Id of the job, such as 4711 or 4711_3"), AfterValidator(_whole)
]
NodeName = Annotated[str, Path(min_length=1, max_length=256, description="Name of the node")]
IdempotencyKey = Annotated[
    _Key | None,
    Header(alias="Idempotency-Key", description="A request that is sent again under it is carried out once"),
]


def check_query(request: Request) -> None:
    """Refuse a query parameter that the address does not take: a misspelt filter would show all there is."""
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    if unknown := next((name for name in request.query_params if name not in known), None):
        fix = f"Use {', '.join(known)}" if known else "Leave it out"
        raise InputError(f"query.{unknown[:80]}", "is not a parameter of this address", fix)
