"""A Kubernetes that is played: objects behind an API without a socket, and watches that are never late.

It has no controllers: what becomes of jobs and pods is the story's choice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

from perdure.backends.kubernetes.api import ClusterApi, VersionConflict
from perdure.backends.kubernetes.held import HeldObject, MirrorView
from perdure.backends.kubernetes.resources import ResourceKind
from perdure.errors import ClusterBusy, NotFound

START_S = 1_600_000_000
NODES = ("node1", "node2", "node3")
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


class PlayedApi(ClusterApi):
    """All objects, by plural, namespace and name."""

    address = "https://played"

    def __init__(self, rng: Random) -> None:
        self.rng, self.now, self.silent = rng, float(START_S), False
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.gone: list[tuple[str, dict[str, Any], float]] = []
        self.told: list[str] = []
        self._version = 100
        for name in NODES:
            status = {"conditions": [dict(READY)], "allocatable": {"nvidia.com/gpu": "4", "cpu": "64"}}
            self.put("nodes", {"metadata": {"name": name}, "spec": {}, "status": status})

    def stamp(self, ago_s: float = 0.0) -> str:
        return datetime.fromtimestamp(self.now - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # What the story does

    def put(self, plural: str, document: dict[str, Any]) -> dict[str, Any]:
        """Make an object, or write one that was changed in place."""
        self._version += 1
        metadata = document["metadata"]
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata.setdefault("creationTimestamp", self.stamp())
        metadata["resourceVersion"] = str(self._version)
        self.objects[plural, metadata.get("namespace", ""), metadata["name"]] = document
        return document

    def take(self, plural: str, document: dict[str, Any]) -> None:
        """An object is gone for good."""
        metadata = document["metadata"]
        del self.objects[plural, metadata.get("namespace", ""), metadata["name"]]
        self.gone.append((plural, document, self.now))

    def all_of(self, plural: str) -> list[dict[str, Any]]:
        return [document for (kind, _, _), document in self.objects.items() if kind == plural]

    # What the backend asks

    def version(self) -> str:
        if self.silent:
            raise ClusterBusy(self.address, "no answer", "Ask again later")
        return "v1.34"

    def serves(self, kind: ResourceKind) -> bool:
        return True

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Any:
        self.version()
        found = self.objects.get((kind.plural, namespace if kind.is_namespaced else "", name))
        if found is None:
            raise NotFound(name, "not found", "Look for it")
        return copy.deepcopy(found)

    def list_all(self, kind: ResourceKind, namespace: str = "", **options: str) -> tuple[str, list[dict[str, Any]]]:
        self.version()
        key, _, value = options.get("labelSelector", "").partition("=")
        here = (each for each in self.all_of(kind.plural) if each["metadata"].get("namespace", "") == namespace)
        found = (each for each in here if not key or each["metadata"].get("labels", {}).get(key) == value)
        return str(self._version), [copy.deepcopy(each) for each in found]

    def create(self, kind: ResourceKind, namespace: str, document: Any) -> Any:
        self.version()
        made = copy.deepcopy(dict(document))
        made["metadata"] |= {"namespace": namespace} if kind.is_namespaced else {}
        self.told.append(f"create {kind.plural} {made}")
        if (kind.plural, namespace, made["metadata"]["name"]) in self.objects:
            raise VersionConflict(made["metadata"]["name"], "already exists", "Ask again later")
        return copy.deepcopy(self.put(kind.plural, made))

    def patch(self, kind: ResourceKind, namespace: str, name: str, change: Any, sub: str = "") -> Any:
        found = self.get(kind, namespace, name)
        self.told.append(f"patch {kind.plural} {name} {sub} {change}")
        wanted = change.get("metadata", {}).get("resourceVersion", found["metadata"]["resourceVersion"])
        if wanted != found["metadata"]["resourceVersion"] or self.rng.random() < 0.05:
            raise VersionConflict(name, "others changed it", "Ask again later")
        return copy.deepcopy(self.put(kind.plural, _merged(found, change)))

    def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> None:
        found = self.get(kind, namespace, name)
        self.told.append(f"delete {kind.plural} {name} {uid}")
        if found["metadata"]["uid"] != uid:
            return
        held = self.objects[kind.plural, namespace, name]
        if self.rng.random() < 0.15:  # something keeps it for a while
            held["metadata"] |= {"deletionTimestamp": self.stamp()}
            self.put(kind.plural, held)
        else:
            self.take(kind.plural, held)

    @contextmanager
    def _played_log(self, namespace: str, pod: str, query: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        self.version()
        found = self.objects.get(("pods", namespace, pod))
        if found is None:
            raise NotFound(pod, "not found", "Look for it")
        if self.rng.random() < 0.1:
            raise ClusterBusy(pod, "dial tcp: i/o timeout", "Ask again later")
        count = found["status"]["containerStatuses"][0]["restartCount"] - ("previous" in query)
        yield iter([f"{found['metadata']['uid']} {count}\n".encode(), b"step 1\n" * self.rng.randrange(4), b"end\n"])

    def log(self, namespace: str, pod: str, query: Mapping[str, str]) -> Any:
        return self._played_log(namespace, pod, query)

    def close(self) -> None:
        """There is no connection."""


class PlayedMirror:
    """What a watch would have brought of one kind."""

    def __init__(
        self,
        api: PlayedApi,
        kind: ResourceKind,
        namespace: str = "",
        selector: str = "",
        keep: Callable[[dict[str, Any]], Any] = lambda document: document,
    ) -> None:
        self.kind, self._api, self._keep = kind, api, keep
        self._held: dict[tuple[str, str], HeldObject] = {}  # by uid and version: what stays is the same object

    def start(self) -> None:
        """Nothing is listed."""

    def close(self) -> None:
        """No thread is ended."""

    def wait_listed(self, timeout_s: float) -> bool:
        return True

    def reach(self, version: str, timeout_s: float) -> bool:
        return True

    def view(self) -> MirrorView:
        here = [self._hold(each, None) for each in self._api.all_of(self.kind.plural)]
        gone = [self._hold(each, gone_s) for plural, each, gone_s in self._api.gone if plural == self.kind.plural]
        return MirrorView((*here, *gone))

    def _hold(self, document: dict[str, Any], gone_s: float | None) -> HeldObject:
        key = document["metadata"]["uid"], f"{document['metadata']['resourceVersion']} {gone_s}"
        if key not in self._held:
            self._held[key] = HeldObject(self._keep(copy.deepcopy(document)), gone_s)
        return self._held[key]


def _merged(document: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7386)."""
    merged = dict(document)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            held = merged.get(key)
            merged[key] = _merged(held if isinstance(held, dict) else {}, value)
        else:
            merged[key] = value
    return merged
