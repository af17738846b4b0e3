"""Values of the options of ``perdure speed`` and of its page, each read or refused in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import floor, log10

from perdure.errors import InputError

_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s*[gG](?:[bB]?(?:it)?(?:/s|ps)?)?")
MOST = {"--batch": 1 << 20, "--nodes": 1 << 16, "--gpus-per-node": 64, "--racks": 1 << 12}


def words(option: str, given: str) -> list[str]:
    """The values of an option that takes several with commas between them."""
    found = [each.strip() for each in given.split(",") if each.strip()]
    if not found:
        raise InputError(option, "it is empty", "Give one value or several, with commas between them")
    return list(dict.fromkeys(found))


def numbers(option: str, given: str) -> list[int]:
    """Whole numbers from 1 to the most that the option takes."""
    found = []
    for each in words(option, given):
        if not (each.isascii() and each.isdecimal() and len(each) < 10 and 1 <= int(each) <= MOST[option]):
            raise InputError(
                option, f"{each[:80]!r} is no number of 1 to {MOST[option]:,}", "Give whole numbers, as 8,16,32"
            )
        found.append(int(each))
    return found


def rate(given: str) -> float:
    """Gbit/s of a link."""
    found = _RATE.fullmatch(given)
    if found is None or not 1 <= float(found[1]) <= 6400:
        raise InputError(
            "--link", f"{given[:80]!r} is no rate of 1G to 6400G", "Give gigabits a second, as 25G or 100G"
        )
    return float(found[1])


def milliseconds(seconds: float) -> str:
    """Milliseconds with three digits or more, never as a power of ten.

    >>> milliseconds(1.2345), milliseconds(0.01234), milliseconds(1.5e-7)
    ('1,234', '12.3', '0.000150')
    """
    return digits(seconds * 1e3)


def digits(value: float) -> str:
    """A number with three digits or more."""
    if not value:
        return "0"
    return f"{value:,.{max(0, 2 - floor(log10(value)))}f}"


def known(option: str, given: str, names: Iterable[str]) -> str:
    """A name that is known, in small letters or large; refused with those like it."""
    from difflib import get_close_matches

    all_of, name = list(names), given.strip().lower()
    if name in all_of:
        return name
    like = get_close_matches(name, all_of, 3, 0.5) or all_of
    raise InputError(option, f"{given[:80]!r} is not known", f"Use one of: {', '.join(like)}")
