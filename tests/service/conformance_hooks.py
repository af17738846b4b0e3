"""Loaded by schemathesis (SCHEMATHESIS_HOOKS) before it asks."""

from __future__ import annotations

import itertools

import schemathesis

_numbers = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    """A key that was sent before, with another request, is refused: each request gets a key of its own."""
    if 1 <= len(case.headers.get("Idempotency-Key", "")) <= 200:
        case.headers["Idempotency-Key"] = f"request-{next(_numbers)}"
