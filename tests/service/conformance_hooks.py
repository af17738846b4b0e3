"""Loaded by schemathesis (SCHEMATHESIS_HOOKS) before it asks."""

from __future__ import annotations

import itertools
from typing import Any

import schemathesis
from schemathesis import Case

_numbers = itertools.count()


@schemathesis.hook
def before_call(context: Any, case: Case[Any], kwargs: Any) -> None:
    """A key that was sent before, with another request, is refused: each request gets a key of its own."""
    if 1 <= len(case.headers.get("Idempotency-Key", "")) <= 200:
        case.headers["Idempotency-Key"] = f"request-{next(_numbers)}"
