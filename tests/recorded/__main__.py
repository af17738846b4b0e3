"""Write down what is answered now: ``python -m tests.recorded [MODULE ...]``. Then read the difference.

Cases that are there are asked again. For a function that is new cases are drawn until none takes another path through
the code for a while; those that did are kept.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.recorded.answers import MODULES, answer, functions, path_of, recorded
from tests.recorded.drawn import NotDrawn
from tests.recorded.path_taken import path_taken

MOST_TRIED, PATIENCE = 1500, 100  # cases, and cases in a row that show nothing new
LEAST_KEPT, MOST_KEPT, OF_ONE_PATH = 10, 100, 3


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    for module in sys.argv[1:] or MODULES:
        path = path_of(module)
        path.parent.mkdir(exist_ok=True)
        known: dict[str, list[int]] = {}
        for name, case, _ in recorded(module):
            known.setdefault(name, []).append(case)
        lines = []
        for name, function in functions(module).items():
            cases = known.get(name) or list(_telling(module, name, function))
            lines += [f"{name} {case}: {answer(module, name, function, case)}\n" for case in cases]
        path.write_text("".join(lines))
        sys.stdout.write(f"{module}: {len(lines)} answers\n")
        sys.stdout.flush()


def _telling(module: str, name: str, function: Callable[..., Any]) -> Iterator[int]:
    """The cases that are worth keeping."""
    seen: Counter[Any] = Counter()
    kept, last = 0, 0
    for case in range(MOST_TRIED):
        if kept >= MOST_KEPT or case > last + PATIENCE:
            return
        try:
            with path_taken() as path:
                answer(module, name, function, case)
        except NotDrawn:
            return
        way = frozenset(path)
        seen[way] += 1
        if case < LEAST_KEPT or seen[way] <= OF_ONE_PATH:
            kept, last = kept + 1, case
            yield case


if __name__ == "__main__":
    main()
