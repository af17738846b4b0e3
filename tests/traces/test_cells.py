"""Cutting lines by NumPy gives what splitting them one by one gives, however the file falls into blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.traces import cells
from perdure.traces.cells import Block, as_texts, at_blanks, at_each, below_header, blocks, take
from perdure.traces.read import read
from perdure.traces.source import open_source
from tests.traces.test_sacct import HEADER, record

LETTERS = st.text(alphabet="ab|#. \té\r", max_size=12)


def cut(text: str, marks_of: Callable[[Any], cells.Marks], width: int) -> tuple[dict[Any, Any], dict[int, str]]:
    block = Block(text.encode(), 1)
    found, others = take(block, marks_of(block), width, range(width))
    columns = [as_texts(found.column(which), 100).tolist() for which in range(width)]
    return dict(zip(found.line.tolist(), zip(*columns, strict=True), strict=True)), dict(others)


@pytest.mark.parametrize("separator", ["|", "|#"])
@given(lines=st.lists(LETTERS, min_size=1, max_size=8), width=st.integers(1, 4))
def test_lines_are_cut_at_each_separator(separator: str, lines: list[Any], width: int) -> None:
    whole, others = cut("".join(f"{line}\n" for line in lines), lambda block: at_each(separator.encode(), block), width)
    split = {number: line.removesuffix("\r").split(separator) for number, line in enumerate(lines, 1)}
    assert whole == {number: tuple(words) for number, words in split.items() if len(words) == width}
    assert others == {number: lines[number - 1] for number in split if number not in whole}


@given(lines=st.lists(LETTERS, min_size=1, max_size=8), width=st.integers(1, 4))
def test_lines_are_cut_at_runs_of_blanks(lines: list[Any], width: int) -> None:
    whole, others = cut("".join(f"{line}\n" for line in lines), at_blanks, width)
    split = {number: line.split() for number, line in enumerate(lines, 1)}
    assert whole == {number: tuple(words) for number, words in split.items() if len(words) == width}
    assert whole.keys() | others.keys() == split.keys()


def test_a_very_long_cell_leaves_its_line_to_others() -> None:
    long = "a" * (cells.MAX_CELL_BYTES + 1)
    whole, others = cut(f"a|b\n{long}|b\n", lambda block: at_each(b"|", block), 2)
    assert (whole, others) == ({1: ("a", "b")}, {2: f"{long}|b"})


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_blocks_hold_whole_lines_and_together_the_file(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(cells, "BLOCK_BYTES", size)
    source = open_source(file("a.txt", b"\xef\xbb\xbfhead\n\none\r\nand a long one\nlast"))
    found = [(block.first_line + n, line) for block in blocks(source) for n, (_, line) in enumerate(block.lines())]
    assert found == [(1, "head"), (2, ""), (3, "one\r"), (4, "and a long one"), (5, "last")]
    below = [line for block in below_header(source) for line in block.lines()]
    assert below == found[1:]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "BLOCK_BYTES", 100)
    monkeypatch.setattr(cells, "MAX_LINE_BYTES", 1000)
    with pytest.raises(InputError, match=r"jobs.txt:3: the line has more than 0 MiB\. Export the trace again"):
        read(file("jobs.txt", HEADER + record() + "|" * 2000))


@pytest.mark.parametrize("size", [1, 50, 333])
def test_records_that_stretch_over_blocks_are_read_all_the_same(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    names = ["plain", "two\nlines", "a|b", "three\n\nli|nes", "plain", "torn"]
    text = HEADER + "".join(record(str(number), name) for number, name in enumerate(names, 1))
    whole = read(file("jobs.txt", text[:-60]), skip_bad=True)
    monkeypatch.setattr(cells, "BLOCK_BYTES", size)
    parts = read(file("jobs.txt", text[:-60]), skip_bad=True)
    assert parts.left_out == whole.left_out == {"the record has not as many columns as the header": 1}
    assert parts.table.job_id.tolist() == whole.table.job_id.tolist() == ["1", "2", "3", "4", "5"]
