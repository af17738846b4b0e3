"""Push messages by ntfy (https://ntfy.sh), as JSON: nothing of a job gets into a header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlunsplit

from msgspec import Struct, field

from perdure.errors import ConfigError
from perdure.service.notices.channels.protocol import Delivery, plain_lines
from perdure.service.notices.notice import Severity
from perdure.service.notices.secrets import Secret

if TYPE_CHECKING:
    from perdure.service.notices.network import AllowedNetwork

_PRIORITY = {Severity.INFO: 2, Severity.WARNING: 3, Severity.CRITICAL: 5}


class Ntfy(Struct, frozen=True, forbid_unknown_fields=True):
    """Publish to the topic at `url` (``https://HOST/TOPIC``), with the access token `token`."""

    url: Secret
    token: Secret = field(default_factory=Secret)
    ca_file: Path | None = None

    is_personal = False

    def send(self, delivery: Delivery, network: AllowedNetwork) -> None:
        server, topic = _parts(self.url.read(), network)
        body = {
            "topic": topic,
            "title": delivery.title,
            "message": "\n".join([*plain_lines(delivery), f"ref {delivery.reference}"]),
            "priority": _PRIORITY[delivery.message.kind.severity],
            "click": delivery.link,
        }
        headers = {"Content-Type": "application/json", "Idempotency-Key": delivery.message.key}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token.read()}"
        network.post(server, headers, json.dumps(body).encode(), self.ca_file)

    def check(self, network: AllowedNetwork) -> str:
        if self.token:
            self.token.read()
        _parts(self.url.read(), network)
        return network.checked_host(self.url.read())


def _parts(url: str, network: AllowedNetwork) -> tuple[str, str]:
    """The server and the topic: JSON is published to the first."""
    parts = network.checked(url)
    above, _, topic = parts.path.rpartition("/")
    if not topic or parts.query:
        raise ConfigError("url", "names no topic", "Write https://HOST/TOPIC")
    return urlunsplit((parts.scheme, parts.netloc, f"{above}/", "", "")), unquote(topic)
