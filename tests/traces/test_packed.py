"""Packed traces: told by their first bytes, read as if they were not packed, and damage is told as such."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from perdure.errors import InputError
from perdure.traces.read import read

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CSV = "job_id,submit_s,gpus,duration_s\n" + "".join(f"j{i},{i},1,{i % 97}\n" for i in range(20000))
SWF = "; MaxProcs: 8\n" + "".join(f"{i} {i} 1 {10 + i % 7} 2" + " -1" * 13 + "\n" for i in range(1, 8000))
PACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstd.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("text", [CSV, SWF], ids=["by DuckDB", "by lines"])
def test_a_packed_trace_is_read_as_the_trace_itself(tmp_path: Path, suffix: str, text: str) -> None:
    plain, packed = tmp_path / "jobs", tmp_path / f"jobs.{suffix}"
    plain.write_text(text)
    packed.write_bytes(PACKED[suffix](text.encode()))
    found, wanted = read(packed).table, read(plain).table
    assert found.submit_s.tolist() == wanted.submit_s.tolist()
    assert found.duration_s.tolist() == wanted.duration_s.tolist()


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("text", [CSV, SWF], ids=["by DuckDB", "by lines"])
def test_a_cut_file_is_damaged(tmp_path: Path, suffix: str, text: str) -> None:
    whole = PACKED[suffix](text.encode())
    path = tmp_path / f"jobs.{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cut off or damaged"):
        read(path)
