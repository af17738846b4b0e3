"""Columns of texts in which few texts come many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

_LETTER = np.dtype("U1").itemsize
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd and without a pattern; what does not fit into 64 bits is lost
_Scalar = TypeVar("_Scalar", np.str_, np.bytes_)


def coded(texts: NDArray[_Scalar]) -> tuple[list[Any], NDArray[np.intp]]:
    """Each text once, in the order of its first place, and for each row which of them it is."""
    listed = texts.tolist()
    place = {text: number for number, text in enumerate(dict.fromkeys(listed))}
    return list(place), np.fromiter(map(place.__getitem__, listed), np.intp, len(listed))


def mapped(texts: NDArray[_Scalar], meaning: Callable[[Any], float], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """What each text means, asked once a text."""
    distinct, codes = coded(texts)
    meanings: NDArray[Any] = np.array([meaning(text) for text in distinct], dtype)
    return meanings[codes]


def side_by_side(texts: NDArray[np.str_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """A stable order of the rows in which equal texts are neighbours; and, in it, which are the first of their kind.

    Where no two are equal, which is soon seen, that is the order they are in.
    """
    first = np.ones(len(texts), bool)
    if _all_differ(texts):
        return np.arange(len(texts)), first
    order = np.argsort(texts, kind="stable")
    ordered = texts[order]
    first[1:] = ordered[1:] != ordered[:-1]
    return order, first


def _all_differ(texts: NDArray[np.str_]) -> bool:
    """True only where no two texts are equal: then their letters, added up as one number, hardly ever are."""
    letters = np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), texts.itemsize // _LETTER)
    numbers = np.zeros(len(texts), np.uint64)
    for column in letters.T:
        numbers = numbers * _FACTOR + column
    numbers.sort()
    return bool((numbers[1:] != numbers[:-1]).all())
