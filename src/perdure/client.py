"""For programs that take part in recoveries: raise exceptions, hear of them, and be asked who takes them.

::

    import perdure.client as perdure

    perdure.raise_exception("app.nan", job="4711", note="loss is NaN at step 1200")

    for asked in perdure.handle("trainer", component="job", types=["app", "process"]):
        if can_roll_back(asked.record):
            asked.handled("rolled back to step 1200")
        else:
            asked.annotated("no good checkpoint", checkpoint="none")

The service is the one that ``PERDURE_SOCKET`` (a Unix socket), or ``PERDURE_URL``, names, with ``PERDURE_TOKEN``. This
needs the standard library alone, imports nothing heavy, and keeps no thread but for a handler's lease.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from perdure.errors import (
    ClusterBusy,
    ClusterError,
    ConfigError,
    Fenced,
    InputError,
    NotFound,
    NotPermitted,
    PerdureError,
)

SOCKET, URL, TOKEN = "PERDURE_SOCKET", "PERDURE_URL", "PERDURE_TOKEN"
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 4 * 1024 * 1024
TRIES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
_ERRORS: dict[int, type[PerdureError]] = {
    401: NotPermitted, 403: NotPermitted, 404: NotFound, 400: InputError, 413: InputError, 422: InputError,
    429: ClusterBusy, 502: ClusterBusy, 503: ClusterBusy, 504: ClusterBusy,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Service:
    """Where a service is, and with whose right it is asked."""

    url: str  # "http://host:8470"; of a Unix socket only the path within the API matters
    token: str = ""
    socket: str = ""  # path of a Unix socket; "" where `url` is to be used
    timeout_s: float = 30.0

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None) -> Service:
        """The service that the environment names. Raises `ConfigError` where it names none."""
        env = os.environ if environment is None else environment
        if not env.get(SOCKET) and not env.get(URL):
            raise ConfigError(URL, "is not set, and PERDURE_SOCKET is not either", "Set one, and PERDURE_TOKEN")
        return cls(env.get(URL, "http://localhost"), env.get(TOKEN, ""), env.get(SOCKET, ""))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer. Raises the `PerdureError` that the service, or the way there, has."""
        try:
            status, data = self.exchange(method, path, body)
        except (HTTPException, OSError) as err:
            raise ClusterBusy(self._where, f"the service does not answer ({err})", "See that it runs there") from err
        if status >= 300:
            raise _refusal(self._where, status, data)
        try:
            return json.loads(data) if data else None
        except ValueError as err:
            raise ClusterError(self._where, "its answer is not JSON", "See that it is Perdure") from err

    def exchange(self, method: str, path: str, body: Any = None, most: int = MAX_ANSWER_BYTES) -> tuple[int, bytes]:
        """The status and the answer, whatever they are; redirects are not followed, as they would carry the token away.

        Raises `HTTPException` and `OSError` where none came, and `ClusterError` for more than `most` bytes.
        """
        connection = self._connect()
        try:
            answer = self._send(connection, method, path, body)
            data = answer.read(most + 1)
            if len(data) > most:
                raise ClusterError(self._where, f"the answer is longer than {most} bytes", "Ask for less")
            if answer.length:  # a read that is bounded does not mind that the rest never came
                raise IncompleteRead(data, answer.length)
            return answer.status, data
        finally:
            connection.close()

    def listen(self, path: str) -> Iterator[tuple[str, str, Any]]:
        """Server-sent events as ``(id, kind, data)``; without data it is but the place reached. Ends as the stream."""
        connection = self._connect()
        try:
            answer = self._send(connection, "GET", path, None)
            if answer.status >= 300:
                raise _refusal(self._where, answer.status, answer.read(MAX_ANSWER_BYTES))
            yield from _events(answer)
        except (HTTPException, OSError) as err:
            raise ClusterBusy(self._where, f"the stream broke off ({err})", "Listen again") from err
        finally:
            connection.close()

    def _send(self, connection: HTTPConnection, method: str, path: str, body: Any) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", "Host": "localhost"}
        prefix = ""
        if not self.socket:
            parts = urlsplit(self.url)
            headers["Host"], prefix = parts.netloc, parts.path.rstrip("/")
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, f"{prefix}/api/v1{path}", data, headers)
        return connection.getresponse()

    def _connect(self) -> HTTPConnection:
        if self.socket:
            return _UnixConnection(self.socket, self.timeout_s)
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(URL, f"{self.url!r} is not an http or https URL", "Write it like http://127.0.0.1:8470")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(parts.hostname, parts.port, timeout=self.timeout_s)

    @property
    def _where(self) -> str:
        return self.socket or self.url


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def raise_exception(
    type: str,
    *,
    job: str = "",
    severity: int = 0,
    note: str = "",
    nodes: Sequence[str] = (),
    ranks: Sequence[int] = (),
    resource: str = "",
    incarnation: int = 0,
    evidence: Sequence[str] = (),
    id: str = "",
    service: Service | None = None,
    **more: Any,
) -> str:
    """Raise an exception; returns the id under which it goes on: its own, or that of the equal one it was counted with.

    Tried again while the service does not answer, or does not know the job yet: it looks at the cluster then. The id
    makes that harmless. `job` is by default the one that this process runs in. Fields of your own (`more`) go with it
    unchanged. It counts from when it arrives, by the service's clock, unless `time` says otherwise. Raises
    `PerdureError`.
    """
    job = job or os.environ.get("PERDURE_JOB_ID") or os.environ.get("SLURM_JOB_ID") or ""
    subject = {"job": job, "node": list(nodes), "rank": list(ranks), "resource": resource}
    record = {
        **more,
        "id": id or str(uuid.uuid4()),
        "type": type,
        "severity": severity,
        "note": note,
        "subject": subject,
        "incarnation": incarnation,
        "evidence": list(evidence),
        "origin": {"component": "job" if job else "client", "host": socket.gethostname(), "pid": os.getpid()},
    }
    answer = _patiently(service or Service.of(), "POST", "/exceptions", record, may_come=NotFound)
    return str(answer["id"])


