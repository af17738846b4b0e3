"""Objects with versions, as etcd and the API server's storage keep them: one count for all writes, a log of events."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Document = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name


class ApiProblem(Exception):
    """An answer that is no success, as a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    def status(self) -> Document:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One write: what the object was before, and is after."""

    version: int
    plural: str
    before: Document | None
    after: Document | None


@dataclass
class ObjectStore:
    """All objects. `validate` is called with each that is to be written."""

    validate: Callable[[Document], None] = lambda document: None
    version: int = 1000
    objects: dict[Key, Document] = field(default_factory=dict)
    events: list[StoredEvent] = field(default_factory=list)
    compacted: int = 0  # events up to this version are forgotten
    lock: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))

    def get(self, plural: str, namespace: str, name: str) -> Document:
        with self.lock:
            found = self.objects.get((plural, namespace, name))
            if found is None:
                raise ApiProblem(404, "NotFound", f'{plural} "{name}" not found')
            return copy.deepcopy(found)

    def all_of(self, plural: str, namespace: str = "") -> list[Document]:
        with self.lock:
            return [
                copy.deepcopy(document)
                for (kind, space, _), document in sorted(self.objects.items())
                if kind == plural and namespace in ("", space)
            ]

    def create(self, plural: str, document: Document, *, dry: bool = False) -> Document:
        with self.lock:
            made = copy.deepcopy(document)
            metadata = made.setdefault("metadata", {})
            key = (plural, metadata.get("namespace", ""), metadata["name"])
            if key in self.objects:
                raise ApiProblem(409, "AlreadyExists", f'{plural} "{metadata["name"]}" already exists')
            metadata |= {"creationTimestamp": second_stamp(), "generation": 1}
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.pop("resourceVersion", None)
            self.validate(made)
            if not dry:
                self._write(key, None, made)
            return copy.deepcopy(made)

    def update(self, plural: str, document: Document, *, dry: bool = False) -> Document:
        """Replace an object. One with a resource version must have that of the stored one; what is to go goes."""
        with self.lock:
            metadata = document["metadata"]
            key = (plural, metadata.get("namespace", ""), metadata["name"])
            before = self.objects.get(key)
            if before is None:
                raise ApiProblem(404, "NotFound", f'{plural} "{metadata["name"]}" not found')
            stored = before["metadata"]
            if metadata.get("resourceVersion", stored["resourceVersion"]) != stored["resourceVersion"]:
                what = "the object has been modified; please apply your changes to the latest version and try again"
                raise ApiProblem(409, "Conflict", f'Operation cannot be fulfilled on {plural} "{key[2]}": {what}')
            made = copy.deepcopy(document)
            if made.get("spec") != before.get("spec"):
                made["metadata"]["generation"] = stored.get("generation", 1) + 1
            if _without_version(made) == _without_version(before):
                return copy.deepcopy(before)
            self.validate(made)
            if dry:
                return made
            going = made["metadata"].get("deletionTimestamp") and not made["metadata"].get("finalizers")
            if going and made["metadata"].get("deletionGracePeriodSeconds", 0) == 0:
                self._write(key, before, None, made)
            else:
                self._write(key, before, made)
            return copy.deepcopy(made)

    def delete(self, plural: str, namespace: str, name: str, grace_s: int = 0) -> Document:
        """Delete an object; one with finalizers, or with time to end by itself, is only marked."""
        with self.lock:
            document = self.get(plural, namespace, name)
            metadata = document["metadata"]
            if "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds", 0) <= grace_s:
                return document
            metadata["deletionTimestamp"] = second_stamp(grace_s)
            metadata["deletionGracePeriodSeconds"] = grace_s
            return self.update(plural, document)

    def _write(self, key: Key, before: Document | None, after: Document | None, last: Document | None = None) -> None:
        self.version += 1
        for each in (after, last):
            if each is not None:
                each["metadata"]["resourceVersion"] = str(self.version)
        if after is None:
            del self.objects[key]
            before = copy.deepcopy(last)
        else:
            self.objects[key] = copy.deepcopy(after)
        self.events.append(StoredEvent(self.version, key[0], before, copy.deepcopy(after)))
        self.lock.notify_all()

    def compact(self) -> None:
        """Forget all events until now: watches from before have expired."""
        with self.lock:
            self.compacted = self.version
            self.events.clear()

    def since(self, plural: str, version: int) -> list[StoredEvent]:
        """The events of a kind after a version. Raises `ApiProblem` 410 where they are forgotten."""
        with self.lock:
            if version < self.compacted:
                raise ApiProblem(410, "Expired", f"too old resource version: {version} ({self.compacted})")
            found = []
            for event in reversed(self.events):
                if event.version <= version:
                    break
                if event.plural == plural:
                    found.append(event)
            return found[::-1]


def _without_version(document: Document) -> Document:
    metadata = {k: v for k, v in document["metadata"].items() if k not in ("resourceVersion", "generation")}
    return {**document, "metadata": metadata}


def second_stamp(ahead_s: float = 0.0) -> str:
    return datetime.fromtimestamp(time.time() + ahead_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
