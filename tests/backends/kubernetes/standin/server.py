"""The HTTP side of the stand-in: the verbs of the API, watches, discovery, and faults of the line on demand."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.backends.kubernetes.standin.access import ADMIN, AccessAsked, AccessRules
from tests.backends.kubernetes.standin.kinds import (
    BUILT_IN,
    ServedKind,
    admitted,
    check_change,
    check_status_change,
    group_of,
)
from tests.backends.kubernetes.standin.patches import json_patch, merge, strategic
from tests.backends.kubernetes.standin.schemas import PublishedSchema
from tests.backends.kubernetes.standin.selectors import matches
from tests.backends.kubernetes.standin.store import ApiProblem, Document, ObjectStore, StoredEvent, second_stamp

GRACE_S = 30


@dataclass
class LineFaults:
    """What goes wrong between the server and its clients; each is taken back by its first value."""

    silent: bool = False  # connections are closed without an answer
    dropped_watches: int = 0  # so many watches are cut off in the middle of an event
    doubled_events: bool = False  # each event of a watch is sent twice
    late_events: bool = False  # each is followed by an older one of its object
    bookmark_s: float = 1.0
    longest_watch_s: float = 3600.0
    stale_lists: int = 0  # so many lists are those of before
    refusals: list[ApiProblem] = field(default_factory=list)  # of the next writes, before they are done
    lost_answers: int = 0  # so many writes are done, and nobody hears of it
    expired_pages: int = 0  # so many second pages of lists have expired


@dataclass
class StandInApi:
    """What the handlers share."""

    store: ObjectStore
    schema: PublishedSchema
    kinds: tuple[ServedKind, ...] = BUILT_IN
    access: AccessRules = field(default_factory=AccessRules)
    faults: LineFaults = field(default_factory=LineFaults)
    logs: dict[tuple[str, str, str, bool], bytes] = field(default_factory=dict)  # namespace, pod, container, previous
    requests: list[tuple[str, str]] = field(default_factory=list)
    old_lists: dict[str, Document] = field(default_factory=dict)
    open_sockets: set[socket.socket] = field(default_factory=set)

    def validate(self, document: Document) -> None:
        """Raise `ApiProblem` where an object is not as the published OpenAPI says."""
        served = {(kind.group_version, kind.kind) for kind in self.kinds}
        if (document.get("apiVersion"), document.get("kind")) not in served and not self.schema.definition_of(document):
            raise ApiProblem(400, "BadRequest", f"no kind {document.get('kind')} in {document.get('apiVersion')}")
        if problems := self.schema.problems(document):
            raise ApiProblem(422, "Invalid", "; ".join(problems[:5]))

    def cut(self) -> None:
        """Close all connections."""
        for each in list(self.open_sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class AskedPath:
    """What a path names."""

    kind: ServedKind
    namespace: str
    name: str
    part: str


class StandInHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    api: StandInApi  # set by `serve`

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def setup(self) -> None:
        super().setup()
        self.api.open_sockets.add(self.connection)

    def finish(self) -> None:
        self.api.open_sockets.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def do_PUT(self) -> None:
        self._handle("PUT")

    def do_PATCH(self) -> None:
        self._handle("PATCH")

    def do_DELETE(self) -> None:
        self._handle("DELETE")

    def _handle(self, method: str) -> None:
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.api.faults.silent:
            self.close_connection = True
            return
        self.api.requests.append((method, parts.path))
        try:
            if method != "GET" and self.api.faults.refusals:
                raise self.api.faults.refusals.pop(0)
            answer = self._answered(method, parts.path, query, body)
        except ApiProblem as problem:
            self._send(problem.code, problem.status())
            return
        if answer is None:
            return
        if method != "GET" and self.api.faults.lost_answers and not parts.path.startswith("/apis/authorization"):
            self.api.faults.lost_answers -= 1
            self.close_connection = True
            return
        self._send(201 if method == "POST" else 200, answer)

    # -- addresses

    def _answered(self, method: str, path: str, query: dict[str, str], body: bytes) -> Document | bytes | None:
        if (found := self._of_itself(path)) is not None:
            return found
        if path.endswith("/selfsubjectaccessreviews"):
            return self._review(json.loads(body))
        asked = self._asked(path)
        verb = self._verb(method, asked, query)
        resource = f"{asked.kind.plural}/{asked.part}" if asked.part else asked.kind.plural
        access = AccessAsked(verb, asked.kind.group, resource, asked.namespace, asked.name)
        self._permit(access)
        document = _decoded(body, self.headers.get("Content-Type", "")) if body else None
        is_dry = query.get("dryRun") == "All"
        match method:
            case "GET" if asked.part == "log":
                return self._log(asked, query)
            case "GET" if asked.name:
                return self.api.store.get(asked.kind.plural, asked.namespace, asked.name)
            case "GET" if verb == "watch":
                self._watch(asked, query)
                return None
            case "GET":
                return self._list(asked, query)
            case "POST":
                return self._post(asked, document, is_dry)
            case "PUT":
                return self._put(asked, document, is_dry)
            case "PATCH":
                return self._patch(asked, document, is_dry)
        return self._delete(asked, document or {}, query, is_dry)

    def _of_itself(self, path: str) -> Document | None:
        """What the server says of itself."""
        kinds = self.api.kinds
        match path.strip("/").split("/"):
            case ["version"]:
                minor = self.api.schema.version.partition(".")[2]
                return {
                    "major": "1",
                    "minor": minor,
                    "gitVersion": f"{self.api.schema.version}.0",
                    "platform": "stand-in",
                }
            case ["healthz" | "livez" | "readyz"]:
                return {}
            case ["api"]:
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["apis"]:
                names = dict.fromkeys((kind.group, kind.version) for kind in kinds if kind.group)
                groups = []
                for group, version in [*names, ("policy", "v1")]:
                    one = {"groupVersion": f"{group}/{version}", "version": version}
                    groups.append({"name": group, "versions": [one], "preferredVersion": one})
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["api", version]:
                return group_of(kinds, "", version)
            case ["apis", "policy", "v1"]:
                return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "policy/v1", "resources": []}
            case ["apis", group, version]:
                return group_of(kinds, group, version)
            case ["openapi", "v3"]:
                served = {f"api{'s' if kind.group else ''}/{kind.group_version}" for kind in kinds}
                return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash=1"} for p in sorted(served)}}
            case ["openapi", "v3", *rest]:
                return self._open_api("/".join(rest[1:]))
        return None

    def _open_api(self, group_version: str) -> Document:
        """As much of OpenAPI v3 as tells kubectl that the server validates by itself."""
        options = [{"name": name, "in": "query"} for name in ("fieldValidation", "dryRun", "fieldManager")]
        paths = {}
        for kind in self.api.kinds:
            if kind.group_version == group_version:
                about = {"group": kind.group, "version": kind.version, "kind": kind.kind}
                done = {"parameters": options, "x-kubernetes-group-version-kind": about, "responses": {}}
                paths[f"/{kind.plural}/{{name}}"] = {"patch": {"x-kubernetes-action": "patch", **done}}
        return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": paths}

    def _asked(self, path: str) -> AskedPath:
        parts = path.strip("/").split("/")
        if len(parts) < (3 if parts[0] == "api" else 4) or parts[0] not in ("api", "apis"):
            raise ApiProblem(404, "NotFound", "the server could not find the requested resource")
        group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        found = (k for k in self.api.kinds if (k.group, k.version, k.plural) == (group, version, rest[0]))
        kind = next(found, None)
        if kind is None:
            raise ApiProblem(404, "NotFound", f"the server could not find the requested resource {path}")
        return AskedPath(kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")

    def _verb(self, method: str, asked: AskedPath, query: dict[str, str]) -> str:
        if method == "GET":
            is_watch = query.get("watch") in ("true", "1")
            return "watch" if is_watch else "get" if asked.name else "list"
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]

    @property
    def _token(self) -> str:
        return (self.headers.get("Authorization") or f"Bearer {ADMIN}").partition(" ")[2]

    def _permit(self, asked: AccessAsked) -> None:
        if not self.api.access.allows(self._token, asked):
            what = f'User "{self._token}" cannot {asked.verb} resource "{asked.resource}" in API group "{asked.group}"'
            raise ApiProblem(403, "Forbidden", f"{what} in the namespace {asked.namespace!r}")
        self.api.access.note(self._token, asked)

    def _review(self, review: Document) -> Document:
        of = review["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (of["resource"], of.get("subresource"))))
        asked = AccessAsked(of["verb"], of.get("group", ""), resource, of.get("namespace", ""), of.get("name", ""))
        return {**review, "status": {"allowed": self.api.access.allows(self._token, asked)}}

    # -- reading

    def _list(self, asked: AskedPath, query: dict[str, str]) -> Document:
        store, faults = self.api.store, self.api.faults
        name = f"{asked.kind.plural}/{asked.namespace}/{query.get('labelSelector', '')}"
        with store.lock:
            version, found = store.version, self._selected(asked, query)
        limit, begin = int(query.get("limit") or 0), int(query.get("continue") or 0)
        if begin and faults.expired_pages:
            faults.expired_pages -= 1
            raise ApiProblem(410, "Expired", "The provided continue parameter is too old")
        metadata: Document = {"resourceVersion": str(version)}
        page = found[begin : begin + limit] if limit else found
        if limit and begin + limit < len(found):
            metadata["continue"] = str(begin + limit)
        said = {
            "kind": f"{asked.kind.kind}List",
            "apiVersion": asked.kind.group_version,
            "metadata": metadata,
            "items": page,
        }
        if faults.stale_lists and name in self.api.old_lists:
            faults.stale_lists -= 1
            return self.api.old_lists[name]
        self.api.old_lists.setdefault(name, said)
        return said

    def _selected(self, asked: AskedPath, query: dict[str, str]) -> list[Document]:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        found = self.api.store.all_of(asked.kind.plural, asked.namespace)
        return [document for document in found if matches(document, labels, fields)]

    def _watch(self, asked: AskedPath, query: dict[str, str]) -> None:
        store = self.api.store
        version = int(query.get("resourceVersion") or 0)
        with store.lock:
            begin = [] if version else self._selected(asked, query)
            version = version or store.version
            first = store.since(asked.kind.plural, version)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            for document in begin:
                self._chunk({"type": "ADDED", "object": document})
            self._follow(asked, query, version, first)
            self._raw_chunk(b"")
        self.close_connection = True

    def _follow(self, asked: AskedPath, query: dict[str, str], version: int, events: list[StoredEvent]) -> None:
        store, faults = self.api.store, self.api.faults
        until = time.monotonic() + min(float(query.get("timeoutSeconds") or 3600), faults.longest_watch_s)
        bookmark = time.monotonic() + faults.bookmark_s
        while time.monotonic() < until and not faults.silent:
            for event in events:
                version = event.version
                if (said := self._as_selected(asked, query, event)) is not None and self._tell(said, event):
                    return
            if time.monotonic() > bookmark and query.get("allowWatchBookmarks") == "true":
                bookmark = time.monotonic() + faults.bookmark_s
                with store.lock:
                    version = store.version if not store.since(asked.kind.plural, version) else version
                mark = {"metadata": {"resourceVersion": str(version)}}
                about = {"kind": asked.kind.kind, "apiVersion": asked.kind.group_version}
                self._chunk({"type": "BOOKMARK", "object": {**about, **mark}})
            with store.lock:
                try:
                    events = store.since(asked.kind.plural, version)
                except ApiProblem as problem:
                    self._chunk({"type": "ERROR", "object": problem.status()})
                    return
                if not events:
                    store.lock.wait(0.1)
                    events = store.since(asked.kind.plural, version) if version >= store.compacted else []

    def _as_selected(self, asked: AskedPath, query: dict[str, str], event: StoredEvent) -> Document | None:
        """An event as this watch sees it: what comes into its selection is added, what leaves it is deleted."""

        def selected(document: Document | None) -> bool:
            if document is None or asked.namespace not in ("", document["metadata"].get("namespace", "")):
                return False
            return matches(document, query.get("labelSelector", ""), query.get("fieldSelector", ""))

        was, is_now = selected(event.before), selected(event.after)
        if event.after is None:
            return {"type": "DELETED", "object": event.before} if was else None
        if is_now:
            return {"type": "MODIFIED" if was else "ADDED", "object": event.after}
        return {"type": "DELETED", "object": event.after} if was else None

    def _tell(self, said: Document, event: StoredEvent) -> bool:
        """Send an event; True where the watch is cut off by it."""
        faults = self.api.faults
        if faults.dropped_watches:
            faults.dropped_watches -= 1
            self._raw_chunk(json.dumps(said).encode()[:40])
            self.connection.shutdown(socket.SHUT_RDWR)
            return True
        self._chunk(said)
        if faults.doubled_events:
            self._chunk(said)
        if faults.late_events and event.before is not None and event.after is not None:
            self._chunk({"type": "MODIFIED", "object": event.before})
        return False

    def _log(self, asked: AskedPath, query: dict[str, str]) -> bytes:
        pod = self.api.store.get("pods", asked.namespace, asked.name)
        container = query.get("container") or pod["spec"]["containers"][0]["name"]
        is_previous = query.get("previous") == "true"
        data = self.api.logs.get((asked.namespace, asked.name, container, is_previous))
        if data is None:
            raise ApiProblem(400, "BadRequest", f'container "{container}" in pod "{asked.name}" is waiting to start')
        if "limitBytes" in query:
            data = data[: int(query["limitBytes"])]
        return data

    # -- writing

    def _post(self, asked: AskedPath, document: Any, is_dry: bool) -> Document:
        store = self.api.store
        if asked.part == "eviction":
            return self._evict(asked)
        metadata = document.setdefault("metadata", {})
        if asked.kind.is_namespaced and metadata.setdefault("namespace", asked.namespace) != asked.namespace:
            raise ApiProblem(
                400, "BadRequest", "the namespace of the object does not match the namespace of the request"
            )
        metadata.pop("managedFields", None)
        return store.create(asked.kind.plural, admitted(asked.kind, document), dry=is_dry)

    def _put(self, asked: AskedPath, document: Any, is_dry: bool) -> Document:
        with self.api.store.lock:
            before = self.api.store.get(asked.kind.plural, asked.namespace, asked.name)
            return self._written(asked, before, document, is_dry)

    def _patch(self, asked: AskedPath, change: Any, is_dry: bool) -> Document:
        store = self.api.store
        with store.lock:
            before = store.get(asked.kind.plural, asked.namespace, asked.name)
            match self.headers.get("Content-Type", "").partition(";")[0]:
                case "application/merge-patch+json":
                    after = merge(before, change)
                case "application/json-patch+json":
                    try:
                        after = json_patch(before, change)
                    except (ValueError, KeyError, IndexError) as err:
                        raise ApiProblem(422, "Invalid", str(err)) from err
                case "application/strategic-merge-patch+json":
                    definition = self.api.schema.definition_of(before)
                    if definition is None:
                        raise ApiProblem(415, "UnsupportedMediaType", "the kind has no strategic merge patch")
                    after = strategic(before, change, {"$ref": f"#/$defs/{definition}"}, self.api.schema)
                case form:
                    raise ApiProblem(415, "UnsupportedMediaType", f"the patch {form} is not served here")
            return self._written(asked, before, after, is_dry)

    def _written(self, asked: AskedPath, before: Document, after: Document, is_dry: bool) -> Document:
        """A write touches the status or all but the status, never both."""
        after["metadata"] = {**after["metadata"], **{k: before["metadata"][k] for k in ("uid", "creationTimestamp")}}
        for fixed in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            if fixed in before["metadata"]:
                after["metadata"][fixed] = before["metadata"][fixed]
        if asked.part == "status":
            version = after["metadata"].get("resourceVersion", before["metadata"]["resourceVersion"])
            metadata = {**before["metadata"], "resourceVersion": version}
            after = {**before, "status": after.get("status", {}), "metadata": metadata}
            check_status_change(asked.kind, before, after)
        elif "status" in asked.kind.parts:
            after = {k: v for k, v in after.items() if k != "status"} | (
                {"status": before["status"]} if "status" in before else {}
            )
            check_change(asked.kind, before, after)
        return self.api.store.update(asked.kind.plural, after, dry=is_dry)

    def _evict(self, asked: AskedPath) -> Document:
        store = self.api.store
        with store.lock:
            pod = store.get("pods", asked.namespace, asked.name)
            disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting")
            store.update("pods", pod)
            store.delete("pods", asked.namespace, asked.name, GRACE_S)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _delete(self, asked: AskedPath, options: Document, query: dict[str, str], is_dry: bool) -> Document:
        store = self.api.store
        if not asked.name:
            raise ApiProblem(405, "MethodNotAllowed", "a whole collection is not deleted here")
        with store.lock:
            document = store.get(asked.kind.plural, asked.namespace, asked.name)
            wanted = (options.get("preconditions") or {}).get("uid")
            if wanted not in (None, document["metadata"]["uid"]):
                raise ApiProblem(
                    409, "Conflict", f"the UID in the precondition ({wanted}) does not match the one of the object"
                )
            if is_dry:
                return document
            policy = options.get("propagationPolicy") or query.get("propagationPolicy")
            if policy == "Foreground":
                document["metadata"].setdefault("finalizers", []).append("foregroundDeletion")
                document = store.update(asked.kind.plural, document)
            grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
            grace_s = 0 if asked.kind.plural != "pods" else GRACE_S if grace is None else int(grace)
            if asked.kind.plural == "pods" and not document["spec"].get("nodeName"):
                grace_s = 0
            store.delete(asked.kind.plural, asked.namespace, asked.name, grace_s)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    # -- sending

    def _send(self, code: int, answer: Document | bytes) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        with contextlib.suppress(OSError):
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, bytes) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def _chunk(self, said: Document) -> None:
        self._raw_chunk(json.dumps(said).encode() + b"\n")

    def _raw_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def _decoded(body: bytes, form: str) -> Any:
    return yaml.safe_load(body) if "yaml" in form else json.loads(body)


def disrupt(pod: Document, reason: str, message: str) -> None:
    """Say in a pod's status why it is about to end."""
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    if not any(each["type"] == "DisruptionTarget" for each in conditions):
        now = second_stamp()
        told = {"reason": reason, "message": message, "lastTransitionTime": now}
        conditions.append({"type": "DisruptionTarget", "status": "True", **told})


class QuietServer(ThreadingHTTPServer):
    """Threads that end with the process, and clients that may go away."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of ours."""


def serve(api: StandInApi) -> QuietServer:
    """Answer on a free port of the loopback, in threads, until ``shutdown()``."""
    handler = type("BoundHandler", (StandInHandler,), {"api": api})
    server = QuietServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server
