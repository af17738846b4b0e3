"""What the API server has of one kind of objects: listed once, then watched, in a thread of its own.

Level, not edge: what counts is the state that is held. A watch that ends, is cut off or has expired costs a new one,
or a new list; an event that comes twice or late changes nothing, as each object says which version it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from perdure.backends.kubernetes.api import ClusterApi, VersionExpired, WatchLine
from perdure.backends.kubernetes.held import HeldObject, MirrorView
from perdure.backends.kubernetes.objects import Document, uid_of, version_of
from perdure.backends.kubernetes.resources import ResourceKind
from perdure.errors import ClusterBusy, PerdureError

FIRST_PAUSE_S = 0.2  # after trouble; doubles up to the longest
LONGEST_PAUSE_S = 20.0
REMEMBERED_S = 600.0  # how long what is gone is held, as it was last seen
MAX_GONE = 20_000
MAX_STALE = 5  # lists that are older than what was seen: an API server that lags; more, and etcd was restored
NEVER_LISTED = "it has not been listed yet"


class Mirror:
    """The objects of a kind. `keep` reduces each to what is needed of it; what it returns None of is not held."""

    def __init__(
        self,
        api: ClusterApi,
        kind: ResourceKind,
        namespace: str = "",
        selector: str = "",
        keep: Callable[[dict[str, Any]], Document | None] = lambda document: document,
    ) -> None:
        self.kind = kind
        self._api = api
        self._namespace = namespace
        self._options: Mapping[str, str] = {"labelSelector": selector} if selector else {}
        self._keep = keep
        self._held: dict[str, HeldObject] = {}  # by uid
        self._gone: dict[str, HeldObject] = {}
        self._version = ""
        self._newest = 0  # version that was ever seen
        self._stale = 0  # lists in a row that were older
        self._trouble = NEVER_LISTED
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._shut: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind.plural}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def view(self) -> MirrorView:
        """What is known now."""
        with self._changed:
            self._forget(time.time())
            return MirrorView((*self._held.values(), *self._gone.values()), self._trouble)

    def wait_listed(self, timeout_s: float) -> bool:
        """Wait until the first list is in; False where it does not come in time, or cannot."""
        with self._changed:
            return self._changed.wait_for(lambda: self._trouble != NEVER_LISTED, timeout_s)

    def reach(self, version: str, timeout_s: float) -> bool:
        """Wait until a version that was written has come back; False where it does not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: _number(self._version) >= _number(version), timeout_s)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._shut()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            began_s = time.monotonic()
            try:
                if not self._version:
                    self._list()
                self._watch()
            except VersionExpired:
                self._version = ""
            except PerdureError as err:
                self._say(err.what)
            if time.monotonic() - began_s > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S  # it went well for a while
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if self._trouble else FIRST_PAUSE_S

    def _list(self) -> None:
        version, found = self._api.list_all(self.kind, self._namespace, **self._options)
        now = time.time()
        with self._changed:
            if _number(version) < self._newest and self._stale < MAX_STALE:
                self._stale += 1
                raise ClusterBusy(self.kind.plural, "a list is older than what was seen before", "List again")
            self._stale, self._newest = 0, _number(version)
            listed = {uid_of(each): each for each in found if uid_of(each) not in self._gone}
            for uid in self._held.keys() - listed.keys():
                self._bury(uid, self._held[uid].document, now)
            reduced = {uid: self._keep(each) for uid, each in listed.items()}
            self._held = {uid: HeldObject(small) for uid, small in reduced.items() if small is not None}
            self._version = version
        self._say("")

    def _watch(self) -> None:
        with self._api.watch(self.kind, self._namespace, self._version, self._options) as (events, shut):
            self._shut = shut
            self._say("")
            for event in events:
                if self._stop.is_set():
                    return
                with self._changed:
                    self._take(event, time.time())
                    self._changed.notify_all()

    def _take(self, event: WatchLine, now: float) -> None:
        document, uid, version = event.object, uid_of(event.object), version_of(event.object)
        if event.type == "BOOKMARK":
            self._reached(version)
            return
        known = self._held.get(uid)
        if not uid or uid in self._gone or (known is not None and _is_older(version, known)):
            return
        self._reached(version)
        kept = self._keep(document) if event.type != "DELETED" or known is not None else None
        if event.type == "DELETED" or kept is None:
            self._bury(uid, kept if kept is not None else document, now)
        elif event.type in ("ADDED", "MODIFIED"):
            self._held[uid] = HeldObject(kept)

    def _reached(self, version: str) -> None:
        self._version = version or self._version
        self._newest = max(self._newest, _number(version))

    def _bury(self, uid: str, document: Document, now: float) -> None:
        if self._held.pop(uid, None) is not None:
            self._gone[uid] = HeldObject(document, now)

    def _forget(self, now: float) -> None:
        for uid in [u for u, held in self._gone.items() if now - (held.gone_s or 0.0) > REMEMBERED_S]:
            del self._gone[uid]
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _say(self, trouble: str) -> None:
        with self._changed:
            self._trouble = trouble
            self._changed.notify_all()


def _is_older(version: str, held: HeldObject) -> bool:
    return _number(version) < _number(version_of(held.document))


def _number(version: str) -> int:
    """Resource versions of one kind grow; one that is no number comes before all others."""
    return int(version) if version.isdecimal() else 0