def annotate(exception_id: str, key: str, value: Any, *, service: Service | None = None) -> None:
    """Say something that the next handlers are to know."""
    body = {"key": key, "value": value}
    _patiently(service or Service.of(), "POST", f"/annotations/{quote(exception_id, safe='')}", body)


def subscribe(
    *,
    job: str = "",
    kinds: Sequence[str] = ("exception_changed",),
    after: int | None = None,
    service: Service | None = None,
) -> Iterator[dict[str, Any]]:
    """Events as they happen, for ever; a stream that breaks off is resumed where it was, so that no event is missed.

    Each is ``{"seq", "time_s", "kind", "job_id", "payload"}``; of an exception, ``payload["record"]`` is the whole.
    """
    service = service or Service.of()
    pause_s = FIRST_PAUSE_S
    query = [("kind", kind) for kind in kinds] + ([("job_id", job)] if job else [])
    while True:
        begin = [("after", str(after))] if after is not None else []
        try:
            for seq, kind, data in service.listen(f"/events/stream?{urlencode(query + begin)}"):
                if kind == "problem":
                    break
                after, pause_s = int(seq), FIRST_PAUSE_S
                if data is not None:
                    yield data
        except ClusterBusy:
            pass
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class Clock:
    """The service's clock, from what it last said: this machine's own may be minutes off, and may be set meanwhile."""

    def __init__(self, said_s: float) -> None:
        self.hear(said_s)

    def hear(self, said_s: float) -> None:
        """The service says that it is `said_s` now."""
        self._ahead_s = said_s - time.monotonic()

    def left_s(self, instant_s: float) -> float:
        """Seconds from now to an instant of the service's."""
        return instant_s - self._ahead_s - time.monotonic()

    def instant_s(self, left_s: float) -> float:
        """The service's instant that is `left_s` from now."""
        return time.monotonic() + self._ahead_s + left_s


@dataclass(frozen=True, slots=True)
class Asked:
    """An exception that this handler is asked about. Answer once, before `until` (by this machine's clock)."""

    record: dict[str, Any]
    until: float
    handler: str
    service: Service
    clock: Clock = field(repr=False)

    def handled(self, note: str = "", *, forbids: Sequence[str] = ()) -> None:
        """It is mine: nobody else recovers, and nobody does what is forbidden."""
        self._answer("handled", note, forbids=list(forbids))

    def annotated(self, note: str = "", **annotations: str) -> None:
        """It is not mine, but the next ones are to know this."""
        self._answer("annotated", note, annotations=annotations)

    def declined(self, note: str = "") -> None:
        self._answer("declined", note)

    def rejected(self, note: str = "") -> None:
        self._answer("rejected", note)

    def deferred(self, until: float, note: str = "") -> None:
        """I may take it: hold the chain until then (by this machine's clock). Answer again before."""
        self._answer("deferred", note, until=self.clock.instant_s(until - time.time()))

    def _answer(self, verdict: str, note: str, **more: Any) -> None:
        body = {"handler": self.handler, "verdict": verdict, "note": note, **more}
        self.service.ask("POST", f"/answers/{quote(self.record['id'], safe='')}", body)


