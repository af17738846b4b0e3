"""``perdure speed --or "8 GPUs now" --or "16 GPUs in 5 hours"``: which ends first, waits and running together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import word
from perdure.errors import InputError
from perdure.throughput.option_values import digits

if TYPE_CHECKING:
    from perdure.throughput.first_to_end import GpuChoice, TimeSpread

Steps = Callable[[int], tuple[float, float, float]]
"""Seconds of a step on so many GPUs: the low end of the interval, the middle, and the high end."""

_NUMBER = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15}(?:\.\d{1,6})?(?:e\d{1,2})?)"
_WORK = re.compile(rf"{_NUMBER} *(steps?|examples?|epochs? +of +{_NUMBER}(?: +examples?)?)")
_CHOICE = re.compile(
    r"(\d{1,6}) *gpus?(?: +(now|in +(\d{1,6}(?:\.\d{1,3})?) *(s|sec|m|min|h|d|seconds?|minutes?|hours?|days?)))?"
)
_MOST_EXAMPLES = 1e18
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
COLUMNS = (
    word("CHOICE"), word("WAIT"), word("RUN"), word("80 %", leave=2), word("END"), word("80 % OF ENDS", leave=1),
    word("GPU HOURS"), word("FIRST BEFORE NEXT", leave=3),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AskedChoice:
    """GPUs, and after how many seconds they are there; None where the queue is to say."""

    gpus: int
    wait_s: float | None


def choice_of(given: str) -> AskedChoice:
    """Read ``16 GPUs in 5 hours``, ``8 GPUs now``, or ``16 GPUs``, whose wait the queue tells."""
    found = _CHOICE.fullmatch(given.strip().lower())
    if found is None or not int(found[1]):
        what = f"{given[:80]!r} is no choice"
        raise InputError(
            "--or", what, "Give GPUs and when they are there: '8 GPUs now', '16 GPUs in 5 hours', '16 GPUs'"
        )
    if found[2] is None:
        return AskedChoice(int(found[1]), None)
    return AskedChoice(int(found[1]), 0.0 if found[3] is None else float(found[3]) * _UNITS_S[found[4][0]])


def examples_of(work: str, batch: int, gpus: int) -> float:
    """Examples that are to be trained on; steps are those of `batch` on each of `gpus`."""
    found = _WORK.fullmatch(work.strip().lower())
    if found is None:
        what = f"{work[:80]!r} is no work" if work else "it is missing"
        raise InputError("--work", what, "Say what is left: '90 epochs of 1,281,167', '500000 steps', '3e8 examples'")
    count = float(found[1].replace(",", ""))
    each = float(found[3].replace(",", "")) if found[3] else 1.0
    examples = count * (batch * gpus if found[2].startswith("step") else each)
    if not 1 <= examples <= _MOST_EXAMPLES:
        raise InputError("--work", f"{work[:80]!r} is {examples:.3g} examples", f"Give 1 to {_MOST_EXAMPLES:.0e}")
    return examples


def answer(
    given: Sequence[str], work: str, batch: int, steps: Steps, as_json: bool, wide: bool, one_cause: bool = False
) -> int:
    """Say which of the choices ends first; `one_cause`: all steps are off by the same factor, for the same reason."""
    from perdure.throughput.first_to_end import GpuChoice, TimeSpread, by_end, chance_before

    asked = [choice_of(each) for each in given]
    if len(asked) < 2:
        raise InputError("--or", "there is one choice", "Give two or more: --or '8 GPUs now' --or '16 GPUs in 5 hours'")
    examples = examples_of(work, batch, asked[0].gpus)
    choices = []
    for name, each in zip(given, asked, strict=True):
        count = examples / (batch * each.gpus)
        run = TimeSpread(*(count * seconds for seconds in steps(each.gpus)))
        choices.append(GpuChoice(name.strip(), each.gpus, _wait(each), run))
    ordered = by_end(choices)
    chances = [chance_before(one, other, one_cause) for one, other in pairwise(ordered)]
    if as_json:
        rows = [_row(choice, chance) for choice, chance in zip(ordered, [*chances, None], strict=True)]
        print_json("speed-choice", 1, work=work, examples=examples, choices=rows)
        return 0
    print_table(COLUMNS, (_cells(*each) for each in zip(ordered, [*chances, None], strict=True)), wide=wide)
    first, second = ordered[:2]
    sooner = length(second.end.middle_s - first.end.middle_s)
    print_line(f"{first.name} ends first with a chance of {chances[0]:.0%}, {sooner} before {second.name}.")
    return 0


def _wait(asked: AskedChoice) -> TimeSpread:
    from perdure.throughput.first_to_end import TimeSpread

    if asked.wait_s is not None:
        return TimeSpread(asked.wait_s, asked.wait_s, asked.wait_s)
    from perdure.cli.when_answer import forecast_of

    found = forecast_of(asked.gpus)
    low, high = found.interval_s
    return TimeSpread(low, found.median_s, high)


def _row(choice: GpuChoice, chance: float | None) -> dict[str, object]:
    def seconds(spread: TimeSpread) -> dict[str, float]:
        return {"low_s": spread.low_s, "median_s": spread.middle_s, "high_s": spread.high_s}

    return {
        "choice": choice.name, "gpus": choice.gpus, "wait": seconds(choice.wait), "run": seconds(choice.run),
        "end": seconds(choice.end), "gpu_hours": choice.gpu_hours, "chance_before_next": chance,
    }  # fmt: skip


def _cells(choice: GpuChoice, chance: float | None) -> Sequence[str]:
    return (
        choice.name, length(choice.wait.middle_s), length(choice.run.middle_s),
        f"{length(choice.run.low_s)} to {length(choice.run.high_s)}", length(choice.end.middle_s),
        f"{length(choice.end.low_s)} to {length(choice.end.high_s)}", digits(choice.gpu_hours),
        "" if chance is None else f"{chance:.0%}",
    )  # fmt: skip


def length(seconds: float) -> str:
    """A length of time in its two largest units.

    >>> length(59.6), length(9000), length(400_000)
    ('1m', '2h 30m', '4d 15h')
    """
    for large, small, large_s, small_s in (("d", "h", 86400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        count = round(seconds / small_s)
        if round(seconds) >= large_s:
            whole, rest = divmod(count, large_s // small_s)
            return f"{whole}{large} {rest}{small}" if rest else f"{whole}{large}"
    return f"{round(seconds)}s"
