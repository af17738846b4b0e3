"""Troubles of the network: ports that are taken, servers that fail, names that do not resolve."""

from __future__ import annotations

import hashlib
import http.server
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foundry.troubles.setting import Setting, Trouble, calm

SLOW_S = 2.0


@contextmanager
def port_taken(_directory: Path, present: bool) -> Iterator[Setting]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        if present:
            holder.listen()
        else:
            holder.close()
        yield {"PORT": str(port)}, calm


CONFIG = json.dumps({"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2}).encode()
LAYER_LIST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": 2,
            "digest": f"sha256:{hashlib.sha256(b'{}').hexdigest()}",
        },
        "layers": [],
    }
).encode()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers as a healthy store, model hub or image registry would, or as its server's `ailment` has it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        ailment = self.server.ailment  # type: ignore[attr-defined]
        self.close_connection = True
        if ailment == "slow":
            time.sleep(SLOW_S)
        elif ailment == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.connection.close()
        elif ailment == "close":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif ailment == "cut":
            self._answer(200, b"x" * 100, length=4096)
        elif ailment.startswith("s3-"):
            status, code = ailment.removeprefix("s3-").split("-")
            body = f"<Error><Code>{code}</Code><Message>{_S3[code]}</Message></Error>"
            self._answer(int(status), body.encode(), {"Content-Type": "application/xml"})
        elif ailment.startswith("registry-"):
            status, code = ailment.removeprefix("registry-").split("-")
            body = json.dumps({"errors": [{"code": code, "message": _REGISTRY[code]}]})
            self._answer(int(status) if "/manifests/" in self.path else 200, body.encode())
        elif ailment == "no-repository":
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif ailment.isdecimal():
            self.send_error(int(ailment))
        else:
            self._well()

    do_POST = do_PUT = do_HEAD = do_GET

    def _well(self) -> None:
        if self.path.endswith("config.json"):
            self._answer(200, CONFIG, {"ETag": '"1"', "X-Repo-Commit": "0" * 40})
        elif self.path.endswith("/tags/list"):
            self._answer(200, b'{"name": "team/train", "tags": ["1.4"]}')
        elif "/manifests/" in self.path:
            digest = f"sha256:{hashlib.sha256(LAYER_LIST).hexdigest()}"
            kind = "application/vnd.docker.distribution.manifest.v2+json"
            self._answer(200, LAYER_LIST, {"Content-Type": kind, "Docker-Content-Digest": digest})
        elif "/blobs/" in self.path:
            self._answer(200, b"{}")
        else:
            self._answer(200, b"ok")

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, length: int = -1) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep silent."""

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:  # this connection was broken on purpose
            return


_S3 = {
    "SlowDown": "Please reduce your request rate.",
    "InternalError": "We encountered an internal error. Please try again.",
    "NoSuchBucket": "The specified bucket does not exist",
    "AccessDenied": "Access Denied",
}
_REGISTRY = {
    "TOOMANYREQUESTS": "You have reached your pull rate limit.",
    "MANIFEST_UNKNOWN": "manifest unknown",
    "UNAUTHORIZED": "authentication required",
}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    ailment = ""

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away, or a connection broken on purpose, is not an error here."""


def _server(ailment: str) -> Trouble:
    @contextmanager
    def trouble(_directory: Path, present: bool) -> Iterator[Setting]:
        with _Server(("127.0.0.1", 0), _Handler) as server:
            server.ailment = ailment if present else ""
            port = server.server_address[1]
            if present and ailment == "down":
                server.server_close()
                yield {"PORT": str(port)}, calm
                return
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            try:
                yield {"PORT": str(port)}, calm
            finally:
                server.shutdown()

    return trouble


SERVFAIL, NXDOMAIN = 2, 3


def _resolver(code: int) -> Trouble:
    """A name server on an address of its own, named in RESOLVER; where the trouble is present it answers `code`."""

    @contextmanager
    def trouble(_directory: Path, present: bool) -> Iterator[Setting]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind(("127.0.0.77", 53))
            server.settimeout(0.1)
            stop = threading.Event()
            thread = threading.Thread(target=_resolve, args=(server, code if present else 0, stop), daemon=True)
            thread.start()
            try:
                yield {"RESOLVER": "127.0.0.77"}, calm
            finally:
                stop.set()
                thread.join()

    return trouble


def _resolve(server: socket.socket, code: int, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            query, client = server.recvfrom(512)
        except TimeoutError:
            continue
        server.sendto(_dns_answer(query, code), client)


def _dns_answer(query: bytes, code: int) -> bytes:
    """The answer to a query: an error `code`, or the address 127.0.0.1 for a query of type A (RFC 1035, section 4)."""
    end = query.index(b"\0", 12) + 5
    question = query[12:end]
    address = code == 0 and question[-4:-2] == b"\0\1"
    header = query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, int(address), 0, 0)
    record = b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", 1, 4) + bytes((127, 0, 0, 1))
    return header + question + (record if address else b"")


TROUBLES: dict[str, Trouble] = {
    "port-taken": port_taken,
    **{f"server-{name}": _server(name) for name in ("down", "slow", "reset", "close", "cut")},
    **{f"server-{status}": _server(str(status)) for status in (401, 403, 404, 429, 500, 502, 503)},
    "server-no-repository": _server("no-repository"),
    "s3-slow-down": _server("s3-503-SlowDown"),
    "s3-internal-error": _server("s3-500-InternalError"),
    "s3-no-bucket": _server("s3-404-NoSuchBucket"),
    "s3-denied": _server("s3-403-AccessDenied"),
    "registry-limit": _server("registry-429-TOOMANYREQUESTS"),
    "registry-unknown": _server("registry-404-MANIFEST_UNKNOWN"),
    "registry-denied": _server("registry-401-UNAUTHORIZED"),
    "resolver-fails": _resolver(SERVFAIL),
    "resolver-unknown": _resolver(NXDOMAIN),
}
