"""Values of the options of ``perdure emulate``, read with one line for each that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from perdure.emulation.profiles import unknown
from perdure.errors import InputError

NO_GPUS = "NoDevFiles"
"""What Slurm writes there for a job without GPUs."""

_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)[gG](?:[bB]?(?:it)?(?:/s|ps)?)?")


def known(option: str, given: str, names: Iterable[str]) -> str:
    """A name of these. Raises `InputError` with those that are most like it."""
    names = list(names)
    if given not in names:
        raise unknown(option, given, names)
    return given


def names(option: str, given: str) -> list[str]:
    """Names with commas between them."""
    found = [each.strip() for each in given.split(",") if each.strip()]
    if not found:
        raise InputError(option, "it is empty", "Give one value or several, with commas between them")
    return list(dict.fromkeys(found))


def numbers(option: str, given: str, most: int) -> list[int]:
    """Whole numbers of 1 to `most` with commas between them."""
    found = []
    for each in names(option, given):
        if not (each.isascii() and each.isdecimal() and len(each) < 10 and 1 <= int(each) <= most):
            raise InputError(
                option, f"{each[:80]!r} is not a number of 1 to {most:,}", "Give whole numbers, as 8,16,32"
            )
        found.append(int(each))
    return found


def rate(option: str, given: str) -> float:
    """Gigabits a second, as 25G."""
    found = _RATE.fullmatch(given)
    if found is None or not 1 <= float(found[1]) <= 6400:
        raise InputError(
            option, f"{given[:80]!r} is not a rate of 1G to 6400G", "Give gigabits a second, as 25G or 100G"
        )
    return float(found[1])


def absolute(path: Path | None) -> str:
    """A path that holds wherever a program goes to; nothing where none is given."""
    return str(path.resolve()) if path else ""


def given_gpus(environment: Mapping[str, str]) -> tuple[int, ...]:
    """The node's numbers of the GPUs that the resource manager gave this job, or one of its steps; at least one.

    Where Slurm hides the node's other GPUs, ``CUDA_VISIBLE_DEVICES`` counts among those of the job, and elsewhere among
    the node's; Slurm's own variables tell which. As for CUDA, -1 ends the list. Raises `InputError` where it names no
    GPU, or one twice.
    """
    said = environment.get("CUDA_VISIBLE_DEVICES", "")
    words = [each.strip() for each in said.split(",") if each.strip()]
    visible = list(takewhile(lambda each: each not in ("-1", NO_GPUS), words))
    if words and not visible:
        fix = "Ask the resource manager for GPUs, as by sbatch --gres=gpu:1, or unset it"
        raise InputError("CUDA_VISIBLE_DEVICES", f"{said[:80]!r} hides all GPUs", fix)
    if len(set(visible)) < len(visible):
        raise InputError("CUDA_VISIBLE_DEVICES", f"{said[:80]!r} names a GPU twice", "Name each once")
    numbers = _numbers(visible)
    of_slurm = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    given = _numbers(of_slurm.split(",") if of_slurm else [])
    if given and numbers and not set(numbers) <= set(given):
        numbers = tuple(given[each] for each in numbers if each < len(given))
    return numbers or given or tuple(range(max(1, len(visible))))


def _numbers(words: Sequence[str]) -> tuple[int, ...]:
    """The words as numbers; none where one is something else, as the long name of a GPU."""
    if not all(each.isascii() and each.isdecimal() and len(each) < 7 for each in words):
        return ()
    return tuple(map(int, words))
