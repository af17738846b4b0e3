"""Whether two failures are alike: not of one category alone, but about one service or one file system."""

from __future__ import annotations

from msgspec import Struct

from perdure.triage.text.patterns import capturing
from perdure.triage.verdict import CauseRole, Evidence, Verdict

MAX_OBJECTS, MAX_TEXT = 4, 1000
_HOST = r"([A-Za-z0-9][\w.-]*\w)"
_HOSTS = (
    rf"\b[a-z][a-z0-9+]{{1,12}}://(?:[^/@\s'\"]+@)?{_HOST}"
    rf"|\b(?i:host(?:name)?)(?:=|: ?| )['\"]?{_HOST}"
    rf"|\b(?i:resolve|lookup)(?: host)?:? ['\"]?{_HOST}"
    rf"|\b(?i:server)(?: at|:)? ['\"]{_HOST}['\"]"
    rf"|[\[(]['\"]?{_HOST}['\"]?(?:\]:|, )\d{{2,5}}\b"
    r"|\b((?:\d{1,3}\.){3}\d{1,3})\b"
)
_PATHS = r"(?:^|[\s'\":=(])(/[\w.+@-]+)(/[\w.+@-]+)?"
_OF_MOUNTS = frozenset({"/mnt", "/media", "/net", "/srv", "/run", "/lustre", "/gpfs"})
"""Directories below which file systems are mounted, rather than at them."""


class Likeness(Struct, frozen=True):
    """By what a failure is compared with others."""

    category: str
    rule: str = ""  # that recognised the cause
    objects: tuple[str, ...] = ()  # hosts and file systems that its line names

    def is_like(self, other: Likeness) -> bool:
        """Whether both are about one thing; where one names nothing, whether one rule recognised both."""
        if self.category != other.category:
            return False
        if self.objects and other.objects:
            return not set(self.objects).isdisjoint(other.objects)
        return self.rule == other.rule


def objects_of(text: str) -> tuple[str, ...]:
    """The hosts and the file systems that a line names.

    >>> objects_of("OSError: [Errno 116] Stale file handle: '/proj/x/y'")
    ('/proj',)
    >>> objects_of("HTTPSConnectionPool(host='hub.org', port=443): Max retries exceeded with url: /api/x")
    ('hub.org',)
    """
    data = text[:MAX_TEXT].encode("utf-8", "replace")
    hosts = [next(filter(None, found.groups())).decode().lower() for found in capturing(_HOSTS).finditer(data)]
    if hosts:
        return tuple(dict.fromkeys(hosts))[:MAX_OBJECTS]
    paths = [(found[1].decode(), (found[2] or b"").decode()) for found in capturing(_PATHS).finditer(data)]
    return tuple(dict.fromkeys(top + below if top in _OF_MOUNTS else top for top, below in paths))[:MAX_OBJECTS]


def likeness_of(verdict: Verdict) -> Likeness:
    """The features by which a judged failure is compared with others."""
    line = _of_cause(verdict)
    return Likeness(verdict.category, line.rule, objects_of(line.text)) if line else Likeness(verdict.category)


def _of_cause(verdict: Verdict) -> Evidence | None:
    for role in (CauseRole.ROOT, CauseRole.CASCADE):
        if found := next((line for line in verdict.evidence if line.role is role), None):
            return found
    return None
