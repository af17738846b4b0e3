"""Incoming webhooks as Slack has them; Mattermost, Rocket.Chat and others take the same.

Text of a job is between backquotes: there neither Slack nor Mattermost reads links, mentions or markup.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from perdure.service.notices.channels.protocol import Delivery
from perdure.service.notices.notice import Notice, Severity
from perdure.service.notices.secrets import Secret

if TYPE_CHECKING:
    from perdure.service.notices.network import AllowedNetwork

_SIGNS = {Severity.INFO: ":information_source:", Severity.WARNING: ":warning:", Severity.CRITICAL: ":rotating_light:"}


class Slack(Struct, frozen=True, forbid_unknown_fields=True):
    """POST of a text to the incoming webhook at `url`, which is a secret."""

    url: Secret
    ca_file: Path | None = None

    is_personal = False

    def send(self, delivery: Delivery, network: AllowedNetwork) -> None:
        body = json.dumps({"text": text_of(delivery), "unfurl_links": False}).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": delivery.message.key}
        network.post(self.url.read(), headers, body, self.ca_file)

    def check(self, network: AllowedNetwork) -> str:
        return network.checked_host(self.url.read())


def text_of(delivery: Delivery) -> str:
    """The message in Slack's mrkdwn."""
    sign, link = _SIGNS[delivery.message.kind.severity], _entities(delivery.link)
    lines = [f"{sign} *{_entities(delivery.title)}*"]
    lines += [f"• {_line(notice)}" for notice in delivery.message.notices]
    lines += [f"• {delivery.rest}"] if delivery.rest else []
    return "\n".join([*lines, f"<{link}|Open the page> (ref {delivery.reference})"])


def _line(notice: Notice) -> str:
    whose = f" of {code(notice.user)}" if notice.user else ""
    return f"{code(notice.name)}{whose}" + (f": {code(notice.detail)}" if notice.detail else "")


def code(text: str) -> str:
    """Hostile text that is shown as it is.

    >>> code("<!channel> `*a*`")
    "`&lt;!channel&gt; '*a*'`"
    """
    return f"`{_entities(text.replace('`', chr(39)))}`"


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
