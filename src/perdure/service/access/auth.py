"""Who asks, and what they may: tokens, and login codes of one use.

A token is 256 random bits; the file keeps its SHA-256 alone, which is enough for a secret that cannot be guessed.
Codes and the service's own token live in memory: a restart of the service ends them. How long codes live goes by a
clock that nobody sets.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from perdure.errors import InputError, NotFound, StateError
from perdure.trust import read_secret, write_secret

FILE_NAME = "tokens.json"
TOKEN_PREFIX = "pdr_"  # noqa: S105, so that scanners for leaked secrets can know one
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_CODES, MAX_OWN_CODES = 1000, 5
CODE_LIFE_S = 15 * 60.0


class Role(StrEnum):
    """What a token may do."""

    VIEWER = "viewer"  # sees how everything stands, and the logs of one user's jobs
    OPERATOR = "operator"  # sees all, and acts

    def covers(self, needed: Role) -> bool:
        return self is Role.OPERATOR or needed is Role.VIEWER


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. `token_id` is "" where no token is behind it (the login code of the service's own start)."""

    user: str
    role: Role
    token_id: str = ""
    own_only: bool = False  # without a token: of the user's own jobs alone
    by_proxy: bool = False  # a reverse proxy's word, which must come with each request

    def may_see(self, user: str) -> bool:
        """Whether jobs of this user may be shown."""
        return not self.own_only or (bool(user) and user == self.user)

    def may_read_logs_of(self, user: str) -> bool:
        """Operators read all; others only their own. A job without a user is nobody's own."""
        return self.role is Role.OPERATOR or (bool(user) and user == self.user)


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """What is kept of a token."""

    id: str
    sha256: str
    user: str
    role: Role
    created_s: float


class TokenBook:
    """The tokens in ``STATE/tokens.json``, and login codes of one use. Safe to use from many threads.

    The file is read again whenever it has changed, so a token minted or revoked by another process counts at once.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = state / FILE_NAME
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._by_hash: dict[str, TokenEntry] = {}
        self._own: dict[str, Identity] = {}  # known as long as this process lives
        self._codes: OrderedDict[str, tuple[Identity, float]] = OrderedDict()

    def mint(self, user: str, role: Role) -> str:
        """Make a token; it is known to the caller alone. Raises `InputError`, `StateError`."""
        if not user or not user.isprintable() or set(user) & set(" /") or len(user) > 256:
            fix = "Give a name without blanks and slashes, of at most 256 characters"
            raise InputError("user", f"{user[:40]!r} is not a user name", fix)
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        entry = TokenEntry(secrets.token_hex(6), digest(token), user, role, time.time())
        with self._changing() as entries:
            entries.append(entry)
        return token

    def own(self, user: str, role: Role) -> str:
        """A token that this book alone knows and that ends with it, however the process ends."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self._lock:
            self._own[digest(token)] = Identity(user, role)
        return token

    def revoke(self, token_id: str) -> None:
        """Revoke a token and the sessions that were opened with it. Raises `NotFound`."""
        with self._changing() as entries:
            kept = [entry for entry in entries if entry.id != token_id]
            if len(kept) == len(entries):
                raise NotFound(token_id, "no such token", "See the ids: perdure token --list")
            entries[:] = kept

    def entries(self) -> tuple[TokenEntry, ...]:
        """Every token that is kept, the oldest first. Raises `StateError`."""
        return tuple(self._read())

    def find(self, token: str) -> Identity | None:
        """Whose token this is; None for one that is not known."""
        with self._lock:
            if own := self._own.get(digest(token)):
                return own
            self._read_if_changed()
            entry = self._by_hash.get(digest(token))
        return Identity(entry.user, entry.role, entry.id) if entry else None

    def holds(self, token_id: str) -> bool:
        """False once the token of that id has been revoked."""
        with self._lock:
            self._read_if_changed()
            return any(entry.id == token_id for entry in self._by_hash.values())

    def login_code(self, who: Identity) -> str:
        """A code that logs a browser in once, within a quarter of an hour: ``/?code=CODE``."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            own = [known for known, (other, _) in self._codes.items() if other == who]
            for known in own[: max(0, len(own) - MAX_OWN_CODES + 1)]:  # nobody drives out another's
                del self._codes[known]
            self._codes[digest(code)] = (who, self._clock() + CODE_LIFE_S)
            while len(self._codes) > MAX_CODES:
                self._codes.popitem(last=False)
        return code

    def redeem(self, code: str) -> Identity | None:
        """Whom a login code stands for; None for one that is unknown, used or too old."""
        with self._lock:
            identity, until_s = self._codes.pop(digest(code), (None, 0.0))
        return identity if self._clock() < until_s else None

    # -- the file

    def _read_if_changed(self) -> None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._by_hash = None, {}
            return
        except OSError as err:
            raise StateError(str(self.path), f"cannot be read: {err.strerror}", "Fix its permissions") from err
        stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        if stamp != self._stamp:
            self._by_hash = {entry.sha256: entry for entry in self._read()}
            self._stamp = stamp

    def _read(self) -> list[TokenEntry]:
        try:
            rows = read_secret(self.path, MAX_FILE_BYTES)["tokens"]
            return [TokenEntry(**{**row, "role": Role(row["role"])}) for row in rows]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as err:
            raise StateError(str(self.path), "is not a file of tokens", "Remove it and mint new ones") from err

    @contextmanager
    def _changing(self) -> Iterator[list[TokenEntry]]:
        """Read, let the caller change, and put back: alone among all processes that do this."""
        lock_path = self.path.with_suffix(".lock")
        try:
            fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as err:
            raise StateError(str(lock_path), f"cannot be written: {err.strerror}", "Fix its permissions") from err
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            entries = self._read()
            yield entries
            write_secret(self.path, {"tokens": [asdict(entry) for entry in entries]})
        finally:
            os.close(fd)


def id_of(book: TokenBook, token: str) -> str:
    """The id of a token that was just minted; "" where it has been revoked since."""
    found = book.find(token)
    return found.token_id if found else ""


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
