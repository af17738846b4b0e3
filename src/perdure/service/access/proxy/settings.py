"""What may be set of logins by a reverse proxy, and which settings would let in whom nobody meant."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from perdure.errors import ConfigError

SECRET_HEADER = "X-Perdure-Proxy"  # noqa: S105, a header's name
_HEADER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}", re.ASCII)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Login by a reverse proxy's header; tokens go on to work."""

    user_header: str = ""
    """Header in which the proxy names the user that it has logged in (``X-Forwarded-User``, ``Remote-User``); "":
    nobody is logged in so. The proxy must take it out of what its clients send."""
    groups_header: str = ""
    """Header with the user's groups, separated by commas (``X-Forwarded-Groups``, ``Remote-Groups``)."""
    operators: tuple[str, ...] = ()
    """Groups whose members are operators."""
    viewers: tuple[str, ...] = ()
    """Groups whose members are viewers; empty: everybody whom the proxy names."""
    users: tuple[str, ...] = ()
    """Users as whom the proxy runs, where it connects to the service's Unix socket (``nginx``): `service.socket`."""
    addresses: tuple[str, ...] = ()
    """Addresses or networks from which the proxy connects over TCP (``10.0.0.5``, ``10.0.1.0/24``). Loopback ones need
    `secret_file`: every user of this machine connects from there."""
    secret_file: Path | None = None
    """File of mode 600 with a text that the proxy must send in the header ``X-Perdure-Proxy``, over TCP."""

    @property
    def networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(address) for address in self.addresses)


def check_proxy(settings: ProxySettings, where: str) -> None:
    """Raises `ConfigError` for settings that would let in whom nobody meant."""
    for name in (settings.user_header, settings.groups_header):
        if name and (not _HEADER.fullmatch(name) or name.lower() in _NOT_OURS):
            raise ConfigError(where, f"{name!r} is not a header that can name a user", "Give X-Forwarded-User")
    if not settings.user_header:
        return
    try:
        networks = settings.networks
    except ValueError as err:
        raise ConfigError(where, str(err), "Give addresses or networks") from err
    if not networks and not settings.users:
        raise ConfigError(where, "no proxy is trusted", "Set proxy.users or proxy.addresses")
    if settings.secret_file is None and any(_holds_loopback(network) for network in networks):
        fix = "Set proxy.secret_file, or let the proxy use the Unix socket and set proxy.users"
        raise ConfigError(where, "every user of this machine connects from a loopback address", fix)
    if (settings.operators or settings.viewers) and not settings.groups_header:
        raise ConfigError(where, "groups are named, and no header that tells them", "Set proxy.groups_header")
    if settings.groups_header.lower() == settings.user_header.lower():
        raise ConfigError(where, "one header cannot tell user and groups", "Name another in proxy.groups_header")


_NOT_OURS = ("authorization", "cookie", "host", "x-csrf-token", "content-type", "content-length", SECRET_HEADER.lower())
_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


def _holds_loopback(network: Network) -> bool:
    """An IPv4 network written as IPv6 (``::ffff:0:0/96``) matches nothing: mapped addresses are looked at as IPv4."""
    return any(network.version == each.version and network.overlaps(each) for each in _LOOPBACK)
