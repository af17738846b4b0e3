"""Runs a user's program with emulated GPUs: ``python -m perdure.emulation.program train.py ...``.

The settings come by the environment (`settings.VARIABLE`), so that processes which the program starts by a launcher
have them too.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from perdure.emulation.process import emulation
from perdure.errors import PerdureError


def run(words: Sequence[str]) -> None:
    """Run a program, as Python would, or a module after ``-m``. Its own errors and exits are left as they are.

    The emulation ends with the process: after the program's threads, and after what it does at its exit.
    """
    emulating = ExitStack()
    atexit.register(emulating.close)
    emulating.enter_context(emulation())
    is_module = words[0] == "-m"
    sys.argv = list(words[1:] if is_module else words)
    if not sys.flags.safe_path:
        sys.path.pop(0)
    sys.path.insert(0, os.getcwd() if is_module else str(Path(words[0]).resolve().parent))
    if is_module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


def main() -> int:
    """Run the program of the command line; its traceback begins with the program, as without emulation."""
    try:
        run(sys.argv[1:])
    except PerdureError as err:
        print(f"perdure emulate: {err}", file=sys.stderr)  # noqa: T201
        return 2
    except Exception as err:  # the program's
        sys.excepthook(type(err), err.with_traceback(_of_program(err.__traceback__)), err.__traceback__)
        return 1
    return 0


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the program's first line on, without the emulation; all of it, where that is not in it."""
    steps = []
    while trace is not None:
        steps.append(trace)
        trace = trace.tb_next
    files = [Path(each.tb_frame.f_code.co_filename).resolve() for each in steps]
    program, own = Path(sys.argv[0]).resolve(), Path(__file__).resolve().parent
    first = files.index(program) if program in files else 0
    for step, file in zip(reversed(steps[first:]), reversed(files[first:]), strict=True):
        if file.parent != own or program not in files:
            trace = TracebackType(trace, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return trace


if __name__ == "__main__":
    sys.exit(main())
