"""Troubles of a bounded share of the machine: the program alone exceeds it, or a neighbour leaves too little."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from foundry.cgroup import Cgroup
from foundry.troubles.setting import Setting, Trouble

MIB = 1 << 20
HOLD = "import threading, time; input(); {}; print('held', flush=True); time.sleep(600)"
HOLD_MEMORY = HOLD.format("x = bytearray({} << 20)")
HOLD_PIDS = HOLD.format("[threading.Thread(target=time.sleep, args=(600,), daemon=True).start() for _ in range({})]")


def _bounded(controller: str, limit: int, hold: str = "") -> Trouble:
    """The program runs in a control group of `limit`, with a neighbour that runs the Python code `hold`."""

    @contextmanager
    def trouble(directory: Path, present: bool) -> Iterator[Setting]:
        with ExitStack() as stack:
            group = stack.enter_context(Cgroup.made(controller, directory.name, limit))
            if hold and present:
                stack.enter_context(_neighbour(group, hold))

            def join(process: subprocess.Popen[bytes]) -> None:
                Path(f"/proc/{process.pid}/oom_score_adj").write_text("900")  # not the neighbour is to be the victim
                group.take(process.pid)
                (directory / "tmp" / "joined").touch()

            yield {"JOINED": str(directory / "tmp" / "joined")}, join

    return trouble


@contextmanager
def _neighbour(group: Cgroup, code: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        group.take(process.pid)
        process.stdin.write(b"\n")  # only now, so that the group is charged for what it takes
        process.stdin.flush()
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


TROUBLES: dict[str, Trouble] = {
    "memory-small": _bounded("memory", 96 * MIB),
    "memory-shared": _bounded("memory", 384 * MIB, HOLD_MEMORY.format(280)),
    "memory-torch": _bounded("memory", 700 * MIB),
    "pids-few": _bounded("pids", 12),
    "pids-shared": _bounded("pids", 64, HOLD_PIDS.format(58)),
}
