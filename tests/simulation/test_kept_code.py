"""Compiled code is written by one process at a time, is read without the compiler, and Ctrl-C is not lost meanwhile."""

import fcntl
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import binding as llvm
from numba.core.registry import cpu_target

from perdure.simulation.compiled import kernel
from perdure.simulation.compiled.entry_code import LateLibrary
from perdure.simulation.compiled.kept_code import LOCK

ONE = np.ones(3, np.int64)
READ = """
import sys
import numpy as np
from perdure.simulation.compiled import kernel
kernel.code_folder = lambda: __import__("pathlib").Path(sys.argv[1])
from tests.simulation import test_kept_code
print(kernel.code_for(kernel.entry(test_kept_code.add_up), test_kept_code.ONE)(test_kept_code.ONE))
print("numba.np.arraymath" in sys.modules)
"""


def add_up(values: Sequence[int]) -> int:
    total = 0
    for value in values:
        total += value
    return total


@kernel.kernel
def twice(value: float) -> float:
    return 2 * value


@kernel.kernel
def four_times(value: float) -> Any:
    return twice(twice(value))


def add_up_eightfold(values: Sequence[int]) -> int:
    total = 0
    for value in values:
        total += four_times(value) + twice(twice(value))
    return total


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Callable[..., Any]]:
    """The function as an entry that is kept in a folder of its own."""
    monkeypatch.setattr(kernel, "code_folder", lambda: tmp_path)
    return lambda: kernel.entry(add_up)


def kept(folder: Path) -> int:
    return len(list(folder.rglob("*.nbc")))


@pytest.mark.parametrize("hook", ["_object_cache_notify", "_object_cache_getbuffer"])
def test_what_a_signal_raises_while_code_is_made_is_raised_after_it(
    made: Callable[[], Callable[..., Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    engine = cpu_target.target_context.codegen()._engine._ee

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as within:
        within.setattr(engine, hook, interrupted)
        with pytest.raises(KeyboardInterrupt):
            kernel.code_for(made(), ONE)
    assert kernel.code_for(made(), ONE)(ONE) == 3
    assert kept(tmp_path) == 1


def test_code_is_made_by_one_process_at_a_time(made: Callable[[], Callable[..., Any]], tmp_path: Path) -> None:
    kernel.code_for(made(), ONE)
    (lock,) = tmp_path.rglob(LOCK)
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        other = threading.Thread(target=lambda: kernel.code_for(made(), np.ones(3)), daemon=True)
        other.start()
        other.join(0.3)
        assert other.is_alive()
        assert kept(tmp_path) == 1
        assert kernel.code_for(made(), ONE)(ONE) == 3  # what is there is read all the same
    other.join(60)
    assert kept(tmp_path) == 2


def test_a_disk_that_takes_nothing_is_no_error(
    made: Callable[[], Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    loop: Any = made()
    monkeypatch.setattr(loop._cache._cache_file, "save", full)
    assert kernel.code_for(loop, ONE)(ONE) == 3


def test_code_is_read_without_the_compiler(tmp_path: Path) -> None:
    """Which takes a third of a second to load."""
    ran = [
        subprocess.run([sys.executable, "-c", READ, tmp_path], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert ran == ["3\nTrue\n", "3\nFalse\n"]


def test_what_is_read_is_machine_code_and_little_else(
    made: Callable[[], Callable[..., Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of LLVM's form of a function, which takes long to read, there is no more than its name."""
    kernel.code_for(made(), ONE)
    read: list[int] = []
    parse = llvm.parse_bitcode

    def parse_and_count(form: str) -> Any:
        read.append(len(list(parse(form).functions)))
        return parse(form)

    monkeypatch.setattr(llvm, "parse_bitcode", parse_and_count)
    assert kernel.code_for(made(), ONE)(ONE) == 3
    assert read == [1]


def test_what_an_installer_has_made_is_read_and_not_made_again(
    made: Callable[[], Callable[..., Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.code_for(made(), ONE)
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(kernel, "installed_folder", lambda: tmp_path)
    monkeypatch.setattr(kernel, "code_folder", lambda: own)
    assert kernel.code_for(made(), ONE)(ONE) == 3
    assert kept(own) == 0
    assert kernel.code_for(made(), np.ones(3))(np.ones(3)) == 3.0  # what nobody has made is made, and kept here
    assert kept(own) == 1


def test_machine_code_is_made_of_entries_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels are optimised within their entry, once; to make each of them by itself takes twice as long."""
    monkeypatch.setattr(kernel, "code_folder", lambda: tmp_path)
    made, make = [], LateLibrary._make

    def make_and_tell(library: Any) -> None:
        made.append(library.name)
        make(library)

    monkeypatch.setattr(LateLibrary, "_make", make_and_tell)
    entry = kernel.entry(add_up_eightfold)
    assert kernel.code_for(entry, ONE)(ONE) == 24
    assert made == ["add_up_eightfold"]
    assert kernel.code_for(kernel.entry(add_up_eightfold), ONE)(ONE) == 24  # read
    assert made == ["add_up_eightfold"]
