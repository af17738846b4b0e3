"""Login by a reverse proxy that has logged its users in already, and names each one in a header.

The header counts only where it comes from a proxy that the settings name: over the Unix socket from one of its users,
as the kernel says, or over TCP from one of its addresses. From anybody else it is ignored, and that is logged.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import pwd
import re
import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers

from perdure.errors import NotPermitted, StateError, Unauthenticated
from perdure.log import Repeats
from perdure.service.access.auth import Identity, Role
from perdure.service.access.peers import Peer
from perdure.service.access.proxy.settings import SECRET_HEADER, ProxySettings
from perdure.trust import read_secret_text

log = logging.getLogger("perdure")

MAX_SECRET_BYTES = 8192
NOBODY = 65_534
MAX_GROUPS_CHARACTERS = 32_768
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ProxyLogin:
    """Knows whom a proxy has logged in. Safe to share between threads."""

    settings: ProxySettings = field(default_factory=ProxySettings)
    _said: Repeats = field(default_factory=Repeats, compare=False)

    def is_proxy(self, peer: Peer, headers: Headers) -> bool:
        """Whether a request comes from a proxy that the settings name."""
        if not self.settings.user_header:
            return False
        if peer.uid is not None:
            return peer.uid in map(_uid_of, self.settings.users)
        return self._is_among(peer.address) and self._knows_the_secret(headers)

    def identity(self, peer: Peer, headers: Headers) -> Identity | None:
        """Whom the proxy names; None where no proxy asks, or it names nobody.

        Raises `Unauthenticated` for a header that names nobody rightly, `NotPermitted` for a user of no group that may.
        """
        wanted = self.settings.user_header
        if not wanted or wanted not in headers:
            return None
        if not self.is_proxy(peer, headers):
            self._say_ignored(peer)
            return None
        user = _only(headers, wanted)
        if not _USER.fullmatch(user):
            raise Unauthenticated(wanted, "does not name one user", "See what the proxy sends")
        return Identity(user, self._role(user, headers), by_proxy=True)

    def _role(self, user: str, headers: Headers) -> Role:
        """Raises `NotPermitted`."""
        settings, groups = self.settings, self._groups(headers)
        if groups & set(settings.operators):
            return Role.OPERATOR
        if not settings.viewers or groups & set(settings.viewers):
            return Role.VIEWER
        raise NotPermitted(user, "is in no group that may look at this service", "Ask for one of proxy.viewers")

    def _groups(self, headers: Headers) -> frozenset[str]:
        wanted = self.settings.groups_header
        if not wanted or wanted not in headers:
            return frozenset()
        text = _only(headers, wanted)
        if len(text) > MAX_GROUPS_CHARACTERS:
            raise Unauthenticated(wanted, "is too long", "Let the proxy send fewer groups")
        return frozenset(group.strip() for group in text.split(",")) - {""}

    def _is_among(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.settings.networks)

    def _knows_the_secret(self, headers: Headers) -> bool:
        path = self.settings.secret_file
        if path is None:
            return True
        try:
            secret = read_secret_text(path, MAX_SECRET_BYTES).strip()
        except (OSError, ValueError, StateError) as err:
            if self._said.is_news("secret", str(err), time.monotonic()):
                log.warning("proxy.secret_file: %s: nobody is logged in by the proxy", err)
            return False
        given = headers.getlist(SECRET_HEADER)
        return bool(secret) and len(given) == 1 and hmac.compare_digest(given[0].encode(), secret.encode())

    def _say_ignored(self, peer: Peer) -> None:
        """Once in a while: strangers can make this happen as often as they like."""
        if self._said.is_news("ignored", "", time.monotonic()):
            whose = f"user {peer.uid}" if peer.uid is not None else peer.address or "an unknown address"
            log.warning("%s from %s is ignored: %s", self.settings.user_header, whose, self._why_no_proxy(peer))

    def _why_no_proxy(self, peer: Peer) -> str:
        if peer.uid is None and self._is_among(peer.address):
            return f"it came without the text of proxy.secret_file in {SECRET_HEADER}"
        return "that is not a proxy of the settings"


def _uid_of(user: str) -> int | None:
    """None for one that is not known, and for "nobody": so look all whom the service's namespace does not know."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
    return uid if uid != NOBODY else None


def _only(headers: Headers, name: str) -> str:
    """A header that is there once. Raises `Unauthenticated`: of two, one may be a client's own."""
    given = headers.getlist(name)
    if len(given) != 1:
        raise Unauthenticated(name, "is there more than once", "Let the proxy take out what its clients send")
    return given[0]
