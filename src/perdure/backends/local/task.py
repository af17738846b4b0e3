"""What a task's process runs before it becomes the user's program.

It waits for its orders, one JSON line on standard input. The cluster sends them only after this process's number
is on disk; where the cluster dies first, the pipe closes and this process ends without having done anything. So no
program of a user ever runs that the cluster would not find again. Run as a file: it must start fast and import little.
"""

import json
import os
import resource
import signal
import sys

NOT_FOUND, NOT_RUNNABLE = 127, 126  # what a shell would answer


def main() -> int:
    """Set limits, environment and directory as ordered, and become the program; return only where that fails."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return NOT_RUNNABLE
    orders = json.loads(line)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    argv, program = orders["argv"], orders["argv"][0]
    try:
        for signum in signal.valid_signals():  # Python ignores some, a shell others of what it starts in the background
            if signal.getsignal(signum) is signal.SIG_IGN:  # and the program would inherit that
                signal.signal(signum, signal.SIG_DFL)
        os.chdir(orders["workdir"])
        os.nice(orders["nice"])
        for name, limit in orders["limits"].items():
            _limit(getattr(resource, name), limit)
        os.execvpe(program, argv, orders["env"])  # noqa: S606 - to start a process without a shell is the point
    except (OSError, ValueError) as err:
        os.write(2, f"perdure: cannot run {program!r} in {orders['workdir']!r}: {err}\n".encode())
        return NOT_FOUND if isinstance(err, FileNotFoundError) else NOT_RUNNABLE


def _limit(which: int, limit: int) -> None:
    """Lower the soft and hard limit; one that is lower already stays."""
    hard = resource.getrlimit(which)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(which, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
