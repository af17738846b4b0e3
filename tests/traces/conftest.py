"""What the tests of the readers share: files made on the spot, and the public traces."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import require


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Write a file and name it: ``file("a.csv", "x,y\\n1,2\\n")``; a name that ends in .gz is packed."""

    def write(name: str, text: str | bytes) -> Path:
        raw = text if isinstance(text, bytes) else text.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write


@pytest.fixture
def public(data_dir: Path | None) -> Callable[[str], Path]:
    """The path of a public trace; skips the test where this checkout has none."""

    def named(name: str) -> Path:
        where = require("data", data_dir, "no public traces beside the repository, and PERDURE_DATA names none")
        require("data", (where / name).exists(), f"no public trace {name}")
        return where / name

    return named
