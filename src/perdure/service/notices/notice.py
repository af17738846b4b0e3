"""A notice: one thing that happened and that somebody may want to hear about. A message: notices sent together.

Names, reasons and users in them are hostile: `of_text` makes each one bounded printable line, and every channel escapes
them once more in its own way.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

MAX_NAME, MAX_DETAIL = 120, 400  # characters
NAMED = 5  # notices that a message names; of the rest it says how many they are


class Severity(StrEnum):
    """How much it matters; listed from the least to the most."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Kind(StrEnum):
    """What happened."""

    JOB_RETRIED = "job_retried"
    JOB_STOPPED = "job_stopped"
    BUDGET_SPENT = "budget_spent"
    PERSON_NEEDED = "person_needed"
    SUSPECT = "suspect"
    NODE_DRAINED = "node_drained"
    NODE_DOWN = "node_down"
    NODE_BACK = "node_back"
    MANAGER_UNREACHABLE = "manager_unreachable"
    MANAGER_BACK = "manager_back"
    DISK_LOW = "disk_low"
    DISK_BACK = "disk_back"
    TEST = "test"

    @property
    def severity(self) -> Severity:
        return _MEANING[self].severity

    @property
    def takes_back(self) -> frozenset[Kind]:
        """The kinds that it says are over; it is sent only about what one of them was sent about."""
        return _TAKES_BACK.get(self, frozenset())


@dataclass(frozen=True, slots=True)
class _Meaning:
    severity: Severity
    one: str
    many: str  # with {n}


_MEANING = {
    Kind.JOB_RETRIED: _Meaning(Severity.INFO, "A failed job is retried", "{n} failed jobs are retried"),
    Kind.JOB_STOPPED: _Meaning(Severity.INFO, "A failed job is not retried", "{n} failed jobs are not retried"),
    Kind.BUDGET_SPENT: _Meaning(
        Severity.WARNING, "A retry limit is reached", "Retry limits are reached: {n} retries refused or delayed"
    ),
    Kind.PERSON_NEEDED: _Meaning(Severity.CRITICAL, "A person must decide", "A person must decide on {n} failures"),
    Kind.SUSPECT: _Meaning(Severity.WARNING, "A new suspect", "{n} new suspects"),
    Kind.NODE_DRAINED: _Meaning(Severity.WARNING, "A node is drained", "{n} nodes are drained"),
    Kind.NODE_DOWN: _Meaning(Severity.WARNING, "A node is down", "{n} nodes are down"),
    Kind.NODE_BACK: _Meaning(Severity.WARNING, "A node is back", "{n} nodes are back"),
    Kind.MANAGER_UNREACHABLE: _Meaning(
        Severity.CRITICAL, "The resource manager does not answer", "The resource manager does not answer ({n} times)"
    ),
    Kind.MANAGER_BACK: _Meaning(
        Severity.CRITICAL, "The resource manager answers again", "The resource manager answers again ({n} times)"
    ),
    Kind.DISK_LOW: _Meaning(Severity.CRITICAL, "The state directory's disk is nearly full", "A disk ran low {n} times"),
    Kind.DISK_BACK: _Meaning(
        Severity.CRITICAL, "The state directory's disk has room again", "A disk had room again {n} times"
    ),
    Kind.TEST: _Meaning(Severity.INFO, "This is a test", "These are {n} tests"),
}
_TAKES_BACK = {
    Kind.NODE_BACK: frozenset({Kind.NODE_DRAINED, Kind.NODE_DOWN}),
    Kind.MANAGER_BACK: frozenset({Kind.MANAGER_UNREACHABLE}),
    Kind.DISK_BACK: frozenset({Kind.DISK_LOW}),
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened. Of one `subject` a kind is told once, until another kind is."""

    kind: Kind
    subject: str
    time_s: float
    name: str  # "job 4711 (train)", "node gpu01"
    user: str = ""
    partition: str = ""
    detail: str = ""
    path: str = "/"  # of the page where it is to be read

    @property
    def severity(self) -> Severity:
        return self.kind.severity


@dataclass(frozen=True, slots=True)
class Message:
    """Notices of one kind for one target. `key` is the same however often it is sent: receivers drop doubles by it."""

    key: str
    cluster: str
    target: str
    kind: Kind
    notices: tuple[Notice, ...]  # the first `NAMED`
    count: int
    first_s: float
    last_s: float
    whose: str = ""  # the user that a target addresses personally; "" for all others

    @property
    def title(self) -> str:
        """What happened, without a name in it."""
        meaning = _MEANING[self.kind]
        return meaning.one if self.count == 1 else meaning.many.format(n=self.count)

    @property
    def unnamed(self) -> int:
        """How many notices it stands for and does not name."""
        return self.count - len(self.notices)

    @property
    def path(self) -> str:
        """Of the page to open."""
        return self.notices[0].path if self.count == 1 else _PAGES.get(self.kind, "/")


_PAGES = {
    Kind.JOB_RETRIED: "/exceptions",
    Kind.JOB_STOPPED: "/exceptions",
    Kind.BUDGET_SPENT: "/exceptions",
    Kind.PERSON_NEEDED: "/exceptions",
    Kind.SUSPECT: "/blame",
    Kind.NODE_DRAINED: "/nodes",
    Kind.NODE_DOWN: "/nodes",
    Kind.NODE_BACK: "/nodes",
}


def first_message(cluster: str, target: str, whose: str, notice: Notice) -> Message:
    """The message that a notice begins."""
    facts = (cluster, target, whose, notice.kind, notice.subject, f"{notice.time_s:.6f}")
    key = hashlib.sha256("\0".join(facts).encode("utf-8", "replace")).hexdigest()[:32]
    return Message(key, cluster, target, notice.kind, (notice,), 1, notice.time_s, notice.time_s, whose)


def of_text(text: str, limit: int) -> str:
    """One bounded line that moves no cursor and reorders nothing.

    >>> of_text("a\\r\\nBcc: x\\u202e", 20)
    'a  Bcc: x'
    """
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)
