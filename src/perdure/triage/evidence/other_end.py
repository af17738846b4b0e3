"""Pipes and connections that broke because who was at the other end had ended: that end is the cause, and no network.

The reader of a program's output had ended, where the pipe broke while the program printed. The task at the other end of
a transport of MPI had crashed, where MPI tells of a crash in the same run of lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.triage.evidence.frames import raising_line
from perdure.triage.evidence.matching import Hit, RuleBook
from perdure.triage.text.patterns import compiled

_PEER_GONE, _READER_ENDED = "peer-gone", "reader-ended"
_TRANSPORT, _CRASHES = "mpi-transport", ("native-crash-mpi", "crash-report-head")
_CUT = r"(?i)reset by peer|broken pipe|closed|failed"
_PRINTS = (
    r"^\s*(?:print\((?:[^=]|[^e]=|file=(?:sys\.)?std(?:out|err)\b)*$"
    r"|(?:sys\.)?std(?:out|err)(?:\.buffer)?\.(?:write|flush)\("
    r'|File "<(?:string|stdin)>")'
)
"""A line of source code that writes to the standard output or the standard error; code of ``python -c`` is not
quoted, and does its networking in libraries.
"""


def with_ended_readers(hits: Sequence[Hit], rules: RuleBook) -> list[Hit]:
    """The hits; of a ``BrokenPipeError`` that a line which prints has raised, the cause is the reader's end."""
    ended = rules.named(_READER_ENDED)
    return [replace(hit, cause=ended.cause) if ended and _is_of_printing(hit) else hit for hit in hits]


def _is_of_printing(hit: Hit) -> bool:
    return (
        hit.cause.name == _PEER_GONE
        and hit.text.startswith("BrokenPipeError")
        and compiled(_PRINTS).search(raising_line(hit)) is not None
    )


def without_cut_by_crash(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits without lost connections of MPI in whose run MPI tells of a crash: a task that ends resets its own."""
    crashed = {hit.run for hit in hits if hit.cause.name in _CRASHES}
    if not crashed:
        return hits
    return [hit for hit in hits if not (hit.run in crashed and _is_cut(hit))]


def _is_cut(hit: Hit) -> bool:
    return hit.cause.name == _TRANSPORT and compiled(_CUT).search(hit.text.encode()) is not None
