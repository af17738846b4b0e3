"""Traces on their way: until one is whole it is neither used, forgotten, nor replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import NotFound, TooMany
from perdure.service.whatif.uploads import LIFE_S, MAX_OF_ONE, Uploads


def done(asked: Coroutine[Any, Any, Any]) -> Any:
    """In a thread of its own: a browser that other tests of this process opened keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asked).result()


def test_a_trace_that_is_not_whole_yet_stays_and_is_nobodys_to_use(tmp_path: Path) -> None:
    now = [0.0]
    uploads = Uploads(tmp_path / "uploads", 100, lambda: now[0])

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        (begun,) = uploads._known
        with pytest.raises(NotFound):
            uploads.claim(begun, "ada", tmp_path / "trace")
        now[0] = LIFE_S + 1
        uploads.forget_old()
        assert list(uploads._known) == [begun]
        yield b"y"

    assert done(uploads.take(slow(), "ada", "trace.csv")).size == 2


def test_what_is_on_its_way_gives_way_to_no_other(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads", 100, lambda: 0.0)

    async def opened(more: int) -> AsyncIterator[bytes]:
        if more:
            await uploads.take(opened(more - 1), "eve", "another.csv")
        yield b"x"

    with pytest.raises(TooMany, match="under way"):
        done(uploads.take(opened(MAX_OF_ONE), "eve", "first.csv"))
