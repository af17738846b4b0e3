"""Columns of texts in which few texts come many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

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
