"""What is packed reads as it was, for ever; what is damaged says so."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import StateError
from perdure.service.store.packed import MAX_BYTES, WORDS_1, pack, unpack

STORED = bytes.fromhex("01ab464e54e990f62acc4fa6946487dccca244a5da5a00")  # pack() of version 1 made it of TOLD
TOLD = '{"kind":"job_gone","time_s":5.0,"job":{"cluster":"c","job_id":"1","name":"train","user":"mira"}}'


@given(st.text().filter(lambda text: text.isprintable()))
def test_every_text_comes_back(text: str) -> None:
    assert unpack(pack(text)) == text


def test_what_was_packed_once_is_read_for_ever() -> None:
    assert unpack(STORED) == TOLD


def test_what_older_versions_wrote_is_read_as_it_stands() -> None:
    assert unpack(TOLD.encode()) == TOLD


def test_the_words_of_events_are_not_written_again() -> None:
    assert len(pack(TOLD)) < len(TOLD) / 3


def of_no_words(text: bytes) -> bytes:
    made = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return WORDS_1 + made.compress(text) + made.flush()


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        pack(TOLD)[:-4],
        b"\2" + pack(TOLD)[1:],
        WORDS_1 + b"\xff" * 9,
        of_no_words(b"\xff"),
        of_no_words(b"0" * (MAX_BYTES + 1)),
    ],
    ids=["empty", "cut off", "of other words", "not deflated", "not UTF-8", "larger than any value"],
)
def test_what_is_damaged_is_refused_in_one_line(stored: bytes) -> None:
    with pytest.raises(StateError, match="cannot be unpacked"):
        unpack(stored)
