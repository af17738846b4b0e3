"""The RAS threads of a running NCCL program, asked over the socket that they listen on (NCCL 2.24 and newer).

Each process of the program accepts clients on a TCP port of its own node, localhost:28028 unless ``NCCL_RAS_ADDR`` says
otherwise, and answers for the whole program. Lines of text go to and fro, as ``ncclras -f json`` sends them: a
handshake, the time that peers have to answer, the format, the question; the answer ends where the connection does.
Source: NCCL user guide, "RAS", and src/ras/client.cc.
"""

from __future__ import annotations

import json
import socket
import time

from perdure.errors import InputError

DEFAULT_ADDRESS = "localhost:28028"
PROTOCOL = 2
_PORT_DIGITS = 5
PEERS_MOST_S, ANSWER_MOST_S = 5, 30.0
"""What the asked process waits for the others, as ncclras has it wait, and what is waited for all of its answer."""

MAX_ANSWER_BYTES = 64 << 20
_MAX_LINE_BYTES = 4096
_FIX = "Ask on a node of the running program, at the address in NCCL_RAS_ADDR; NCCL_RAS_ENABLE=0 turns it off"
_NEEDS_NEWER = "NCCL 2.28.7 and newer answer in JSON; of an older one take py-spy dumps or the flight recorder"


def ask_ras(address: str = DEFAULT_ADDRESS, within_s: float = ANSWER_MOST_S) -> object:
    """The decoded answer of the program that listens there. Raises `InputError` where there is none, or no JSON."""
    host, port = _parts(address)
    deadline_s = time.monotonic() + within_s
    try:
        with socket.create_connection((host, port), within_s) as connection:
            talk = _Talk(connection, address, deadline_s)
            talk.say(f"CLIENT PROTOCOL {PROTOCOL}", "SERVER PROTOCOL ", _FIX)
            talk.say(f"TIMEOUT {PEERS_MOST_S}", "OK", _FIX)
            talk.say("SET FORMAT json", "OK", _NEEDS_NEWER)
            data = talk.ask("VERBOSE STATUS")
    except OSError as err:
        raise InputError(address, f"no RAS answers ({err.strerror or err})", _FIX) from err
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as err:
        raise InputError(address, f"its answer of {len(data)} bytes is not JSON", _NEEDS_NEWER) from err


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > _PORT_DIGITS or not 0 < int(port) < 1 << 16:
        raise InputError(address, "not HOST:PORT", f"Write it like {DEFAULT_ADDRESS}")
    return host.strip("[]"), int(port)


class _Talk:
    """One connection, all of it within a deadline."""

    def __init__(self, connection: socket.socket, address: str, deadline_s: float) -> None:
        self._connection, self._address, self._deadline_s = connection, address, deadline_s

    def say(self, line: str, expected: str, fix: str) -> None:
        """Send a line that another line answers. Raises `InputError` for an answer that begins otherwise."""
        self._send(line)
        answer = bytearray()
        while not answer.endswith(b"\n") and len(answer) < _MAX_LINE_BYTES and (more := self._receive(1)):
            answer += more
        told = answer.decode("utf-8", "replace").strip()
        if not told.upper().startswith(expected):
            raise InputError(self._address, f"{line!r} was answered by {told[:80]!r}", fix)

    def ask(self, line: str) -> bytes:
        """Send a line, and take all that comes until the connection ends."""
        self._send(line)
        answer = bytearray()
        while more := self._receive(1 << 16):
            answer += more
            if len(answer) > MAX_ANSWER_BYTES:
                raise InputError(self._address, f"its answer is longer than {MAX_ANSWER_BYTES >> 20} MiB", _FIX)
        return bytes(answer)

    def _send(self, line: str) -> None:
        self._wait()
        self._connection.sendall(f"{line}\n".encode())

    def _receive(self, most: int) -> bytes:
        self._wait()
        return self._connection.recv(most)

    def _wait(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(None, "the time for an answer is over")
        self._connection.settimeout(left_s)
