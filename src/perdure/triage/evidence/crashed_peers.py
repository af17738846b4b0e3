"""A transport that MPI lost because the task at its other end had crashed: the crash is the cause."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.triage.evidence.matching import Hit
from perdure.triage.text.patterns import compiled

_TRANSPORT, _CRASH = "mpi-transport", "native-crash-mpi"
_CUT = r"(?i)reset by peer|broken pipe|closed|failed"


def without_cut_by_crash(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits without lost connections of MPI in whose run MPI reports a crash: a task that ends resets its own."""
    crashed = {hit.run for hit in hits if hit.cause.name == _CRASH}
    if not crashed:
        return hits
    return [hit for hit in hits if not (hit.run in crashed and _is_cut(hit))]


def _is_cut(hit: Hit) -> bool:
    return hit.cause.name == _TRANSPORT and compiled(_CUT).search(hit.text.encode()) is not None
