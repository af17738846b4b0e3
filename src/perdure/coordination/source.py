"""Who says something: the service itself, a person of the site, or somebody else. On the wire it is one text."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class SourceKind(StrEnum):
    """What weight a word has."""

    SERVICE = "perdure"  # the service's own watch, also as perdure.blame
    OPERATOR = "operator"
    OTHER = "other"  # a user, or a program in a job


class Source(Struct, frozen=True):
    """Who says something, and what kind of source that is."""

    kind: SourceKind
    name: str  # of an operator without the word before it, else all of the text

    @classmethod
    def of(cls, text: str) -> Source:
        """Read the text of a record: ``perdure``, ``operator:root``, ``viewer:mira``, or a program's own name.

        >>> Source.of("operator:root").name, Source.of("viewer:operator:root").kind.value
        ('root', 'other')
        """
        if text.startswith(SourceKind.SERVICE):
            return cls(SourceKind.SERVICE, text)
        if text.startswith(f"{SourceKind.OPERATOR}:"):
            return cls(SourceKind.OPERATOR, text.partition(":")[2])
        return cls(SourceKind.OTHER, text)

    @property
    def is_of_the_site(self) -> bool:
        """Whether what it says counts for more than a user's word."""
        return self.kind is not SourceKind.OTHER
