"""Browsers that are logged in; a restart of the service does not log them out.

The file ``STATE/sessions.json`` keeps the SHA-256 of each cookie, and until when it counts by the time of day. While
the service runs, how long a session lives goes by a clock that nobody sets; after a restart it lives as long as it had
left, and never longer than a new one.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perdure.errors import StateError
from perdure.service.access.auth import Identity, Role, TokenBook, digest
from perdure.trust import read_secret, write_secret

log = logging.getLogger("perdure")

FILE_NAME = "sessions.json"
MAX_FILE_BYTES = 1 << 20
MAX_SESSIONS = 1000
SESSION_LIFE_S = 12 * 3600.0


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has logged in. `csrf` must come with everything that it asks to be changed."""

    identity: Identity
    csrf: str
    until_s: float  # by the clock that nobody sets

    def vouches_for(self, csrf: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), csrf.encode("utf-8", "replace"))


class Sessions:
    """The browsers that are logged in; bounded, the oldest gives way."""

    def __init__(
        self,
        tokens: TokenBook,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._tokens = tokens
        self._clock, self._wall = clock, wall
        self._lock = threading.Lock()
        self._path: Path = tokens.path.with_name(FILE_NAME)
        self._sessions = self._kept()

    def open(self, identity: Identity) -> str:
        """Begin a session; returns the secret for the cookie."""
        secret = secrets.token_urlsafe(32)
        session = Session(identity, secrets.token_urlsafe(24), self._clock() + SESSION_LIFE_S)
        with self._lock:
            self._sessions[digest(secret)] = session
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
            self._keep()
        return secret

    def find(self, secret: str) -> Session | None:
        """The session of a cookie; None where it is unknown or over, or its token was revoked."""
        with self._lock:
            session = self._sessions.get(digest(secret))
        if session is None:
            return None
        token_id = session.identity.token_id
        if self._clock() >= session.until_s or (token_id and not self._tokens.holds(token_id)):
            self.close(secret)
            return None
        return session

    def close(self, secret: str) -> None:
        with self._lock:
            if self._sessions.pop(digest(secret), None):
                self._keep()

    # -- the file

    def _keep(self) -> None:
        """Where that fails, on a full disk, the sessions last until the service ends."""
        ahead_s = self._wall() - self._clock()
        rows = [
            {"sha256": hashed, **asdict(session.identity), "csrf": session.csrf, "until_s": session.until_s + ahead_s}
            for hashed, session in self._sessions.items()
        ]
        try:
            write_secret(self._path, {"sessions": rows})
        except StateError as err:
            log.warning("sessions are not kept over a restart: %s", err)

    def _kept(self) -> OrderedDict[str, Session]:
        """Those that are not over; none from a file that is damaged."""
        rows: list[Any] = []
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            rows = read_secret(self._path, MAX_FILE_BYTES)["sessions"][-MAX_SESSIONS:]
        now, wall = self._clock(), self._wall()
        found = OrderedDict[str, Session]()
        for row in rows:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                left_s = min(SESSION_LIFE_S, float(row["until_s"]) - wall)
                who = Identity(str(row["user"]), Role(row["role"]), str(row["token_id"]), bool(row["own_only"]))
                who = replace(who, by_proxy=bool(row.get("by_proxy")))
                if left_s > 0:
                    found[str(row["sha256"])] = Session(who, str(row["csrf"]), now + left_s)
        return found
