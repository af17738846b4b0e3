"""Compiled code is kept apart for each state of the source, where nobody else can write."""

import ast
import os
import time
from enum import EnumType
from importlib import import_module
from pathlib import Path

import pytest

from perdure.installation import cache_folder
from perdure.simulation import faults
from perdure.simulation.compiled import cache

DAY_S = 86_400


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path / "perdure" / "compiled"


def folder() -> Path | None:
    """As on the first call of a process."""
    return cache.code_folder.__wrapped__()


def test_a_cache_is_in_no_folder_that_depends_on_where_a_command_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "perdure"
    monkeypatch.setenv("XDG_CACHE_HOME", "../cache")
    assert cache_folder() == Path.home() / ".cache" / "perdure"


def test_one_source_has_one_folder(kept: Path) -> None:
    assert folder() == folder()
    assert folder().parent == kept


@pytest.mark.parametrize("edited", ["state.py", "called.py"])
def test_another_source_has_another_folder(
    kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, edited: str
) -> None:
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "cache.py"))
    (tmp_path / "state.py").write_text("a = 1\n")
    before = folder()
    (tmp_path / edited).write_text("a = 2\n")
    assert folder() != before


def test_another_constant_of_another_package_has_another_folder(
    kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = folder()
    edited = tmp_path / "faults.py"
    edited.write_text(Path(faults.__file__).read_text().replace("MOST_MET = ", "MOST_MET = 1 + "))
    monkeypatch.setattr(faults, "__file__", str(edited))
    assert folder() != before


def _may_change(module: str) -> bool:
    """Whether a module's constants may change while the files of kernels, and the version of Python, do not."""
    return module.startswith("perdure.") and ".compiled" not in module


def test_no_constant_that_kernels_read_is_forgotten() -> None:
    found = set()
    for path in Path(cache.__file__).parent.glob("*.py"):
        for line in ast.parse(path.read_text()).body:
            if isinstance(line, ast.ImportFrom) and line.module and _may_change(line.module):
                values = (getattr(import_module(line.module), each.name, None) for each in line.names)  # None: a module
                found |= {line.module for each in values if isinstance(each, int | float | EnumType)}
    assert found == {module.__name__ for module in cache._CONSTANTS_OF}


def test_code_is_not_read_from_where_others_can_write(kept: Path) -> None:
    folder()
    kept.chmod(0o777)
    assert folder() is None


def test_where_no_folder_can_be_made_nothing_is_kept(kept: Path) -> None:
    kept.parent.mkdir()
    kept.write_text("a file")
    assert folder() is None


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installation and a cache of a user's, neither of which holds code yet."""
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "cache.py").write_text("a = 1\n")
    monkeypatch.setattr(cache, "__file__", str(installed / "cache.py"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return installed


def test_code_lies_beside_the_source_for_all_homes(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder()
    assert made.parent == source / "__pycache__" / "machine-code"
    monkeypatch.setattr(cache, "code_folder", lambda: made)
    assert cache.installed_folder.__wrapped__() is None


def test_where_one_may_not_write_beside_the_source_the_installers_code_is_read(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = folder()
    monkeypatch.setattr(os, "getuid", lambda: 4711)  # somebody who owns neither
    assert folder() is None
    monkeypatch.setattr(cache, "code_folder", lambda: None)
    assert cache.installed_folder.__wrapped__() == made
    made.chmod(0o777)
    assert cache.installed_folder.__wrapped__() is None


def test_where_nothing_can_be_written_beside_the_source_the_cache_is_used(source: Path, tmp_path: Path) -> None:
    (source / "__pycache__").write_text("a file")
    assert folder().parent == tmp_path / "cache" / "perdure" / "compiled"


@pytest.mark.parametrize(("days", "stays"), [(29, True), (31, False)])
def test_code_that_nobody_loads_for_a_month_goes(kept: Path, days: int, stays: bool) -> None:
    old = kept / "0.0-old"
    old.mkdir(parents=True)
    then = time.time() - days * DAY_S
    os.utime(old, (then, then))
    folder()
    assert old.exists() == stays
