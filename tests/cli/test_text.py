"""Nothing that a job wrote can move the cursor, colour, hide or reorder."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from perdure.cli.text import MAX_CELL, plain


@given(st.text())
def test_only_printable_characters_are_left(text: str) -> None:
    assert plain(text).isprintable()
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in plain(text))


@given(st.text(alphabet=st.characters(exclude_categories=["C", "Z"]), max_size=MAX_CELL))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert plain(text) == text


def test_escapes_marks_and_line_ends_go() -> None:
    assert plain("\x1b]0;title\x07a\x9bb\u202ec\u2066d\r\ne\tf\ud800") == "]0;titleabcd  e f"


def test_long_text_is_cut_and_says_so() -> None:
    assert plain("x" * 5000) == "x" * (MAX_CELL - 1) + "…"
    assert plain("x" * 50, 10) == "x" * 9 + "…"
