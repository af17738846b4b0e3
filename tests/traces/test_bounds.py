"""A small file that unpacks to a large one is refused by who reads it with a bound, in one line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.table import JobTable
from perdure.traces.own import write
from perdure.traces.read import read

MIB = 1 << 20
ROWS = "job_id,submit_s,gpus,duration_s\n" + "".join(f"{number},0,1,1\n" for number in range(1000))
HEADERS = {
    "perdure": b"job_id,submit_s,gpus,duration_s\n",
    "sacct": b"JobID|Submit|Start|Elapsed|State|AllocTRES\n",
    "philly-json": b'[{"jobid": "x", "attempts": [',
    "swf": b"; a comment\n",
    "gavel": b"A (batch size 8)\tpython3 main.py\t-step\t1\t1000\t0.5\t1\n",
}


def bomb(mib: int, begin: bytes = b"") -> bytes:
    """`begin` and many MiB of blanks, packed."""
    piece = gzip.compress(b" " * MIB)
    return gzip.compress(begin) + piece * mib  # members of one gzip file follow each other


@pytest.mark.parametrize("form", HEADERS)
def test_a_bomb_is_refused_before_it_is_read(file: Callable[..., Path], form: str) -> None:
    raw = bomb(64, HEADERS[form])
    assert len(raw) < MIB / 10
    with pytest.raises(InputError, match="it unpacks to more than 16 MiB") as caught:
        read(file("bomb", raw), form, most_bytes=16 * MIB)
    assert "\n" not in str(caught.value)


def test_the_bound_is_of_what_a_file_unpacks_to(file: Callable[..., Path]) -> None:
    for name in ("jobs.csv", "jobs.csv.gz"):
        path = file(name, ROWS)
        assert len(read(path, most_bytes=len(ROWS)).table) == 1000
        with pytest.raises(InputError, match="unpacks to more"):
            read(path, most_bytes=len(ROWS) - 1)


def test_a_parquet_file_counts_by_its_rows(tmp_path: Path) -> None:
    n = 200_000
    path = tmp_path / "same.parquet"
    same = np.zeros(n)
    write(JobTable(np.full(n, "a"), same, np.ones(n, np.int64), same + 1), path)
    assert path.stat().st_size < MIB
    with pytest.raises(InputError, match="it unpacks to more than 2 MiB"):
        read(path, most_bytes=2 * MIB)


def test_what_is_read_beside_a_trace_has_the_same_bound(file: Callable[..., Path]) -> None:
    path = file("gavel", HEADERS["gavel"])
    file("gavel.rates.csv", bomb(8, b"job,scale_factor,steps_per_s\nA (batch size 8),1,4.0\n"))
    with pytest.raises(InputError, match=r"gavel.rates.csv: it unpacks to more than 4 MiB"):
        read(path, most_bytes=4 * MIB)


def test_a_number_without_end_is_told_as_damage(file: Callable[..., Path]) -> None:
    path = file("log.json", '[{"jobid": "x", "attempts": [' + "1" * 5000 + "]}]")
    with pytest.raises(InputError, match="job 1, which begins in line 1, does not end"):
        read(path, "philly-json")
