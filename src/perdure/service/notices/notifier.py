"""The notifier: makes notices of what was journalled, and sends the messages. No decision waits for it.

One thread gathers; each target has a thread of its own, so that a dead one holds up no other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from shutil import disk_usage

from perdure.errors import ConfigError, NotDelivered, NoticeRefused
from perdure.log import Repeats
from perdure.service.notices import feed
from perdure.service.notices.channels.protocol import Channel, Delivery
from perdure.service.notices.derive import DiskSeen, NoticeFact, notices_of, subjects_of
from perdure.service.notices.network import AllowedNetwork
from perdure.service.notices.notice import Kind, Message, Notice
from perdure.service.notices.outbox import Outbox, Routing
from perdure.service.notices.rules import addresses_of, next_to_send, retry_at
from perdure.service.notices.settings import NoticesSettings
from perdure.service.store.database import Store

log = logging.getLogger("perdure")

READ_EVERY_S = 2.0
SEND_EVERY_S = 1.0
PRUNE_EVERY_S = 600.0
SETTLED = 1000  # events without a notice, after which the place is written down all the same

Count = Callable[[str, str], None]  # a target, and the result of a try: "sent" or "failed"


class Notifier:
    """`gather` and `send` are the turns of its threads; killed at any point, the next run goes on where it was."""

    def __init__(
        self,
        store: Store,
        cluster: str,
        settings: NoticesSettings,
        state: Path,
        base_url: str,
        clock: Callable[[], float],
        count: Count = lambda target, outcome: None,  # noqa: ARG005
        *,
        armed: bool = True,
    ) -> None:
        """`state` is the directory whose disk is watched, `base_url` where pages are if the settings do not say so."""
        self.outbox = Outbox(store, cluster)
        self._store, self._cluster, self._settings = store, cluster, settings
        self._state, self._clock, self._count, self._armed = state, clock, count, armed
        self._said = Repeats()
        self._base_url = settings.url or base_url
        self._network = network_of(settings)
        personal = settings.targets.personal
        self._routing = Routing(settings.in_force, personal, settings.group_s)
        self._seq: int | None = None
        self._written: int = 0
        self._pruned_s = clock()

    def begin(self) -> None:
        """Find the place in the journal from which to read. What happened before notices were set is told to nobody."""
        place = self.outbox.read_until()
        if place is None:
            place = feed.newest(self._store, self._cluster)
            self.outbox.add((), place, self._routing, self._clock())
        self._seq = self._written = place
        if gone := self.outbox.give_up_strangers(self._settings.targets.by_name, self._clock()):
            log.warning("notices: %d messages given up: their targets are not set any more", gone)

    def gather(self) -> None:
        """Make notices of what was journalled since, and see how full the disk is."""
        if self._seq is None:
            self.begin()
        more = True
        while more:
            more = self._gather_some()
        if not 0 <= self._clock() - self._pruned_s < PRUNE_EVERY_S:
            self.outbox.prune(self._clock())
            self._pruned_s = self._clock()

    def _gather_some(self) -> bool:
        now = self._clock()
        batch = feed.facts_after(self._store, self._cluster, self._seq or 0)
        facts = (*batch.facts, NoticeFact(DiskSeen(now, disk_usage(self._state).free >> 20)))
        told = self.outbox.told(subjects_of(facts, self._settings.disk_low_mib))
        found = notices_of(facts, told, now, self._settings.disk_low_mib, armed=self._armed)
        new = [notice for notice in found if self._is_for_somebody(notice)]
        if new or batch.seq - self._written >= SETTLED:
            if dropped := self.outbox.add(new, batch.seq, self._routing, now):
                log.warning("notices: %d find no room: too many messages wait", dropped)
            self._written = batch.seq
        self._seq = batch.seq
        return batch.more

    def _is_for_somebody(self, notice: Notice) -> bool:
        return any(True for _ in addresses_of(notice, self._routing.rules, self._routing.personal))

    def send(self, target: str) -> bool:
        """Send one message to a target, if one is due. True where one was tried.

        Raises `StateError` where the outbox cannot be written: then nothing was sent, or it is sent once more.
        """
        now, limits = self._clock(), self._settings.limits
        waiting = self.outbox.waiting(target)
        chosen = next_to_send(waiting, self.outbox.begun(target, now), limits, now) if waiting else None
        begun = self.outbox.begin(chosen.message.key, now) if chosen else None
        if begun is None:
            return False
        try:
            deliver(self._settings.targets.by_name[target], begun.message, self._base_url, now, self._network)
        except (NotDelivered, ConfigError) as err:
            again_s = retry_at(begun.tries + 1, begun.begun_s or now, limits, now)
            self.outbox.failed(begun, str(err), None if isinstance(err, NoticeRefused) else again_s, self._clock())
            self._count(target, "failed")
            if self._said.is_news(target, str(err), now):
                log.warning("notices to %s: %s", target, err)
            return True
        self.outbox.sent(begun, self._clock())
        self._count(target, "sent")
        if self._said.ended(target):
            log.warning("notices to %s: arrive again", target)
        return True


def deliver(channel: Channel, message: Message, base_url: str, now: float, network: AllowedNetwork) -> None:
    """Send a message once. Raises `NotDelivered`, `ConfigError`; nothing of a secret is in either."""
    try:
        channel.send(Delivery(message, base_url, now), network)
    except (NotDelivered, ConfigError):
        raise
    except Exception as err:  # whatever else goes wrong may carry the message, or a secret: its name alone is told
        raise NotDelivered("the message", f"cannot be sent ({type(err).__name__})", "Report this") from None


def trial_message(cluster: str, target: str, now: float, mark: str) -> Message:
    """A message without a notice; `mark` makes its key."""
    notice = Notice(Kind.TEST, "test", now, "perdure notices test", detail="what arrives here is told here")
    return Message(mark, cluster, target, Kind.TEST, (notice,), 1, now, now)


def network_of(settings: NoticesSettings) -> AllowedNetwork:
    return AllowedNetwork(settings.allow_hosts, settings.allow_link_local, settings.allow_http, settings.timeout_s)


def turns(notifier: Notifier, target: str, stop: threading.Event) -> tuple[Callable[[], object], Callable[[], object]]:
    """A turn of a target's thread, and the pause after it."""

    def turn() -> None:
        while notifier.send(target) and not stop.is_set():
            pass

    return turn, lambda: stop.wait(SEND_EVERY_S)
