"""A Python with the package in it that every user may run: the one of the tests may lie in root's home."""

from __future__ import annotations

import os
import site
import stat
import sys
from pathlib import Path

import pytest

import perdure

OF_PYTHON = {
    "PYTHONPATH": os.pathsep.join((str(Path(perdure.__file__).parents[1]), *site.getsitepackages())),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def python() -> str:
    """Its path; the test is skipped if there is no such Python."""
    for path in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        real = Path(path).resolve()
        if real.exists() and all(each.stat().st_mode & stat.S_IXOTH for each in (real, *real.parents)):
            return str(real)
    pytest.skip("no Python of this version that other users may run")
