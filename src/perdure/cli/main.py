"""The entry point: what every command does, and the short way to ``perdure exec``.

A launcher starts alongside each of a job's tasks. So it does without the library that reads command lines, which takes
longer to load than all else that it needs; words that are not plain are read by that library after all.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Any error is one line on stderr."""
    words = list(sys.argv[1:] if args is None else args)
    if words[:1] == ["exec"]:
        gc.disable()  # nothing of what is loaded now is garbage
        from perdure.job.options import read_words

        if (plain := read_words(words[1:])) is not None:
            return _exec(*plain)
        gc.enable()
    from perdure.cli import commands

    return commands.run(words)


def _exec(command: Sequence[str], settings: dict[str, Any]) -> int:
    try:
        from perdure.job.exec import run
        from perdure.job.options import options_of

        gc.enable()
        return run(command, options=options_of(**settings))
    except (Exception, KeyboardInterrupt) as err:
        from perdure.cli import commands

        return commands.explain(err, "exec")
