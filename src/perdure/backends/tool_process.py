"""One command-line tool that runs: its three pipes, read with a deadline and a cap on what it prints."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

from perdure.errors import ClusterBusy, ClusterError

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Advice:
    """What a person can do about a tool, as sentences of errors."""

    silent: str  # that does not answer
    too_much: str  # that prints more than is read


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool printed, and its exit code (None while it still runs)."""

    out: bytes
    err: bytes
    code: int | None = None

    @property
    def complaint(self) -> str:
        """The last line of the error output: what went wrong, in the tool's words."""
        lines = [line.strip() for line in self.err.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


class ToolPipes:
    """One process and its three pipes, read with a deadline and a cap."""

    def __init__(self, argv: tuple[str, ...], environment: Mapping[str, str], cap_bytes: int, advice: Advice) -> None:
        self._argv, self._cap, self._advice = argv, cap_bytes, advice
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ, "out")
        self._selector.register(self._process.stderr, selectors.EVENT_READ, "err")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it said before it died is read next
            self._process.stdin.write(data)

    def close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def read(self, until: bytes, prompts: tuple[bytes, ...], deadline: float) -> ToolAnswer:
        """Read up to the line `until`, which may be behind a prompt; or until the process ends."""
        out, err = bytearray(), bytearray()
        while self._selector.get_map():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ClusterBusy(self._argv[0], "no answer in time", self._advice.silent)
            for key, _ in self._selector.select(left_s):
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    self._selector.unregister(key.fileobj)
                (out if key.data == "out" else err).extend(chunk)
            if len(out) + len(err) > self._cap:
                raise ClusterError(self._argv[0], f"printed more than {self._cap} bytes", self._advice.too_much)
            for prompt in prompts:
                at = _line_at(out, prompt + until)
                if at >= 0:
                    return ToolAnswer(bytes(out[:at]), bytes(err + self._waiting_errors()))
        return ToolAnswer(bytes(out), bytes(err), self._process.wait())

    def _waiting_errors(self) -> bytes:
        """Errors were written before the line that was waited for, but may have been read after it."""
        ready = [key for key, _ in self._selector.select(0) if key.data == "err"]
        return b"".join(os.read(key.fd, _CHUNK) for key in ready)

    def end(self) -> None:
        self._selector.close()
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()


def _line_at(out: bytearray, line: bytes) -> int:
    """Where `line` begins in the newest part of `out`, as a line of its own; -1 where it does not."""
    if out.startswith(line):
        return 0
    at = out.find(b"\n" + line, max(0, len(out) - 2 * _CHUNK))
    return at + 1 if at >= 0 else -1
