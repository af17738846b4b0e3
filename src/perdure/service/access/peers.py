"""Who is at the other end: of the Unix socket a user, by the kernel's own word; of TCP an address, and no user.

The protocol below puts that into the state of each request of a connection. No header reaches that state.
"""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure.service.access.auth import Identity, Role

PEER = "perdure_peer"  # in the state of a request: a `Peer`
_CREDENTIALS = struct.Struct("iII")  # process, user, group
_ALL_IDS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: a user on a Unix socket, an address over TCP."""

    uid: int | None = None
    address: str = ""


NOBODY_KNOWN = Peer()


class PeerProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, with the peer of the connection in the state of its requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, PEER: _peer(transport)}
        super().connection_made(transport)


def _peer(transport: asyncio.Transport) -> Peer:
    """Ignores what proxies write into headers of the addresses that they speak for."""
    name = transport.get_extra_info("peername")
    address = str(name[0]) if isinstance(name, tuple) and name else ""
    return Peer(peer_of(transport.get_extra_info("socket")), address)


def peer_of(sock: Any) -> int | None:
    """The user at the other end; None for anything but a Unix socket."""
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    try:
        _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    except (OSError, struct.error):
        return None
    return uid if uid != _ALL_IDS else None


def identity_of(uid: int) -> Identity | None:
    """What a user may do without a token: see its own jobs, and no more, be it root.

    Root may be that of a container, or a proxy that asks for others; the machine's root can read the service's token.
    None where the kernel cannot tell users apart, as the service runs in a namespace that does not know them all.
    """
    return Identity(_name(uid), Role.VIEWER, own_only=True) if _knows_all_users() else None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)  # as jobs of users without a name are shown


def _knows_all_users() -> bool:
    """Whether the service's user namespace is the machine's own: in another, strangers all look like nobody."""
    try:
        first = Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return False
    return [int(word) for word in first[:3]] == [0, 0, _ALL_IDS]
