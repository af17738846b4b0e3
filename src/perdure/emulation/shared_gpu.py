"""A program's side of a GPU that others share: its queue of work at the GPU's manager (`device_manager`)."""

from __future__ import annotations

import socket
import time
from collections import deque

from msgspec import json

from perdure.emulation.device_manager import LONGEST_LINE, MOST_AHEAD, WorkAnswer, WorkRequest
from perdure.emulation.faults import DeviceError
from perdure.errors import InputError, StateError

_KEPT = 10_000
"""Ends of work that are remembered, for events that were recorded there."""


class SharedGpu:
    """The connection. Methods raise `DeviceError` where the GPU broke, maybe at earlier work, as CUDA does.

    They raise `StateError` where the GPU is not the program's or not served any more; the constructor raises
    `InputError` if no manager answers within `wait_s`.
    """

    def __init__(self, path: str, wait_s: float = 10.0) -> None:
        self._path, self._link, self._unread = path, socket.socket(socket.AF_UNIX), b""
        self._sent, self._waiting = 0, deque[int]()
        self._ends: dict[int, float] = {}  # by the number of a piece of work
        end = time.monotonic() + wait_s
        while True:  # a manager that is started beside the program may take a moment
            try:
                self._link.connect(path)
                break
            except PermissionError as err:
                fix = "Name one of your own, or have its manager serve other users: emulate device --jobs"
                raise InputError(path, "the manager of this GPU serves another user", fix) from err
            except OSError as err:
                if time.monotonic() > end:
                    what = "no manager of a GPU answers there"
                    raise InputError(path, what, "Start one: perdure emulate device --socket FILE") from err
                time.sleep(0.05)

    def put(self, seconds: float) -> int:
        """Put work at the end of the program's queue; returns its number."""
        if len(self._waiting) >= MOST_AHEAD:
            self.wait(self._waiting[0])
        number = self._send(seconds)
        self._waiting.append(number)
        return number

    def wait(self, number: int) -> None:
        """Wait until a piece of work, and those before it, are done."""
        while self._waiting and self._waiting[0] <= number:
            self._read()

    def end_of(self, number: int) -> float:
        """When a piece of work was done, by the system's monotonic clock; now, where that is not known any more."""
        self.wait(number)
        return self._ends.get(number, time.monotonic())

    def is_done(self, number: int) -> bool:
        """Whether a piece of work is done, without waiting for it."""
        self._link.setblocking(False)
        try:
            while self._waiting and self._waiting[0] <= number:
                self._read()
        except BlockingIOError:
            return False
        finally:
            self._link.setblocking(True)
        return True

    def claim(self, persistent_mib: float, peak_mib: float) -> str:
        """Take memory; what is said where there is too little, else nothing."""
        return self._answer(self._send(0.0, persistent_mib, peak_mib)).refused

    def copy_s(self, seconds: float) -> float:
        """How long a copy takes now."""
        return self._answer(self._send(seconds, link=True)).seconds

    def _send(self, seconds: float, persistent_mib: float = 0.0, peak_mib: float = 0.0, link: bool = False) -> int:
        self._sent += 1
        request = WorkRequest(self._sent, seconds, persistent_mib, peak_mib, link)
        try:
            self._link.sendall(json.encode(request) + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            self._read()  # which says why, where the manager did
            raise self._ended() from None
        return self._sent

    def _answer(self, number: int) -> WorkAnswer:
        """The answer to what was asked last; work that is done meanwhile is noted."""
        while (answer := self._read()).number != number:
            pass
        return answer

    def _read(self) -> WorkAnswer:
        while b"\n" not in self._unread:
            try:
                found = self._link.recv(LONGEST_LINE)
            except ConnectionResetError:
                found = b""
            if not found:
                raise self._ended()
            self._unread += found
        line, _, self._unread = self._unread.partition(b"\n")
        answer = json.decode(line, type=WorkAnswer)
        if self._waiting and answer.number == self._waiting[0]:
            self._waiting.popleft()
            self._ends[answer.number] = answer.at
            if len(self._ends) > _KEPT:
                del self._ends[next(iter(self._ends))]
        if answer.full:
            raise StateError(self._path, answer.full, "Begin once others have ended")
        if answer.denied:
            raise StateError(self._path, answer.denied, "Ask for it, as by sbatch --gres=gpu:emulated:1")
        if answer.broken:
            self._waiting.clear()
            raise DeviceError(answer.broken)
        return answer

    def _ended(self) -> StateError:
        return StateError(self._path, "the manager of this GPU has ended", "Start it: perdure emulate device")
