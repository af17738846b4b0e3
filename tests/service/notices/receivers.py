"""Real receivers on this machine: an HTTP server and a small SMTP server that keep what they were sent."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any


class Receiver:
    """An HTTP server. `answers` are given in turn, the last one again and again; None hangs up without an answer."""

    def __init__(self, *answers: Any, headers: dict[str, str] | tuple[()] = ()) -> None:
        self.answers, self.headers = list(answers) or [200], dict(headers)
        self.got = []  # of each request: its path, its headers in lower case, its body
        self.url = ""

    @property
    def documents(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.got]

    @property
    def texts(self) -> list[Any]:
        return [each["text"] for each in self.documents]

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.got.append((handler.path, {k.lower(): v for k, v in handler.headers.items()}, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer = answer(handler)
        if answer is None:
            handler.close_connection = True
            return
        handler.send_response(answer)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()


@contextmanager
def receiving(*answers: Any, headers: dict[str, str] | tuple[()] = ()) -> Iterator[Receiver]:
    receiver = Receiver(*answers, headers=headers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


class MailServer:
    """An SMTP server: what it was sent, and what it says."""

    def __init__(self, login: str = "", tls: SSLContext | None = None) -> None:
        self.login, self.tls = login, tls
        self.mails = []  # of each: the sender, the recipients, the text
        self.said = []  # lines of clients
        self.port = 0


@contextmanager
def receiving_mail(
    tls: SSLContext | None = None, refuse: str = "", answers: dict[Any, Any] | None = None
) -> Iterator[MailServer]:
    """`tls`: an `SSLContext` with which STARTTLS is offered. `refuse`: the answer to AUTH; `answers`: to others."""
    server_state = MailServer(tls=tls)

    class Handler(socketserver.StreamRequestHandler):
        def say(self, text: str) -> None:
            self.wfile.write(text.encode() + b"\r\n")
            self.wfile.flush()

        def handle(self) -> None:
            self.say("220 ready")
            sender, to = "", []
            while line := self.rfile.readline().decode().rstrip("\r\n"):
                server_state.said.append(line)
                verb = line.upper()
                if answer := (answers or {}).get(verb[:4]):
                    self.say(answer)
                    continue
                if verb.startswith(("EHLO", "HELO")):
                    extra = ["250-STARTTLS"] if tls else []
                    for each in ["250-here", *extra, "250 AUTH PLAIN LOGIN"]:
                        self.say(each)
                elif verb == "STARTTLS":
                    self.say("220 go")
                    self.connection = tls.wrap_socket(self.connection, server_side=True)
                    self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
                elif verb.startswith("AUTH"):
                    self.say(refuse or "235 welcome")
                elif verb.startswith("MAIL"):
                    sender, to = line, []
                    self.say("250 ok")
                elif verb.startswith("RCPT"):
                    to.append(line)
                    self.say("250 ok")
                elif verb == "DATA":
                    self.say("354 go on")
                    text = b""
                    while (part := self.rfile.readline()) != b".\r\n":
                        text += part
                    server_state.mails.append((sender, to, text))
                    self.say("250 taken")
                elif verb == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        server_state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server_state
        finally:
            server.shutdown()
            thread.join()


def until(condition: Callable[[], Any], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
