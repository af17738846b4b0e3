"""The API of one cluster over HTTP: one request an operation, and streams of watches and logs.

lightkube finds the cluster and its credentials, and makes the connection; objects stay JSON, so that fields which a
newer Kubernetes adds are neither lost nor in the way.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

import httpx2
import msgspec
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError as ClientConfigError

from perdure.backends.kubernetes.objects import Document, fields, text, version_of
from perdure.backends.kubernetes.resources import ResourceKind
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.errors import ClusterBusy, ClusterError, ConfigError, NotFound

MERGE_PATCH = "application/merge-patch+json"
MAX_ANSWER_BYTES = 256 << 20  # of one page of a list
MAX_LINE_BYTES = 16 << 20  # of one event of a watch; etcd holds no object near that
PAGE = 500
FIELD_MANAGER = "perdure"
WATCH_S = 240  # how long the server keeps a watch open
SILENCE_S = 300.0  # a watch that says nothing for so long, not even a bookmark, has gone unnoticed


class VersionConflict(ClusterBusy):
    """The object has changed since it was read, or one of that name exists already."""


class VersionExpired(ClusterBusy):
    """What has happened since that resource version is not known any more: list again."""


class ObjectRefused(ClusterError):
    """The API server does not take the object as it is, or the change."""


def config_of(settings: KubernetesSettings) -> SingleConfig:
    """Where the cluster is, and as whom it is asked. Raises `ConfigError`."""
    file = settings.kubeconfig
    where = str(file or "kubernetes")
    try:
        config = KubeConfig.from_file(file) if file else KubeConfig.from_env()
        found = config.get(settings.context or None)
    except (ClientConfigError, OSError, KeyError, ValueError, TypeError) as err:
        fix = "Set kubernetes.kubeconfig and kubernetes.context, or the environment variable KUBECONFIG"
        raise ConfigError(where, f"no cluster can be read from it: {err}", fix) from err
    if found is None:
        raise ConfigError(where, "it has no current context", "Set kubernetes.context")
    return found


class WatchLine(msgspec.Struct):
    """One event of a watch."""

    type: str
    object: dict[str, Any]


class ListPage(msgspec.Struct):
    """One page of a list."""

    metadata: dict[str, Any] = {}
    items: list[dict[str, Any]] = []


_LINE = msgspec.json.Decoder(WatchLine)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_PAGE = msgspec.json.Decoder(ListPage)


class ClusterApi:
    """One cluster. Methods may be called from any thread, and raise `ClusterBusy` where no answer came.

    They raise `NotFound` where the object is not there, `ObjectRefused` where it may not be changed so, and
    `ClusterError` where the service may not ask at all.
    """

    def __init__(self, config: SingleConfig, timeout_s: float) -> None:
        self.address = config.cluster.server
        params = ConnectionParams(timeout=httpx2.Timeout(timeout_s))
        try:
            self._client = Client(config, params)
        except (ClientConfigError, OSError, ssl.SSLError, AssertionError, ValueError) as err:
            raise ConfigError(self.address, f"its credentials cannot be used: {err}", "Mend the kubeconfig") from err
        self._timeout_s = timeout_s
        self._served: dict[ResourceKind, ResourceKind] = {}

    @classmethod
    def of(cls, settings: KubernetesSettings) -> ClusterApi:
        """The cluster of the settings. Raises `ConfigError`."""
        return cls(config_of(settings), settings.timeout_s)

    def version(self) -> str:
        """The version of Kubernetes, as "v1.34.1"."""
        return text(self._ask("GET", "/version"), "gitVersion")

    def serves(self, kind: ResourceKind) -> bool:
        """Whether the cluster knows this kind of objects; of the versions that Perdure reads the newest is used."""
        found = next((each for each in kind.versions() if self._serves_version(each)), None)
        if found is not None:
            self._served[kind] = found
        return found is not None

    def _serves_version(self, kind: ResourceKind) -> bool:
        group = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        try:
            known = self._ask("GET", group).get("resources")
        except NotFound:
            return False
        return any(fields(each).get("name") == kind.plural for each in known or ())

    def _path(self, kind: ResourceKind, namespace: str = "", name: str = "", sub: str = "") -> str:
        return self._served.get(kind, kind).path(namespace, name, sub)

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Document:
        return self._ask("GET", self._path(kind, namespace, name))

    def list_all(self, kind: ResourceKind, namespace: str = "", **options: str) -> tuple[str, list[dict[str, Any]]]:
        """All objects, page by page, and the resource version that they were read at.

        Raises `VersionExpired` where the list has changed too much between two pages.
        """
        found: list[dict[str, Any]] = []
        query = {"limit": str(PAGE), **options}
        while True:
            page = _read(_PAGE, self._answer("GET", self._path(kind, namespace), query), self.address)
            found += page.items
            more = page.metadata.get("continue")
            if not more:
                return str(page.metadata.get("resourceVersion") or ""), found
            query["continue"] = more

    def create(self, kind: ResourceKind, namespace: str, document: Document) -> Document:
        """Raises `VersionConflict` where one of that name exists."""
        return self._ask("POST", self._path(kind, namespace), {"fieldManager": FIELD_MANAGER}, document)

    def patch(self, kind: ResourceKind, namespace: str, name: str, change: Document, sub: str = "") -> Document:
        """Merge a change into an object; with a resource version in it only into that version."""
        query = {"fieldManager": FIELD_MANAGER}
        return self._ask("PATCH", self._path(kind, namespace, name, sub), query, change, MERGE_PATCH)

    def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> None:
        """Delete the object of that uid and, in the background, what it owns. Raises `VersionConflict`."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        self._ask("DELETE", self._path(kind, namespace, name), {}, options)

    def may(self, verb: str, kind: ResourceKind, namespace: str = "", sub: str = "", name: str = "") -> bool:
        """Whether the service's own account may do something."""
        asked = {"verb": verb, "group": kind.group, "resource": kind.plural, "subresource": sub}
        asked |= {"namespace": namespace, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return fields(self._ask("POST", path, {}, review), "status").get("allowed") is True

    @contextmanager
    def watch(
        self, kind: ResourceKind, namespace: str, version: str, options: Mapping[str, str]
    ) -> Iterator[tuple[Iterator[WatchLine], Callable[[], None]]]:
        """The events of objects since a resource version, and what ends them from another thread.

        The events end when the server ends them. Raises `VersionExpired` where that version is too old.
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            **options,
        }
        with self._stream(self._path(kind, namespace), query, SILENCE_S) as response:
            yield self._events(response), lambda: _shut(response)

    def _events(self, response: httpx2.Response) -> Iterator[WatchLine]:
        for line in _lines(response):
            event = _read(_LINE, line, self.address)
            if event.type == "ERROR":
                self._refuse(event.object.get("code") or 500, event.object)
            yield event

    def log(self, namespace: str, pod: str, query: Mapping[str, str]) -> AbstractContextManager[Iterator[bytes]]:
        """The log of a container, in pieces, while the block is open."""
        return self._log(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query)

    @contextmanager
    def _log(self, path: str, query: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        with self._stream(path, query, self._timeout_s) as response:
            yield response.iter_bytes()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    @contextmanager
    def _stream(self, path: str, query: Mapping[str, str], silence_s: float) -> Iterator[httpx2.Response]:
        timeout = httpx2.Timeout(self._timeout_s, read=silence_s)
        with self._errors(), self._client.stream("GET", path, params=dict(query), timeout=timeout) as response:
            if response.status_code >= 400:
                response.read()
                self._refuse(response.status_code, _status(response.content))
            yield response

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Document | None = None,
        form: str = "application/json",
    ) -> dict[str, Any]:
        answer = self._answer(method, path, query or {}, body, form)
        found: dict[str, Any] = _read(_OBJECT, answer, self.address)
        return found

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Document | None = None,
        form: str = "application/json",
    ) -> bytes:
        content = msgspec.json.encode(body) if body is not None else None
        headers = {"Content-Type": form} if body is not None else {}
        with self._errors():
            request = self._client.build_request(method, path, params=dict(query), content=content, headers=headers)
            response = self._client.send(request, stream=True)
            try:
                answer = _whole(response, self.address)
            finally:
                response.close()
        if response.status_code >= 400:
            self._refuse(response.status_code, _status(answer))
        return answer

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TransportError as err:
            what = f"no answer: {err or type(err).__name__}"
            raise ClusterBusy(self.address, what, "Ask again later") from err
        except (httpx2.HTTPError, ClientConfigError) as err:
            raise ClusterError(self.address, str(err), "Check the kubeconfig") from err

    def _refuse(self, code: int, status: Document) -> NoReturn:
        what = text(status, "message") or f"HTTP {code}"
        match code:
            case 401 | 403:
                raise ClusterError(self.address, what, "Give the service its role: deploy/kubernetes/rbac.yaml")
            case 404:
                raise NotFound(self.address, what, "Look again")
            case 409:
                raise VersionConflict(self.address, what, "Read it again")
            case 410:
                raise VersionExpired(self.address, what, "List again")
            case 400 | 405 | 413 | 415 | 422:
                raise ObjectRefused(self.address, what, "Change what was asked for")
        raise ClusterBusy(self.address, what, "Ask again later")


def _whole(response: httpx2.Response, where: str) -> bytes:
    pieces, size = [], 0
    for piece in response.iter_bytes():
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise ClusterError(where, f"an answer is longer than {MAX_ANSWER_BYTES} bytes", "Look at one namespace")
        pieces.append(piece)
    return b"".join(pieces)


def _lines(response: httpx2.Response) -> Iterator[bytes]:
    """Whole lines; what stands behind the last end of line was cut off."""
    rest = b""
    for piece in response.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        yield from filter(None, lines)
        if len(rest) > MAX_LINE_BYTES:
            raise ClusterBusy(str(response.url), "a line of a watch does not end", "Watch again")


def _read(decoder: msgspec.json.Decoder[Any], data: bytes, where: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise ClusterBusy(where, f"an answer cannot be read: {err}", "Ask again later") from err


def _status(answer: bytes) -> Document:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        found = msgspec.json.decode(answer)
        return found if isinstance(found, dict) else {}
    return {"message": answer[:200].decode(errors="replace")}


def _shut(response: httpx2.Response) -> None:
    """Wake whoever reads a stream: it ends."""
    stream = response.extensions.get("network_stream")
    with contextlib.suppress(OSError):
        found = stream.get_extra_info("socket") if stream is not None else None
        if found is not None:
            found.shutdown(socket.SHUT_RDWR)


def precondition(document: Document) -> dict[str, str]:
    """Metadata that lets a patch touch this very version of an object only."""
    return {"resourceVersion": version_of(document)}
