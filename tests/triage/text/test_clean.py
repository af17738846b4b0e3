"""Cleaning: what is shown and matched is what a person would have seen, and line numbers stay true."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InputError, LogRefused
from perdure.triage.text.clean import MAX_LINE_BYTES, PIECE, decode, scrub, without_bars, without_prefix
from perdure.triage.text.escapes import AT_ONCE, without_escapes
from perdure.triage.text.logtext import LogText, TextWindow, blocks, newlines
from perdure.triage.text.masking import mask, shapes
from perdure.triage.text.patterns import compiled
from perdure.triage.text.regular_file import open_regular


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (b"\x1b[1;31mError\x1b[0m: x", b"Error: x"),
        (b"\x1b]0;title\x07text", b"text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", b"link"),
        (b"\x1b]never closed\nnext", b"\nnext"),
        (b"a\x00b\x08\x7fc", b"abc"),
        (b"windows\r\nline\r\n", b"windows\nline\n"),
        ("größe 日本".encode(), "größe 日本".encode()),
        (b"\x1b", b""),
        (b"a\x1b[m\x1b\x1b[mb", b"ab"),  # what is taken out joins nothing to a malformed one before it
        (b"a\x1b\x1b[m[mb", b"a[mb"),
    ],
)
def test_controls_and_escapes_go(raw: bytes, clean: bytes) -> None:
    assert scrub(raw) == clean


ESCAPE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*\x07?|\x1b[ -/]*[0-~]|\x1b")


@given(st.text("0159 .-+eE_ax:\n", max_size=60))
def test_numbers_are_masked_as_re2_masks_them(text: str) -> None:
    found = mask(text.encode())
    expected = compiled(r"[-+]?\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?").sub(b"<n>", text.encode())
    assert found == expected or b"<time>" in found or b"<hex>" in found or b"<ip>" in found


@given(st.text("a\n", max_size=40), st.integers(0, 9000), st.integers(0, 9000))
def test_newlines_of_a_stretch_are_counted(text: str, start: int, length: int) -> None:
    data = (text.encode() + b"\n") * 200
    start, end = min(start, len(data)), min(start + length, len(data))
    assert newlines(data, start, end) == data[start:end].count(b"\n")


@given(st.lists(st.sampled_from([b"\x1b", b"\x1b[", b"\x1b]", b"0", b";", b"m", b" ", b"\x07", b"\\", b"\n", b"x"])))
def test_escapes_of_any_kind_and_form_go(parts: list[bytes]) -> None:
    kinds = b"".join(b"\x1b[%dm" % i for i in range(20))
    raw = b"".join(parts) + kinds
    assert without_escapes(raw) == ESCAPE.sub(b"", raw)


def test_where_a_long_block_is_cut_no_sequence_is() -> None:
    kinds = [b"\x1b[%d;1m red" % i for i in range(20)] + [
        b"\x1b",
        b"\x1b[",
        b"\x1b]t",
        b"\x1b]t\x07",
        b"\x1b\\",
        b"\x1b( B\n",
    ]
    raw = b"".join(kinds) * (3 * AT_ONCE // len(b"".join(kinds))) + b"x" * AT_ONCE
    assert without_escapes(raw) == ESCAPE.sub(b"", raw)


def test_a_broken_escape_leaves_the_others_alone() -> None:
    assert scrub(b"\x1b\x1b[31mred\x1b[0m \x1b[32mgreen\x1b[0m") == b"red green"


def test_many_kinds_of_escapes_all_go() -> None:
    assert scrub(b"".join(b"\x1b[38;5;%dmx" % i for i in range(500))) == b"x" * 500


@given(st.binary(max_size=400))
def test_scrubbing_keeps_every_newline_and_leaves_no_control(raw: bytes) -> None:
    clean = scrub(raw)
    assert clean.count(b"\n") == raw.count(b"\n")
    assert not set(clean) & (set(range(32)) - {9, 10, PIECE[0]})


@given(st.binary(max_size=300))
def test_decoded_text_is_valid_and_has_no_direction_marks(raw: bytes) -> None:
    text = decode(scrub(raw))
    assert text.encode().decode() == text
    assert not any(0x202A <= ord(c) <= 0x202E or 0x2066 <= ord(c) <= 0x2069 for c in text)


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank3]: ",
        "3: ",
        "[1,2]<stderr>:",
        "(RayTrainWorker pid=4711, ip=10.0.0.2) ",
        "[default0]:",
        "[2025-01-02 03:04:05,678] ",
        "2025-01-02T03:04:05.678Z ",
        "[rank0]: [2025-01-02 03:04:05] ",
        "[n17:4242] ",
    ],
)
def test_what_launchers_put_before_a_line_goes(prefix: str) -> None:
    assert without_prefix(f"{prefix}ValueError: 3: x".encode()) == b"ValueError: 3: x"


def test_the_last_picture_of_a_redrawn_line_is_kept() -> None:
    line = scrub(b" 10%|#   | 1/9 [00:01<00:09, 1.0it/s]\r 20%|##  | 2/9 [00:02<00:08, 1.0it/s]\rdone")
    assert without_bars(line) == b"done"


def test_text_behind_a_bar_is_kept() -> None:
    line = "  4%|▏  | 2/47 [00:09<03:37,  4.95s/it]slurmstepd: error: x"
    assert without_bars(line.encode()) == b"slurmstepd: error: x"


def test_masks_hide_what_changes_from_run_to_run() -> None:
    first = mask(b"2025-01-01 10:00:00 node 10.0.0.7:29500 lost at 0x7f3a, see /scratch/u1/run/3.log, 17.5 s")
    second = mask(b"2026-12-31 23:59:59 node 10.1.2.3:1234 lost at 0x7f00, see /home/u2/x/y/4.txt, 3e-4 s")
    assert first == second


@given(st.text(max_size=200))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = mask(text.encode())
    assert mask(once).split() == once.split()


DIGITS_CUT = re.compile(rb"(?<![a-z0-9_])([a-z_]*)[0-9][a-z0-9_]*")


@given(st.text(alphabet="ab1 2.\n_9-", max_size=60))
def test_shapes_cut_each_word_behind_its_first_digit(text: str) -> None:
    assert shapes(text.encode()) == DIGITS_CUT.sub(rb"\g<1>0", text.encode())


def test_lines_that_differ_in_numbers_hex_and_names_of_nodes_have_one_shape() -> None:
    lines = [f"node{i} 0x{i * 2654435761:x} took {i / 7:.3f} s at {i:016x}" for i in range(200)]
    assert len(set(shapes("\n".join(lines).encode()).split(b"\n"))) == 1


def test_a_short_log_is_one_window() -> None:
    assert LogText.of(b"a\nb\n").windows[0].data == b"a\nb\n"
    assert LogText.of(b"").windows == ()


def test_blocks_are_cut_at_newlines() -> None:
    window = LogText.of(b"".join(b"line %d\n" % i for i in range(1, 100))).windows[0]
    cut = list(blocks(window, size=64))
    assert b"".join(block.scrubbed() for block in cut) == window.data
    for block in cut:
        assert block.scrubbed().startswith(b"line %d\n" % block.first_line)


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(16, 200), st.integers(0, 400))
def test_no_line_is_torn_that_is_shorter_than_a_block(lengths: list[int], size: int, end_bytes: int) -> None:
    window = TextWindow(b"".join(b"x" * length + b"\n" for length in lengths))
    cut = list(blocks(window, size, end_bytes))
    assert b"".join(window.data[block.start : block.end] for block in cut) == window.data
    for block in cut:
        assert window.data[: block.start].count(b"\n") == block.first_line - 1
        assert window.data[block.end - 1 : block.end] == b"\n"


def test_over_long_lines_are_cut() -> None:
    assert len(decode(b"x" * 10 * MAX_LINE_BYTES)) == MAX_LINE_BYTES


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, make: object) -> None:
    path = tmp_path / "log"
    make(path)  # type: ignore[operator]
    with pytest.raises(LogRefused, match="not a regular file"):
        open_regular(path)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        open_regular(tmp_path / "none")


def test_escapes_of_many_kinds_go_as_those_of_few_do() -> None:
    words = [b"step %d" % i for i in range(400)]
    kinds = [b"\x1b[38;2;%d;%d;7m" % (i, i // 2) for i in range(400)]
    pairs = zip(kinds, words, strict=True)
    assert without_escapes(b"\n".join(kind + word + b"\x1b[0m" for kind, word in pairs)) == b"\n".join(words)
    assert without_escapes(b"\n".join(b"\x1b[1m" + word + b"\x1b[0m" for word in words)) == b"\n".join(words)
