"""Past jobs are read from their text once."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.when_process import history_of
from perdure.cli import kept_table
from perdure.cli.kept import KeptFolder
from perdure.model.table import JobTable
from perdure.traces import sacct
from perdure.traces.source import TraceSource
from perdure.traces.trace import Trace

NOW_S = 1_790_000_000.0


@pytest.fixture
def kept(tmp_path: Path) -> KeptFolder:
    found = KeptFolder(tmp_path)
    found.write("history.txt", history_of(50, NOW_S, np.random.default_rng(0)))
    return found


def read(kept: KeptFolder) -> JobTable:
    found = kept_table.read_table(kept, "history.txt", "history.npz")
    assert found is not None
    return found


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the text was read."""
    seen: list[int] = []
    form = sacct.FORMAT

    def counted(source: TraceSource, skip_bad: bool) -> Trace:
        seen.append(1)
        return form.read(source, skip_bad)

    monkeypatch.setattr(sacct, "FORMAT", replace(form, read=counted))
    return seen


def test_a_text_is_read_once_and_the_jobs_are_the_same(kept: KeptFolder, texts: list[int]) -> None:
    first, again = read(kept), read(kept)
    assert len(texts) == 1
    assert len(first) == 50
    for each in fields(first):
        assert np.array_equal(getattr(first, each.name), getattr(again, each.name), equal_nan=each.name.endswith("_s"))


def test_another_text_is_read_anew(kept: KeptFolder, texts: list[int]) -> None:
    read(kept)
    kept.write("history.txt", history_of(20, NOW_S, np.random.default_rng(1)))
    assert len(read(kept)) == 20
    assert len(texts) == 2


@pytest.mark.parametrize("left", [b"", b"PK", b"no archive"])
def test_columns_that_are_damaged_are_made_again(kept: KeptFolder, texts: list[int], left: bytes) -> None:
    read(kept)
    kept.write("history.npz", left)
    assert len(read(kept)) == 50
    assert len(texts) == 2


def test_where_no_text_is_kept_there_are_no_jobs(tmp_path: Path) -> None:
    assert kept_table.read_table(KeptFolder(tmp_path), "history.txt", "history.npz") is None
    assert kept_table.read_table(KeptFolder(None), "history.txt", "history.npz") is None
