"""The entry point: what every command does, and the short ways to ``perdure exec`` and ``perdure when JOB``.

A launcher starts alongside each of a job's tasks. So it does without the library that reads command lines, which takes
longer to load than all else that it needs; words that are not plain are read by that library after all. It also takes
a tenth of the time in which a job's start is answered.
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
    if len(words) == 2 and words[0] == "when" and words[1].isascii() and words[1].isdecimal():
        return _when(words[1])
    if words[:1] == ["whatif"]:
        gc.disable()  # for the reason given above, until the command has all that it needs
    try:
        from perdure.cli import commands

        return commands.run(words)
    finally:
        gc.enable()


def _when(job: str) -> int:
    """Answer as `perdure.cli.when.job` does for a job without an option."""
    gc.disable()  # for the reason given there
    try:
        from perdure.cli.text import replace_missing_letters
        from perdure.cli.when_answer import WhenOptions, ask

        replace_missing_letters(sys.stdout, sys.stderr)
        code = ask(WhenOptions(job), False, wide=False)
        sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as err:
        from perdure.cli import commands

        return commands.explain(err, "when")
    finally:
        gc.enable()


def _exec(command: Sequence[str], settings: dict[str, Any]) -> int:
    try:
        from perdure.job.exec import run
        from perdure.job.options import options_of

        gc.enable()
        return run(command, options=options_of(**settings))
    except (Exception, KeyboardInterrupt) as err:
        from perdure.cli import commands

        return commands.explain(err, "exec")