def handle(
    name: str,
    *,
    component: str,
    types: Sequence[str] = ("",),
    lease_s: float = 60.0,
    answer_s: float = 30.0,
    service: Service | None = None,
) -> Iterator[Asked]:
    """Be asked about exceptions, for ever; the lease is kept while this is iterated, and ends with it.

    Leaving the loop ends the registration, and what waits for it is passed on. Exceptions that wait for this handler
    already, from before a restart, come first.
    """
    service = service or Service.of()
    wish = {"component": component, "types": list(types), "lease_s": lease_s, "answer_s": answer_s}
    path = f"/handlers/{quote(name, safe='')}"
    enlisted = _patiently(service, "PUT", path, wish)
    clock, stop = Clock(enlisted["now"]), threading.Event()
    keep = threading.Thread(target=_keep, args=(service, path, wish, clock, stop), name=f"lease {name}", daemon=True)
    keep.start()
    try:
        for record, until_s in _turns(enlisted, service):
            left_s = clock.left_s(until_s)
            if left_s > 0:  # else it was passed on while this program did something else
                yield Asked(record, time.time() + left_s, name, service, clock)
    finally:
        stop.set()
        _give_up(service, path)


def _turns(enlisted: dict[str, Any], service: Service) -> Iterator[tuple[dict[str, Any], float]]:
    """Records that it is asked about, each with the service's instant until when: what waits, then what comes."""
    waiting = {asked["record"]["id"]: asked["until"] for asked in enlisted["asked"]}
    for asked in enlisted["asked"]:
        yield asked["record"], asked["until"]
    for event in subscribe(kinds=("handler_asked",), after=enlisted["after"], service=service):
        asked = event["payload"]
        record, until_s = asked["record"], asked["until_s"]
        if (asked.get("handler_id") or asked["handler"]) == enlisted["id"] and waiting.get(record["id"]) != until_s:
            yield record, until_s


def _keep(service: Service, path: str, wish: dict[str, Any], clock: Clock, stop: threading.Event) -> None:
    """Renew the lease well before it runs out."""
    while not stop.wait(wish["lease_s"] / 3):
        try:
            clock.hear(service.ask("PUT", path, wish)["now"])
        except PerdureError:
            continue  # the next try comes before the lease has run out


def _give_up(service: Service, path: str) -> None:
    try:
        service.ask("DELETE", path)
    except PerdureError:
        return  # its lease runs out by itself


def _patiently(service: Service, method: str, path: str, body: Any, may_come: type[PerdureError] = ClusterBusy) -> Any:
    """Ask, and again while the service is away or `may_come` is its answer. It must be harmless to send twice."""
    pause_s = FIRST_PAUSE_S
    for left in range(TRIES - 1, -1, -1):
        try:
            return service.ask(method, path, body)
        except (ClusterBusy, may_come):
            if not left:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    raise AssertionError


def _events(answer: HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    """Read a stream of events; only what this service writes: one line of data each."""
    fields: dict[str, str] = {}
    while line := answer.readline(MAX_LINE_BYTES):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith(":"):
            continue
        if text:
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield fields.get("id", "0"), fields.get("event", ""), json.loads(fields.get("data", "null"))
            fields = {}


def _refusal(where: str, status: int, data: bytes) -> PerdureError:
    try:
        problem = json.loads(data)
        what, fix = str(problem["detail"]), str(problem.get("fix") or "See the service's log").rstrip(".")
        where = str(problem.get("where") or where)
    except (ValueError, KeyError, TypeError):
        what, fix = f"HTTP {status}", "See the service's log"
    if status == 409 and "replaced" in what:
        return Fenced(where, what, fix)
    return _ERRORS.get(status, ClusterError)(where, what, fix)
