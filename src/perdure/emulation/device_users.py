"""Who may use a GPU of a node: the users of the jobs that have it, as the resource manager's prolog writes down.

The folder has a file for each GPU of each job, ``NUMBER.JOBID``, with the number of the job's user. Nobody else can
write there; the kernel says who is at the other end of a socket.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")  # a process, its user and its group: unix(7)


def peer_of(link: socket.socket) -> tuple[int, int]:
    """The process at the other end of a Unix socket, and its user."""
    pid, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


def may_use(jobs: Path, number: int, user: int) -> bool:
    """Whether a job of this user has the GPU now; the manager's own user always may."""
    if user == os.geteuid():
        return True
    for file in jobs.glob(f"{number}.*"):
        with suppress(OSError):  # its job has just ended
            if file.read_text("utf-8").strip() == str(user):
                return True
    return False
