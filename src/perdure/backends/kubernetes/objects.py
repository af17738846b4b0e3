"""Reading objects of Kubernetes as JSON: what is missing or of another type is None, "" or empty, never an error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Document = Mapping[str, Any]
MAX_TEXT = 1024
MAX_INSTANT_S = 2.0**37  # in a year of four digits


def at(value: Any, *path: str) -> Any:
    """What stands at a path of keys; None where it ends early."""
    for key in path:
        if not isinstance(value, dict):  # as JSON is decoded: asking for any Mapping takes ten times as long
            return None
        value = value.get(key)
    return value


def fields(value: Any, *path: str) -> Document:
    """The object at a path."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def items(value: Any, *path: str) -> list[Document]:
    """The objects of the list at a path."""
    found = at(value, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts(value: Any, *path: str) -> list[str]:
    """The list at a path, each entry as text."""
    found = at(value, *path)
    return [str(each) for each in found] if isinstance(found, list) else []


def text(value: Any, *path: str) -> str:
    """The text at a path, on one line and at most `MAX_TEXT` characters long."""
    found = at(value, *path)
    return " ".join(found[:MAX_TEXT].split()) if isinstance(found, str) else ""


def whole(value: Any, *path: str) -> int | None:
    """The whole number at a path."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def instant(value: Any, *path: str) -> float | None:
    """The time at a path (RFC 3339) in seconds since the epoch."""
    found = at(value, *path)
    if not isinstance(found, str):
        return None
    try:
        return datetime.fromisoformat(found).timestamp()
    except ValueError:
        return None


def seconds_of(told: str) -> float | None:
    """An instant that Perdure wrote as a number into an annotation, which its owner may have written over."""
    try:
        found = float(told)
    except ValueError:
        return None
    return found if 0.0 <= found <= MAX_INSTANT_S else None


def stamp(seconds: float) -> str:
    """A time as Kubernetes writes it, to the microsecond.

    >>> stamp(0.5)
    '1970-01-01T00:00:00.500000Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def condition(document: Any, kind: str) -> Document | None:
    """The condition of a type, where it is true."""
    found = (c for c in items(document, "status", "conditions") if c.get("type") == kind and c.get("status") == "True")
    return next(found, None)


def name_of(document: Document) -> str:
    return text(document, "metadata", "name")


def namespace_of(document: Document) -> str:
    return text(document, "metadata", "namespace")


def uid_of(document: Document) -> str:
    return text(document, "metadata", "uid")


def version_of(document: Document) -> str:
    """Its resource version; "" where there is none."""
    return text(document, "metadata", "resourceVersion")


def label(document: Document, key: str) -> str:
    return text(document, "metadata", "labels", key)


def annotation(document: Document, key: str) -> str:
    """An annotation whole: it may be longer than a line."""
    found = at(document, "metadata", "annotations", key)
    return found if isinstance(found, str) else ""


def controller_of(document: Document) -> Document:
    """The owner that manages an object; empty where nobody does."""
    owners = items(document, "metadata", "ownerReferences")
    return next((owner for owner in owners if owner.get("controller") is True), {})
