"""How a command talks to the running service: HTTP, at the address that the service's file names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from perdure.client import Service
from perdure.errors import ClusterBusy, ClusterError, InputError, NotFound, NotPermitted, PerdureError, StateError
from perdure.service.access.service_file import ServiceFile, how_to_start

MACHINE_SOCKET = Path("/run/perdure/perdure.sock")  # where a site lets all its users ask: service.socket
LOCAL_URL = "http://localhost"
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Client:
    """The API of a running service. Every method raises a `PerdureError` that says what went wrong where."""

    def __init__(
        self, url: str, token: str, *, fix: str = "Check the URL", timeout_s: float = 30.0, socket_path: str = ""
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise InputError(url, "is not an http or https URL", "Write it like http://127.0.0.1:8470")
        self.url = url.rstrip("/")
        self._token = token
        self._fix = fix
        self._service = Service(self.url, token, socket_path, timeout_s)

    @classmethod
    def of(cls, state: Path, env: Mapping[str, str]) -> Client:
        """The service that ``PERDURE_URL`` or ``PERDURE_SOCKET`` names, or else the one of a state directory.

        ``PERDURE_TOKEN`` says who asks. Whoever may not read that directory asks on the machine's Unix socket, where
        no token is needed.
        """
        token = env.get("PERDURE_TOKEN", "")
        if url := env.get("PERDURE_URL"):
            return cls(url, token, fix="Check PERDURE_URL, and that the service runs there")
        if named := env.get("PERDURE_SOCKET"):
            return cls(LOCAL_URL, token, fix="Check PERDURE_SOCKET, and that the service runs there", socket_path=named)
        try:
            found = ServiceFile.read(state)
        except (NotFound, StateError):
            if not MACHINE_SOCKET.is_socket():
                raise
            return cls(LOCAL_URL, token, fix="Ask the operator of the service", socket_path=str(MACHINE_SOCKET))
        return cls(found.url, token or found.token, fix=how_to_start(state))

    def get(self, path: str, **query: str | int | None) -> Any:
        """The JSON answer to a GET of ``/api/v1`` + `path`; each segment must be quoted by `segment`."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", f"{path}?{urlencode(given, errors='replace')}" if given else path)

    def post(self, path: str, body: Mapping[str, Any] | Sequence[Any] | None = None) -> Any:
        """The JSON answer to a POST."""
        return self._ask("POST", path, body or {})

    @property
    def token(self) -> str:
        """What it is asked with; for a stream, which this cannot read."""
        return self._token

    def pages(self, path: str, limit: int, **query: str | int | None) -> Iterator[dict[str, Any]]:
        """Up to `limit` items of a listing, following its cursor."""
        cursor: str | None = None
        while limit > 0:
            page = self.get(path, limit=min(limit, 200), cursor=cursor, **query)
            yield from page["items"][:limit]
            limit -= len(page["items"])
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            status, data = self._service.exchange(method, path, body, MAX_ANSWER_BYTES)
        except (HTTPException, OSError) as err:
            raise ClusterBusy(self.url, f"the service does not answer ({err})", self._fix) from err
        except PerdureError:
            raise
        except ValueError as err:  # a header or an address that HTTP cannot carry; the header is the token
            if "header" in str(err):
                raise InputError("PERDURE_TOKEN", "holds a character that no token has", "Copy it again") from None
            raise InputError(self.url, str(err), self._fix) from err
        if status >= 300:
            raise self._refusal(status, data)
        return self._decoded(data)

    def _decoded(self, data: bytes) -> Any:
        try:
            return json.loads(data) if data else None
        except ValueError as err:
            raise ClusterError(self.url, "answered with something that is not JSON", self._fix) from err

    def _refusal(self, status: int, data: bytes) -> PerdureError:
        """The error that an answer of RFC 9457 stands for."""
        try:
            problem = json.loads(data)
            what = str(problem.get("detail") or problem.get("title") or f"HTTP {status}").rstrip(".")
            where, fix = str(problem.get("where") or self.url), str(problem.get("fix") or "").rstrip(".")
        except (ValueError, AttributeError):
            what, where, fix = f"HTTP {status}", self.url, ""
        where = self.url if where.startswith("/") else _PART_OF_A_REQUEST.sub(r"\1", where)
        fix = "" if "/api/" in fix else fix  # a route is nothing to a person at a terminal
        if status == 401 and not self._token:
            return NotPermitted(self.url, "PERDURE_TOKEN is not set", "Ask its operator for one: perdure token USER")
        if status in (401, 403):
            return NotPermitted(where, what, fix or "Use a token with the role for it: perdure token USER --role ROLE")
        if status == 404:
            return NotFound(where, what, fix or "List what there is: perdure jobs, perdure nodes, perdure actions")
        if status in (400, 413, 422):
            return InputError(where, what, fix or "See --help")
        if status in (429, 502, 503, 504):
            return ClusterBusy(where, what, fix or "Try again")
        return ClusterError(where, what, fix or "See the service's own log")


_PART_OF_A_REQUEST = re.compile(r"^(?:query|body|path)\.(.*?)(?:\.\d+)?$")
# "query.state.0" is the option that names a state; an address such as 0.0.0.0 does not


def segment(text: str) -> str:
    """A part of a path, quoted whole: job ids and node names come from elsewhere."""
    return quote(text, safe="", errors="replace")
