"""A pipe that broke while its program printed: the reader of its output had ended, and no network is between."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.triage.evidence.frames import raising_line
from perdure.triage.evidence.matching import Hit, RuleBook
from perdure.triage.text.patterns import compiled

_PEER_GONE, _READER_ENDED = "peer-gone", "reader-ended"
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
