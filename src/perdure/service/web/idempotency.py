"""Requests that are sent twice are carried out once: ``Idempotency-Key``."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from perdure.errors import ClusterBusy, InputError

MAX_REPLIES = 1000
MAX_KEY = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Reply:
    asked: str  # digest of what was asked for
    value: object  # None while it is being carried out


class Replies:
    """The answers given under the latest keys; in memory, so a key holds as long as the service runs.

    Actions on jobs and nodes are safe beyond that: their own keys are made from what they are about.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replies: OrderedDict[tuple[str, str], _Reply] = OrderedDict()

    def once(self, by: str, key: str | None, body: object, what: str, act: Callable[[], T]) -> T:
        """Carry out `act`, unless `by` has sent `key` before: then repeat what was answered.

        Raises `InputError` for a key that was sent with another request, `ClusterBusy` while that one runs.
        """
        if key is None:
            return act()
        if not key or len(key) > MAX_KEY:
            raise InputError("Idempotency-Key", f"not 1 to {MAX_KEY} characters long", "Send a UUID")
        place = (by, key)
        asked = hashlib.sha256(f"{what}\n{body!r}".encode("utf-8", "replace")).hexdigest()
        with self._lock:
            if old := self._replies.get(place):
                return cast("T", _repeated(old, asked))
            self._replies[place] = _Reply(asked, None)
            while len(self._replies) > MAX_REPLIES:
                self._replies.popitem(last=False)
        try:
            value = act()
        except BaseException:
            with self._lock:
                self._replies.pop(place, None)
            raise
        with self._lock:
            self._replies[place] = _Reply(asked, value)
        return value


def _repeated(old: _Reply, asked: str) -> object:
    if old.asked != asked:
        raise InputError("Idempotency-Key", "sent before with another request", "Take a new one for each request")
    if old.value is None:
        raise ClusterBusy("Idempotency-Key", "the same request is being carried out", "Ask again in a moment")
    return old.value
