"""Columns in which few texts come many times."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perdure.traces.texts import coded, mapped, side_by_side

TEXTS = st.lists(st.text("ab1\xe9", max_size=18), max_size=30).map(lambda texts: np.array(texts, np.str_))


@given(texts=TEXTS)
def test_equal_texts_come_side_by_side_and_keep_their_order(texts: NDArray[np.str_]) -> None:
    order, first = side_by_side(texts)
    listed = texts[order].tolist()
    assert sorted(order.tolist()) == list(range(len(texts)))
    assert sum(first.tolist()) == len(set(listed))
    for place, new in enumerate(first.tolist()):
        assert new == (listed[place] not in listed[:place])
        assert new or order[place - 1] < order[place]


@given(texts=TEXTS)
def test_each_text_is_asked_for_its_meaning_once(texts: NDArray[np.str_]) -> None:
    distinct, codes = coded(texts)
    assert distinct == list(dict.fromkeys(texts.tolist()))
    assert [distinct[code] for code in codes] == texts.tolist()
    asked = []

    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    assert mapped(texts, length).tolist() == [len(text) for text in texts]
    assert asked == distinct
