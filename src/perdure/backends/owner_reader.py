"""Reading with the rights of a file's owner: where the service may become others, a process of its own does.

A fork of a service with threads may hang, and a fresh interpreter for each log takes longer than the reading. So one
small process without threads is started when it is first needed. It forks for each request; the fork becomes the
owner for good, reads, answers and ends. It needs the standard library alone, and ends when the service does.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from perdure.backends.reader import ReadRequest, packed, read_files, request_of_json, request_to_json, unpacked, warm_up
from perdure.errors import ClusterBusy
from perdure.model.output import Output

TIMEOUT_S = 30.0
ENDING_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_NOBODY = 65534
_SETUID_AND_SETGID = 1 << 7 | 1 << 6  # CAP_SETUID, CAP_SETGID
_CAPABILITY_VERSION = 0x20080522  # of the kernel's interface
_SERVER = "import sys; sys.path.insert(0, sys.argv[1]); import perdure.backends.owner_reader as m; m.serve()"


class OwnerReader:
    """Reads output as its owner, if this process may become others; else with its own rights. Safe to share."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._turn = threading.Lock()  # of the server's start and of requests on their way to it
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def read(self, request: ReadRequest) -> Output:
        """Find and read. Raises `ClusterBusy` where no answer came: a file system may be stuck."""
        if request.owner_uid in (0, os.geteuid()) or not may_become_others():
            return read_files(request)
        with self._asked() as answer:
            answer.settimeout(self._timeout_s)
            try:
                answer.sendall(request_to_json(request))
                answer.shutdown(socket.SHUT_WR)
                data = _received(answer, time.monotonic() + self._timeout_s)
            except OSError as err:
                raise ClusterBusy("its log", f"the reader does not answer ({err})", "Ask again") from err
        if not data:
            raise ClusterBusy("its log", "the reader ended without an answer", "Ask again")
        return unpacked(data)

    def close(self) -> None:
        """End the process, if it was started."""
        with self._turn:
            if self._control is not None:
                self._control.close()  # it ends at that
            if self._server is not None:
                with suppress(subprocess.TimeoutExpired):
                    self._server.wait(ENDING_S)
            self._control = self._server = None

    def _asked(self) -> socket.socket:
        """Where the answer to a new request will come from."""
        ours, theirs = socket.socketpair()
        with theirs, self._turn:
            for _ in range(2):
                try:
                    socket.send_fds(self._running(), [b"r"], [theirs.fileno()])
                except OSError:
                    self._server = self._control = None  # it was killed: once more
                else:
                    return ours
        ours.close()
        raise ClusterBusy("its log", "the reader cannot be started", "Look at this machine's limits")

    def _running(self) -> socket.socket:
        if self._control is None or self._server is None or self._server.poll() is not None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            root = str(Path(__file__).resolve().parents[2])
            argv = [sys.executable, "-I", "-S", "-c", _SERVER, root]
            with theirs:
                self._server = subprocess.Popen(
                    argv, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
                )
        return self._control


def _received(answer: socket.socket, deadline: float) -> bytes:
    chunks, size = [], 0
    while chunk := answer.recv(1 << 20):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER_BYTES or time.monotonic() > deadline:
            raise TimeoutError("it takes too long, or says too much")
    return b"".join(chunks)


def may_become_others() -> bool:
    """Whether this process is root, or hands on the capabilities to change its user and groups."""
    if os.geteuid() == 0:
        return True
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return False
    found = re.search(r"^CapAmb:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and int(found[1], 16) & _SETUID_AND_SETGID == _SETUID_AND_SETGID


# In the process that forks


def serve() -> None:
    """Fork for each request that comes, until the service closes its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for forks
    warm_up()
    with socket.socket(fileno=0) as control:
        while True:
            word, descriptors, _, _ = socket.recv_fds(control, 16, 1)
            if not word:
                return
            if os.fork() == 0:
                _answer_and_end(control, descriptors[0])
            os.close(descriptors[0])


def _answer_and_end(control: socket.socket, descriptor: int) -> None:
    code = 1
    try:
        control.close()
        with socket.socket(fileno=descriptor) as answer:
            answer.settimeout(TIMEOUT_S)
            given = _received(answer, time.monotonic() + TIMEOUT_S)
            request = request_of_json(given)
            _become(request.owner_uid)
            answer.sendall(packed(read_files(request)))
        code = 0
    finally:
        os._exit(code)


def _become(uid: int) -> None:
    """Be that user for good, with nothing of the service's left. Raises `OSError`."""
    try:
        entry = pwd.getpwuid(uid)
        gid, groups = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        gid, groups = _NOBODY, []
    os.setgroups(groups)
    if sys.platform == "linux":
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        _give_up_capabilities()
    else:
        os.setgid(gid)  # as root these set the saved ids too
        os.setuid(uid)


def _give_up_capabilities() -> None:
    """A change between two ordinary users leaves them in place. Raises `OSError`."""
    header, none = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)  # effective, permitted, inheritable: twice 32
    if ctypes.CDLL(None, use_errno=True).capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities cannot be given up")
