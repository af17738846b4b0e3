"""Mail by SMTP, with STARTTLS unless told otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, field

from perdure.errors import ConfigError
from perdure.service.notices.channels.protocol import Delivery, plain_lines
from perdure.service.notices.notice import of_text
from perdure.service.notices.secrets import Secret

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

    from perdure.service.notices.network import AllowedNetwork

USER = "{user}"
MAX_SUBJECT = 200  # characters
_USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_ADDRESS = re.compile(r"[A-Za-z0-9_.+{}=-]+@[A-Za-z0-9.-]+")


class Tls(StrEnum):
    """When the connection is encrypted."""

    STARTTLS = "starttls"
    TLS = "tls"  # from its begin
    NONE = "none"


class Mail(Struct, frozen=True, forbid_unknown_fields=True):
    """Mail from `sender` to all of `to`; ``{user}`` in an address stands for the user whose job it is about."""

    host: str
    sender: str
    to: tuple[str, ...]
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0  # 0: 465 with "tls", else 587
    tls: Tls = Tls.STARTTLS
    login: str = ""
    password: Secret = field(default_factory=Secret)
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        for address in (self.sender, *self.to):
            if not _ADDRESS.fullmatch(address) or (address is self.sender and USER in address):
                raise ValueError(f"{address!r} is not a mail address")
        if not self.to:
            raise ValueError("to names nobody")
        if self.login and not self.password:
            raise ValueError("login needs password_file or password_env")
        if self.login and self.tls is Tls.NONE:
            raise ValueError("a password is not sent without TLS")

    @property
    def is_personal(self) -> bool:
        return any(USER in address for address in self.to)

    def send(self, delivery: Delivery, network: AllowedNetwork) -> None:
        mail = letter(delivery, self.sender, self._recipients(delivery.message.whose))
        with self._session(network) as smtp:
            smtp.send_message(mail)

    def check(self, network: AllowedNetwork) -> str:
        if self.login:
            self.password.read()
        with self._session(network):
            return f"{self.host}, {len(self.to)} addresses"

    def _recipients(self, whose: str) -> tuple[str, ...]:
        """Raises `ConfigError` for a user whose name cannot be part of an address."""
        if self.is_personal and not _USER_NAME.fullmatch(whose):
            raise ConfigError("to", "a user's name cannot be part of a mail address", "Write addresses without {user}")
        return tuple(address.replace(USER, whose) for address in self.to)

    @contextmanager
    def _session(self, network: AllowedNetwork) -> Iterator[smtplib.SMTP]:
        """A connection on which mail can be sent."""
        from perdure.service.notices.network import tls_context
        from perdure.service.notices.smtp import Connected, told_as

        port = self.port or (465 if self.tls is Tls.TLS else 587)
        context = tls_context(self.ca_file) if self.tls is not Tls.NONE else None
        with network.connection(self.host, port) as sock, told_as(self.host):
            if context is not None and self.tls is Tls.TLS:
                sock = context.wrap_socket(sock, server_hostname=self.host)
            smtp = Connected(sock, self.host, network.timeout_s)
            if context is not None and self.tls is Tls.STARTTLS:
                smtp.starttls(context=context)
            if self.login:
                smtp.login(self.login, self.password.read())
            yield smtp
            with suppress(OSError):  # smtplib's own among them; it is delivered by now
                smtp.quit()


def letter(delivery: Delivery, sender: str, to: tuple[str, ...]) -> EmailMessage:
    """The mail. Its Message-ID is made of the message's key: mail servers drop doubles by it."""
    from email.message import EmailMessage  # a command that only reads the settings does without
    from email.policy import SMTP
    from email.utils import format_datetime

    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"] = sender, ", ".join(to)
    mail["Subject"] = of_text(delivery.title, MAX_SUBJECT)
    mail["Message-ID"] = f"<{delivery.message.key}@{sender.rpartition('@')[2]}>"
    mail["Date"] = format_datetime(datetime.fromtimestamp(delivery.now, UTC))
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(
        "\n".join([*plain_lines(delivery), "", f"Read it at {delivery.link}", f"ref {delivery.reference}"])
    )
    return mail
