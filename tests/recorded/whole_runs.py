"""What whole runs answer, case by case: ``python -m tests.recorded.whole_runs [NAME ...]`` writes it down.

A line is a case, the beginning of its answer, and a hash of all of it. With ``--case "NAME: CASE"`` the whole answer of
one case is printed, to be compared with what another version prints.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from perdure.errors import PerdureError
from tests.recorded.drawn import in_words

PLACE = Path(__file__).parent / "answers" / "whole_runs"
NETS = (
    "elastic_replays", "emulated", "figures", "live_queues", "parts", "schedules", "small_studies", "speeds",
    "suspects",
)  # fmt: skip
HEAD = 60  # characters of an answer that are written down, before a hash of it
_FRACTION = re.compile(r"-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)")
Case = tuple[str, Callable[[], object]]


def cases(net: str) -> Iterator[Case]:
    """The cases of a net, each with what answers it."""
    found: Iterator[Case] = import_module(f"tests.recorded.nets.{net}").cases()
    return found


def words(answer: Callable[[], object]) -> str:
    """The whole answer; what is refused is the refusal."""
    try:
        said = answer()
    except PerdureError as err:
        return f"{type(err).__name__}: {err}"
    return said if isinstance(said, str) else rounded(in_words(said))


def rounded(text: str, digits: int = 6) -> str:
    """With fractions to so many digits, so that no processor's last digit changes it; next to nothing is nothing."""

    def shorter(found: re.Match[str]) -> str:
        value = float(found[0])
        return f"{value if abs(value) > 1e-9 else 0.0:.{digits}g}"

    return _FRACTION.sub(shorter, text)


def line(case: Case) -> str:
    name, answer = case
    said = words(answer)
    return f"{name}: {said[:HEAD]} {hashlib.sha256(said.encode()).hexdigest()[:12]}".replace("\n", " ")


def path_of(net: str) -> Path:
    return PLACE / f"{net}.txt"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.recorded.whole_runs", description="write down what is answered"
    )
    parser.add_argument("nets", nargs="*", choices=[*NETS, []], metavar="NAME", help="all, if none is named")
    parser.add_argument("--case", help="print the whole answer of one instead")
    given = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    if given.case:
        net, _, name = given.case.partition(": ")
        sys.stdout.write(words(dict(cases(net))[name]) + "\n")
        return
    PLACE.mkdir(exist_ok=True)
    for net in given.nets or NETS:
        began = time.process_time()
        lines = [line(case) for case in cases(net)]
        path_of(net).write_text("".join(f"{each}\n" for each in lines))
        sys.stdout.write(f"{net}: {len(lines)} answers, {time.process_time() - began:.1f} s\n")


if __name__ == "__main__":
    main()
