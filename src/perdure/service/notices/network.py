"""Connections to targets: only to hosts and addresses that are allowed, within a time, and never by a redirect.

A name is looked up once, each of its addresses is checked, and the connection goes to the address that was checked.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from perdure.errors import ConfigError, NotDelivered, NoticeRefused

MAX_ANSWER = 4096  # bytes that are read of an answer
USER_AGENT = "perdure"
TRIED_AGAIN = "It is tried again"
METADATA = frozenset(  # of clouds, outside the link-local range
    map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
)

MAY_PASS = (408, 425, 429)  # of the statuses that refuse: time-out, too early, too many requests

_PORTS = {"https": 443, "http": 80}
_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class AllowedNetwork:
    """What may be connected to, and for how long."""

    allow_hosts: tuple[str, ...] = ()  # "hooks.slack.com", "*.site.org"; empty: every host that a target names
    allow_link_local: bool = False
    allow_http: bool = False
    timeout_s: float = 10.0  # for one delivery, whatever the other side does

    def post(self, url: str, headers: Mapping[str, str], body: bytes, ca_file: Path | None = None) -> None:
        """Send `body` by POST.

        Raises `NotDelivered` unless it is answered with 2xx, as `NoticeRefused` where the answer says that the same
        again would not help; `ConfigError` for a bad URL.
        """
        parts = self.checked(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        with self.connection(host, port) as sock, _told_as(host):
            if parts.scheme == "https":
                sock = tls_context(ca_file).wrap_socket(sock, server_hostname=host)
            asked = http.client.HTTPConnection(host, port)
            asked.sock = sock
            with _closing(asked):
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                asked.request("POST", target, body, {"Host": parts.netloc, "User-Agent": USER_AGENT, **headers})
                answer = asked.getresponse()
                answer.read(MAX_ANSWER)
        _must_be_taken(host, answer.status)

    def checked(self, url: str) -> SplitResult:
        """The parts of a URL that may be posted to. Raises `ConfigError`, without the URL: it may be a secret."""
        fix = "Write https://HOST/PATH"
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as err:
            raise ConfigError("url", "is not a URL", fix) from err
        if not url.isascii() or not url.isprintable() or " " in url or not host:
            raise ConfigError("url", "is not a URL", fix)
        if parts.username is not None or parts.password is not None:
            raise ConfigError("url", "holds a user or password", "Give the secret on its own")
        if parts.scheme != "https" and not (parts.scheme == "http" and (self.allow_http or _is_loopback(host))):
            raise ConfigError("url", f"{parts.scheme!r} is not an allowed scheme", fix)
        self._check_host(host)
        return parts

    def checked_host(self, url: str) -> str:
        """The host of a URL that may be posted to and that answers. Raises `NotDelivered`, `ConfigError`."""
        parts = self.checked(url)
        host = parts.hostname or ""
        with self.connection(host, parts.port or _PORTS[parts.scheme]):
            return host

    @contextmanager
    def connection(self, host: str, port: int) -> Iterator[socket.socket]:
        """A connection that is cut off after `timeout_s`. Raises `NotDelivered`, `ConfigError`."""
        self._check_host(host)
        with _told_as(host):
            sock = self._connected(host, port)
        handle, late = sock.dup(), threading.Event()  # TLS takes the first one over
        cut = threading.Timer(self.timeout_s, _cut_off, [handle, late])
        cut.daemon = True
        cut.start()
        try:
            yield sock
        except NotDelivered as err:
            if late.is_set() or isinstance(
                err.__cause__, TimeoutError
            ):  # what the other side is then seen to do is our own doing
                raise NotDelivered(host, f"did not answer within {self.timeout_s:g} s", TRIED_AGAIN) from err
            raise
        finally:
            cut.cancel()
            handle.close()
            sock.close()

    def _check_host(self, host: str) -> None:
        if self.allow_hosts and not any(_matches(host, allowed) for allowed in self.allow_hosts):
            raise ConfigError(host, "is not an allowed host", "Add it to notices.allow_hosts")

    def _connected(self, host: str, port: int) -> socket.socket:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for address in addresses:  # a name that leads to a forbidden place as well is not trusted with the others
            self._check_address(host, address)
        last: OSError = OSError("no address")
        for address in addresses:
            try:
                return socket.create_connection((address, port), self.timeout_s)
            except OSError as err:
                last = err
        raise last

    def _check_address(self, host: str, text: str) -> None:
        address = ipaddress.ip_address(text.partition("%")[0])
        if why := why_not(address, self.allow_link_local):
            refusal = NotDelivered if literal_address(host) is None else NoticeRefused  # a name may lead elsewhere soon
            raise refusal(host, f"leads to {why}", "See notices.allow_link_local")


def _must_be_taken(host: str, status: int) -> None:
    """Raises `NoticeRefused` for a status that stays the same however often one asks, else `NotDelivered`."""
    if 200 <= status < 300:
        return
    if status in MAY_PASS or status >= 500:
        raise NotDelivered(host, f"answered {status}", TRIED_AGAIN)
    if 300 <= status < 400:
        what = f"answered {status}, a redirect, which is not followed"
        raise NoticeRefused(host, what, "Name the URL that it leads to")
    raise NoticeRefused(host, f"refused it with {status}", "See what the receiver says of it; check URL and secret")


def literal_address(host: str) -> _IPAddress | None:
    """The address that `host` is, however it is written; None for a name.

    >>> literal_address("2852039166")
    IPv4Address('169.254.169.254')
    >>> literal_address("hooks.slack.com")
    """
    with suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0])
    with suppress(OSError, UnicodeError):
        return ipaddress.IPv4Address(socket.inet_aton(host))  # as one number, or in hexadecimal
    return None


def why_not(address: _IPAddress, allow_link_local: bool) -> str:
    """Why an address is not connected to; "" where it may be.

    >>> why_not(ipaddress.ip_address("169.254.169.254"), False)
    'a link-local address'
    >>> why_not(ipaddress.ip_address("10.1.2.3"), False)
    ''
    """
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    address = mapped or address
    if address.is_multicast or address.is_unspecified or address == ipaddress.ip_address("255.255.255.255"):
        return "an address that is not a single machine's"
    if allow_link_local:
        return ""
    return "a link-local address" if address.is_link_local else "a metadata service" if address in METADATA else ""


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Checks certificates and names. Raises `ConfigError`."""
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError) as err:
        raise ConfigError(str(ca_file), "is not a readable file of certificates", "Name one in PEM") from err


def _matches(host: str, allowed: str) -> bool:
    host, allowed = host.lower(), allowed.lower()
    return host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed


def _is_loopback(host: str) -> bool:
    address = literal_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _cut_off(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def _closing(asked: http.client.HTTPConnection) -> Iterator[None]:
    """Close a connection afterwards, whatever state it is in."""
    try:
        yield
    finally:
        with suppress(OSError):
            asked.close()


@contextmanager
def _told_as(host: str) -> Iterator[None]:
    """What goes wrong on the way, without what was sent or the URL: either may hold a secret."""
    try:
        yield
    except (TimeoutError, socket.gaierror, ssl.SSLError, http.client.HTTPException, OSError, UnicodeError) as err:
        raise NotDelivered(host, _in_words(err), TRIED_AGAIN) from err


def _in_words(err: BaseException) -> str:
    match err:
        case TimeoutError():
            return "did not answer in time"
        case socket.gaierror():
            return "has no address"
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted: {err.verify_message}"
        case http.client.HTTPException() | UnicodeError():
            return f"did not answer as it should ({type(err).__name__})"
        case OSError():
            return f"cannot be reached: {err.strerror or type(err).__name__}"
    return type(err).__name__
