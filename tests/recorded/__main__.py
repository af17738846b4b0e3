"""Write down what is answered now: ``python -m tests.recorded [NAME ...]``. Then read the difference.

A name is a kind of answers (``runs``) or one of its files (``runs/17``, ``modules/retry.decide``); without any, all are
written. ``--whole`` prints them with all their words instead, to be compared with what another version prints.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path

from tests.recorded.groups import PLACE, lines_of, names


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description="write down what is answered now")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these: runs, runs/17, modules/retry.decide")
    parser.add_argument("--whole", action="store_true", help="print all words instead")
    given = parser.parse_args()
    _as_in_tests()
    for name in names():
        if given.names and not {name, name.partition("/")[0]} & {*given.names}:
            continue
        begun = time.process_time()
        lines = list(lines_of(name))
        if given.whole:
            sys.stdout.writelines(f"{line.whole}\n" for line in lines)
            continue
        path = PLACE / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line.short}\n" for line in lines))
        sys.stdout.write(f"{name}: {len(lines)} lines, {time.process_time() - begun:.1f} s\n")
        sys.stdout.flush()


def _as_in_tests() -> None:
    """Have the process as the tests have it: a time zone, commands that are found by name, no log on the screen."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    logging.getLogger("perdure").addHandler(logging.NullHandler())


if __name__ == "__main__":
    main()
