"""Commands are run in this process, with a home of their own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import progress
from perdure.cli.main import main


class Ran:
    """What a command printed, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def jsons(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def complaint(self) -> str:
        """The one line on stderr, without its end."""
        assert self.err.startswith("perdure: ")
        assert self.err.count("\n") == 1
        return self.err.removeprefix("perdure: ").removesuffix("\n")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, in which the command is run; nothing of this machine's own settings is seen."""
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "PERDURE_URL", "PERDURE_TOKEN", "PERDURE_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def perdure(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run one command: ``perdure("why", "a.log").code``."""

    def run(*words: str) -> Ran:
        code = main(words)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def says_nothing_of_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator's machine code may not be made yet on this machine. That this is said, `test_speed` shows."""
    warm = pytest.importorskip("perdure.simulation.warm")
    monkeypatch.setattr(warm, "must_compile", lambda *_: False)
    monkeypatch.setattr(progress, "must_compile_queue", lambda: False)
