"""How far a long command has come: on a terminal's stderr alone, and only once it takes long."""

import io
import os
import pty
import struct
import termios
import threading
import time
from fcntl import ioctl

import pytest

from perdure.cli import progress as module
from perdure.cli.progress import WIDTH, Work, progress, tell_of_compiling_queue
from perdure.waits.rollout import SMALL


class Screen(io.StringIO):
    """A terminal that remembers all that was drawn on it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal, and short patience."""
    made = Screen()
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    return made


def await_drawn(screen: Screen, words: str) -> None:
    deadline = time.monotonic() + 60
    while words not in screen.getvalue():
        assert time.monotonic() < deadline, screen.getvalue()
        time.sleep(0.01)


def test_long_work_is_shown_and_taken_away_again(screen: Screen) -> None:
    with progress(4, "replaying", screen) as tell:
        tell(1)
        await_drawn(screen, "replaying [#####...............] 1 of 4")
    drawn = screen.getvalue().split("\r")
    assert drawn[-1] == ""
    assert drawn[-2] == " " * WIDTH
    assert all(len(line) <= WIDTH for line in drawn)


def test_on_a_narrow_terminal_it_stays_on_one_line(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 30, 0, 0))
    monkeypatch.setattr(screen, "fileno", lambda: terminal)
    with progress(4, "replaying", screen) as tell:
        tell(1)
        await_drawn(screen, "replaying [#####")
    os.close(shown)
    os.close(terminal)
    assert max(map(len, screen.getvalue().split("\r"))) == 29


def test_work_of_unknown_length_shows_how_long_it_takes(screen: Screen) -> None:
    with progress(what="reading the log", screen=screen) as tell:
        await_drawn(screen, "reading the log: 0s")
        tell(3, 6)
        await_drawn(screen, "3 of 6")


def test_a_unit_stands_behind_the_numbers(screen: Screen) -> None:
    with progress(what="reading the log", screen=screen, unit="MiB") as tell:
        tell(3, 6)
        await_drawn(screen, "reading the log [##########..........] 3 of 6 MiB")


def test_short_work_is_done_without_a_word(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)
    with progress(4, screen=screen) as tell:
        tell(1)
    assert screen.getvalue() == ""


def test_an_error_takes_it_away_as_well(screen: Screen) -> None:
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt), progress(4, screen=screen):  # noqa: PT012
        await_drawn(screen, "0 of 4")
        raise KeyboardInterrupt
    assert screen.getvalue().endswith("\r" + " " * WIDTH + "\r")
    assert threading.active_count() == before


def test_what_is_no_terminal_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    with progress(4, screen=out) as tell:
        tell(4)
    assert out.getvalue() == ""


def test_the_rest_is_estimated_by_what_was_done() -> None:
    work = Work("replaying", 0.0, done=5, of=20)
    assert work.line(60.0).endswith("5 of 20, 1m, about 3m left")
    assert "left" not in Work("replaying", 0.0, done=0, of=20).line(60.0)


def test_that_a_queue_compiles_is_said_where_its_first_fork_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plain loop forks a short queue, and compiled code that is kept is loaded."""
    monkeypatch.setattr(module, "must_compile_queue", lambda: True)
    tell_of_compiling_queue(SMALL)
    assert capsys.readouterr().err == ""
    tell_of_compiling_queue(SMALL + 1)
    assert "compiling the simulator, once on this machine" in capsys.readouterr().err
    monkeypatch.setattr(module, "must_compile_queue", lambda: False)
    tell_of_compiling_queue(SMALL + 1)
    assert capsys.readouterr().err == ""
