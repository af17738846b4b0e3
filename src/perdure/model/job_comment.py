"""What Perdure writes into a job's comment, so that it is known from what others write there.

The comment of a chain's job: ``perdure-keep=CHAIN/NUMBER.TRIES (WAITS) because WHY``. The key is how a submission that
was not noted down is found again. The rest tells others what was known and decided when it was submitted: three waits
of the forecast, in seconds, and the planner's reason. It is the job's owner's word.

The line of a decision: ``perdure: WHAT FAILED: WHAT WAS DONE. perdure why JOB #MARK``, with the mark of the service.
"""

from __future__ import annotations

import re2
from msgspec import Struct

MARK = "perdure-keep="
MOST_WHY = 160  # characters of a reason
LEVELS = (0.1, 0.5, 0.9)  # of the forecast that is told
_LINK = re2.compile(
    r"perdure-keep=([A-Za-z0-9_.+-]{1,80})/(\d{1,6})\.(\d{1,6})\b"
    r"(?: \((\d{1,9})-(\d{1,9})-(\d{1,9}) s\))?(?: because ([^\r\n]{1,160}))?"
)
_UNSAFE = re2.compile(r"[^ -~]|[\"'\\|`$]")  # would end a field, or be read by a shell
COMMENT_PREFIX = "perdure: "
_OURS = re2.compile(r'(?s)"?perdure: .{0,1000}\. perdure why \S{1,64} #([0-9a-f]{6})"?')


class ChainLink(Struct, frozen=True):
    """Which link of which chain a job is."""

    chain: str
    number: int
    tries: int = 1
    said_s: tuple[float, ...] = ()  # waits that were forecast, at `LEVELS`
    why: str = ""  # it was submitted when it was

    @property
    def key(self) -> str:
        return f"{self.number}.{self.tries}"

    def in_words(self) -> str:
        """As it is in a comment.

        >>> chain_link_of(ChainLink("train-1", 2, said_s=(1.0, 2.0, 3.0), why="it pays").in_words()).why
        'it pays'
        """
        said = "-".join(f"{min(max(each, 0.0), 999_999_999.0):.0f}" for each in self.said_s)
        why = _UNSAFE.sub(" ", self.why)[:MOST_WHY].strip()
        return f"perdure-keep={self.chain}/{self.key}{f' ({said} s)' if said else ''}{f' because {why}' if why else ''}"


def chain_link_of(comment: str) -> ChainLink | None:
    """Read a job's comment; None where it is no chain's.

    >>> chain_link_of("mine perdure-keep=train-1/2.1").key
    '2.1'
    """
    if MARK not in comment or (found := _LINK.search(comment)) is None:
        return None
    said_s = tuple(float(found[place]) for place in (4, 5, 6)) if found[4] else ()
    return ChainLink(found[1], int(found[2]), int(found[3]), said_s, found[7] or "")


def mark_of(text: str) -> str:
    """The mark of the service that wrote a line; "" for a line of others. Slurm may keep a command's quotes.

    >>> mark_of("perdure: a wrong shape: it would fail again. perdure why 7 #0a1b2c"), mark_of("perdure: retry=never")
    ('0a1b2c', '')
    """
    found = _OURS.fullmatch(text.strip())
    return str(found[1]) if found else ""
