"""A server on $PORT that fails in a way of its own: python serve.py MODE.

A number: that HTTP status. ``close``, ``reset``: it takes a connection and ends it. ``mute``: it never answers.
``partial``: it promises more than it sends. ``relay-cut N``: it passes bytes on to the next port, and is gone after N
million.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time

PORT = int(os.environ["PORT"])
PROMISED = 5_000_000
REASONS = {
    "401": "Unauthorized",
    "404": "Not Found",
    "429": "Too Many Requests",
    "502": "Bad Gateway",
    "503": "Service Unavailable",
}


def answer(link: socket.socket, mode: str) -> None:
    """Treat one connection in the way of `mode`."""
    if mode == "mute":
        time.sleep(60)
    elif mode == "reset":
        link.recv(1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif mode == "partial":
        link.recv(65536)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {PROMISED}\r\n\r\n"
        link.sendall(head.encode() + bytes(PROMISED // 3))
    elif mode == "relay-cut":
        relay(link, int(sys.argv[2]) * 1_000_000)
    elif mode.isdigit():
        link.recv(65536)
        link.sendall(f"HTTP/1.1 {mode} {REASONS[mode]}\r\nContent-Length: 6\r\n\r\nsorry\n".encode())
    link.close()


def relay(link: socket.socket, most: int) -> None:
    """Pass bytes on in both directions, and at most so many back."""
    with socket.create_connection(("127.0.0.1", PORT + 1)) as other:

        def there() -> None:
            while data := link.recv(65536):
                other.sendall(data)

        threading.Thread(target=there, daemon=True).start()
        while most > 0 and (data := other.recv(65536)):
            link.sendall(data)
            most -= len(data)
        link.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Serve until it is ended."""
    with socket.create_server(("127.0.0.1", PORT)) as server:
        while True:
            link, _ = server.accept()
            threading.Thread(target=answer, args=(link, sys.argv[1]), daemon=True).start()


if __name__ == "__main__":
    main()
