"""ClassAds as HTCondor's tools print them in JSON, and expressions in them. What an owner wrote may be of any type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from perdure.model.identity import AttemptId

ClassAd = Mapping[str, Any]
"""The attributes of one thing; their names in lower case, as HTCondor writes them in either."""
_BEGIN, _END = "/Expr(", ")/"
_AD = re.compile(r"(?ms)^\{$.*?^\}$")  # what is within it is indented, and has no end of line in strings
_BETWEEN_ADS = re.compile(r"\s*\[[\s,]*\]\s*")
MOST, MOST_INSTANT_S = 2**53, 2**37


def read_ads(data: bytes) -> list[ClassAd]:
    """Raises `msgspec.DecodeError`. No ad at all may be printed as nothing."""
    try:
        told = msgspec.json.decode(data, type=list[dict[str, Any]]) if data.strip() else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = list(_one_by_one(data.decode("utf-8", "replace")))
    return [{name.lower(): value for name, value in ad.items()} for ad in told]


def _one_by_one(told: str) -> Iterator[dict[str, Any]]:
    """The ads that can be read: strings in them may be of any bytes, and lists of any depth, as their owners like."""
    if _BETWEEN_ADS.fullmatch(_AD.sub("", told)) is None:
        raise msgspec.DecodeError("it is no list of ads, or broke off")
    for found in _AD.finditer(told):
        with suppress(ValueError, RecursionError):
            whole_text = json.dumps(json.loads(found[0], strict=False), ensure_ascii=False)
            yield json.loads(whole_text.encode(errors="replace"))  # without half characters


def text(ad: ClassAd, name: str) -> str:
    """A string; "" where it is not one, as an expression is not."""
    found = ad.get(name.lower())
    return found if isinstance(found, str) and not found.startswith(_BEGIN) else ""


def number(ad: ClassAd, name: str) -> float | None:
    """A number that is exact as a float; None for anything else."""
    found = ad.get(name.lower())
    if not isinstance(found, int | float) or isinstance(found, bool) or abs(found) > MOST:
        return None
    return float(found)


def instant(ad: ClassAd, name: str) -> float | None:
    """Seconds since the epoch; None for anything else, such as a year of five digits."""
    found = number(ad, name)
    return found if found is not None and 0.0 <= found <= MOST_INSTANT_S else None


def whole(ad: ClassAd, name: str) -> int:
    """A whole number; 0 for anything else."""
    return int(number(ad, name) or 0)


def is_true(ad: ClassAd, name: str) -> bool:
    return ad.get(name.lower()) is True


def expression(ad: ClassAd, name: str) -> str:
    """The text of an expression, or of a literal; "" if the attribute is missing.

    >>> expression({"requirements": "/Expr(Cpus > 1)/"}, "Requirements")
    'Cpus > 1'
    >>> expression({}, "Requirements"), expression({"rank": 2}, "Rank"), expression({"args": "a b"}, "Args")
    ('', '2', '"a b"')
    """
    found = ad.get(name.lower())
    if isinstance(found, str) and found.startswith(_BEGIN) and found.endswith(_END):
        return found[len(_BEGIN) : -len(_END)]
    if isinstance(found, bool):
        return "true" if found else "false"
    return "" if found is None else literal(found) if isinstance(found, str) else str(found)


def literal(value: str) -> str:
    """A string as a ClassAd writes it.

    >>> literal('a "b"')
    '"a \\\\"b\\\\""'
    """
    plain = "".join(char if char.isprintable() else " " for char in value)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def job_id(ad: ClassAd) -> str:
    return f"{whole(ad, 'ClusterId')}.{whole(ad, 'ProcId')}"


def run_number(ad: ClassAd) -> int:
    """How often the job has been started: HTCondor's own number of the run, 0 before the first."""
    return whole(ad, "NumShadowStarts")


def that_run(attempt: AttemptId) -> str | None:
    """A constraint that only this job satisfies, while the attempt is its latest; None where the id is no job's."""
    cluster, dot, process = attempt.job_id.partition(".")
    if not (attempt.job_id.isascii() and cluster.isdecimal() and process.isdecimal() and dot):
        return None
    runs = "ifThenElse(isUndefined(NumShadowStarts), 0, NumShadowStarts)"
    return f"ClusterId == {cluster} && ProcId == {process} && {runs} == {attempt.incarnation}"


def machine_of(slot: str) -> str:
    """The machine of a slot by the slot's name.

    >>> machine_of("slot1_2@gpu7.example.org")
    'gpu7.example.org'
    """
    return slot.rpartition("@")[2]
