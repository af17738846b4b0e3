"""Compressed logs: read as what they hold, in bounded memory, as far as they can be read."""

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InputError, LogRefused
from perdure.triage.text import packed
from perdure.triage.text.packed import CutShort, is_packed, unpacked

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LOG = b"".join(b"line %d\n" % i for i in range(20_000))
PACKERS: list[Callable[[bytes], bytes]] = [gzip.compress, zstd.compress, bz2.compress, lzma.compress]
packers = pytest.mark.parametrize("pack", PACKERS, ids=["gz", "zst", "bz2", "xz"])


PACKED = {pack: pack(LOG) for pack in PACKERS}


def read_as_far_as_it_goes(data: bytes) -> tuple[bytes, Exception | None]:
    """What came before the end, and what ended it."""
    pieces = []
    try:
        for piece in unpacked(io.BytesIO(data).read, "x", 1000):
            assert len(piece) <= 1000
            pieces.append(piece)
    except (CutShort, InputError, LogRefused) as err:
        return b"".join(pieces), err
    return b"".join(pieces), None


def whole(data: bytes) -> bytes:
    return b"".join(unpacked(io.BytesIO(data).read, "x", 1000))


@packers
def test_a_compressed_log_is_what_it_holds(pack: Callable[[bytes], bytes]) -> None:
    assert is_packed(pack(LOG))
    assert whole(pack(LOG)) == LOG
    assert whole(pack(LOG[:500]) + pack(LOG[500:])) == LOG
    assert whole(pack(LOG) + b"\0" * 9) == LOG
    assert whole(pack(b"")) == b""


@packers
@pytest.mark.parametrize("most", [1, 2, 3, 7, 64])
def test_members_are_read_however_little_is_there_at_a_time(pack: Callable[[bytes], bytes], most: int) -> None:
    """Pieces end wherever they do: before a member, in the bytes that show its format, in its middle."""
    file = io.BytesIO(pack(LOG[:50]) + pack(LOG[50:90]) + pack(LOG[90:200]))
    assert b"".join(unpacked(lambda size: file.read(min(size, most)), "x", 1000)) == LOG[:200]


@given(st.binary(max_size=60))
def test_what_is_not_compressed_is_left_alone(data: bytes) -> None:
    if not is_packed(data):
        assert whole(data) == data


@packers
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_what_can_be_read_of_a_truncated_one_is_given(pack: Callable[[bytes], bytes], share: float) -> None:
    got, end = read_as_far_as_it_goes(PACKED[pack][: int(share * len(PACKED[pack]))])
    assert LOG.startswith(got)
    assert isinstance(end, CutShort if got else InputError)
    assert got or pack is not gzip.compress  # the blocks of the others are larger than this log


@packers
@given(damage=st.binary(min_size=1, max_size=30))
def test_damaged_ones_end_in_one_of_three_ways(pack: Callable[[bytes], bytes], damage: bytes) -> None:
    data = PACKED[pack]
    middle = len(data) // 2
    got, end = read_as_far_as_it_goes(data[:middle] + damage + data[middle + len(damage) :])
    assert end is None or isinstance(end, CutShort if got else InputError)


@packers
def test_a_bomb_comes_in_pieces_and_ends(pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = pack(b"\0" * 12_000_000)
    assert len(bomb) < 60_000
    monkeypatch.setattr(packed, "MAX_UNPACKED_BYTES", 10_000_000)
    got, end = read_as_far_as_it_goes(bomb)
    assert len(got) == 10_000_000
    assert isinstance(end, LogRefused)
    assert "unpacks to more than" in str(end)
