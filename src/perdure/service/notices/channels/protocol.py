"""What a channel is: a frozen value whose fields are the keys of a target in the settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from perdure.service.notices.notice import Message, Notice

if TYPE_CHECKING:
    from perdure.service.notices.network import AllowedNetwork


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message on its way: `base_url` is where people reach the pages, `now` the instant of this try."""

    message: Message
    base_url: str
    now: float

    @property
    def title(self) -> str:
        return f"[{self.message.cluster}] {self.message.title}"

    @property
    def link(self) -> str:
        """Where it is to be read."""
        return self.link_to(self.message.path)

    @property
    def reference(self) -> str:
        """By which a person sees that two messages are one."""
        return self.message.key[:8]

    @property
    def rest(self) -> str:
        """The line for notices that are not named; "" where all are."""
        return f"and {self.message.unnamed} more" if self.message.unnamed else ""

    def link_to(self, path: str) -> str:
        return self.base_url.rstrip("/") + path


class Channel(Protocol):
    """A way to tell people. What a message names is hostile text: a channel escapes it."""

    @property
    def is_personal(self) -> bool:
        """Whether each message goes to the user whose job it is about."""

    def send(self, delivery: Delivery, network: AllowedNetwork) -> None:
        """Deliver. Raises `NotDelivered` where trying again may help, as `NoticeRefused` where it cannot.

        `ConfigError` says that a setting is in the way.
        """

    def check(self, network: AllowedNetwork) -> str:
        """Where messages go, without a secret. Sends nothing. Raises as `send` does."""


def line_of(notice: Notice) -> str:
    """A notice on one line of plain text."""
    whose = f" of {notice.user}" if notice.user else ""
    return f"{notice.name}{whose}" + (f": {notice.detail}" if notice.detail else "")


def instant(time_s: float) -> str:
    """An instant in ISO 8601, in UTC."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")


def plain_lines(delivery: Delivery) -> list[str]:
    """What happened, as lines of plain text."""
    lines = [line_of(notice) for notice in delivery.message.notices]
    return [*lines, delivery.rest] if delivery.rest else lines
