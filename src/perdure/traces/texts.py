"""Columns of texts in which few texts come many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def mapped(
    texts: NDArray[np.str_], meaning: Callable[[str], float], dtype: DTypeLike = np.float64
) -> NDArray[Any]:
    """What each text means, asked once a text."""
    listed = texts.tolist()
    known = {text: meaning(text) for text in set(listed)}
    return np.fromiter(map(known.__getitem__, listed), dtype, len(listed))
