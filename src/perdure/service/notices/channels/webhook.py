"""A webhook: JSON, signed as the Standard Webhooks specification says (https://www.standardwebhooks.com).

The headers are ``webhook-id`` (the message's key: the same however often it is sent), ``webhook-timestamp`` (seconds
since the epoch, of this try) and ``webhook-signature``: ``v1,`` and the Base64 of HMAC-SHA256 over
``ID.TIMESTAMP.BODY``. A receiver refuses an old timestamp and an id that it has seen: so nothing can be replayed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from perdure.errors import ConfigError
from perdure.service.notices.channels.protocol import Delivery, instant
from perdure.service.notices.notice import Notice
from perdure.service.notices.secrets import Secret

if TYPE_CHECKING:
    from perdure.service.notices.network import AllowedNetwork

PREFIX = "whsec_"
FORM = "perdure.notice/1"
OLD_S = 300.0
_STAMP = re.compile("[0-9]{1,18}")


class Webhook(Struct, frozen=True, forbid_unknown_fields=True):
    """POST of JSON to `url`, signed with `secret`."""

    url: Secret
    secret: Secret = field(default_factory=Secret)
    ca_file: Path | None = None

    is_personal = False

    def send(self, delivery: Delivery, network: AllowedNetwork) -> None:
        body = json.dumps(_document(delivery)).encode()
        key = delivery.message.key
        headers = {"Content-Type": "application/json", "webhook-id": key, "Idempotency-Key": key}
        if self.secret:
            stamp = f"{delivery.now:.0f}"
            headers |= {"webhook-timestamp": stamp, "webhook-signature": sign(self.secret.read(), key, stamp, body)}
        network.post(self.url.read(), headers, body, self.ca_file)

    def check(self, network: AllowedNetwork) -> str:
        if self.secret:
            _key_of(self.secret.read())
        return network.checked_host(self.url.read())


def sign(secret: str, key: str, stamp: str, body: bytes) -> str:
    """The signature of a body. Raises `ConfigError` for a ``whsec_`` secret that is not Base64."""
    signed = f"{key}.{stamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key_of(secret), signed, hashlib.sha256).digest()).decode()


def verified(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """What a receiver has to do: whether the body is as it was signed, not long ago."""
    key, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not _STAMP.fullmatch(stamp) or abs(now - int(stamp)) > OLD_S:
        return False
    return hmac.compare_digest(sign(secret, key, stamp, body), headers.get("webhook-signature", ""))


def _key_of(secret: str) -> bytes:
    """A secret that begins with ``whsec_`` holds the key in Base64; any other is the key."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as err:
        raise ConfigError("secret", "is not Base64 behind whsec_", "Make one: openssl rand -base64 32") from err


def _document(delivery: Delivery) -> dict[str, Any]:
    message = delivery.message
    return {
        "schema": FORM,
        "key": message.key,
        "cluster": message.cluster,
        "kind": message.kind,
        "severity": message.kind.severity,
        "title": message.title,
        "count": message.count,
        "first": instant(message.first_s),
        "last": instant(message.last_s),
        "link": delivery.link,
        "notices": [_item(delivery, notice) for notice in message.notices],
    }


def _item(delivery: Delivery, notice: Notice) -> dict[str, str]:
    return {
        "about": notice.name,
        "user": notice.user,
        "partition": notice.partition,
        "detail": notice.detail,
        "time": instant(notice.time_s),
        "link": delivery.link_to(notice.path),
    }
