"""Query parameters that listings share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path, Query

from perdure.service.store.queries.reader import MAX_LIMIT

Cursor = Annotated[str | None, Query(description="next_cursor of the page before", max_length=300)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Word = Annotated[str, Query(max_length=200)]
JobId = Annotated[str, Path(min_length=1, max_length=256)]
NodeName = Annotated[str, Path(min_length=1, max_length=256)]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="A request that is sent again under it is carried out once"),
]
