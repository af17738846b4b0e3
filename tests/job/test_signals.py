"""Signals under ``perdure exec``: each comes once, to a program in a step, in a group and on a terminal."""

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.job.signals import WITNESS_S, Sharing, heard_signals
from tests.job.launching import (
    LAUNCH_WITH_SETTINGS,
    environment,
    exit_report_in,
    finish,
    on_linux,
    pass_time,
    python,
    start,
    wait_until,
)

COUNTS = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGUSR1, lambda *_: print('usr1', flush=True))\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "print('ready', flush=True)\n"
    "while True: time.sleep(0.05)"
)


@given(st.floats(0, 0.9 * WITNESS_S), st.booleans())
def test_what_the_witness_gets_too_did_not_come_alone(apart_s: float, witness_first: bool) -> None:
    sharing, late = Sharing(), 100.0 + apart_s
    sharing.came(signal.SIGUSR1, late if witness_first else 100.0)
    sharing.witnessed(signal.SIGUSR1, 100.0 if witness_first else late)
    assert sharing.alone(late + 10) == frozenset()


def test_what_comes_alone_is_told_once_and_in_time() -> None:
    sharing = Sharing()
    sharing.witnessed(signal.SIGUSR1, 0.0)  # an earlier one, which did not come here
    sharing.came(signal.SIGUSR1, 1.0)
    sharing.came(signal.SIGTERM, 1.0)
    sharing.witnessed(signal.SIGTERM, 1.0)
    assert sharing.alone(1.0) == frozenset()
    assert sharing.patience_s(1.0, 5.0) == pytest.approx(WITNESS_S)
    assert [sharing.alone(1.0 + WITNESS_S) for _ in range(2)] == [{signal.SIGUSR1}, frozenset()]
    assert sharing.patience_s(2.0, 5.0) == 5.0


def test_how_long_a_signal_waits_for_its_witness_is_timed_by_the_clock_that_was_given() -> None:
    now = 1e9
    with heard_signals(clock=lambda: now) as heard:
        os.kill(os.getpid(), signal.SIGUSR1)
        came = heard(5.0)
        assert signal.SIGUSR1 in came.signals
        assert came.alone == frozenset()
        assert heard(0.0).alone == frozenset()
        now += WITNESS_S
        assert heard(0.0).alone == {signal.SIGUSR1}


@on_linux
def test_each_signal_that_reaches_the_launcher_alone_is_handed_on(tmp_path: Path) -> None:
    names = ("USR1", "USR2", "HUP", "QUIT", "INT", "TSTP", "TERM")
    tells = (
        "import signal, sys, time\n"
        "def tell(number, _): print(signal.Signals(number).name, flush=True)\n"
        "for name in sys.argv[1:]: signal.signal(getattr(signal, 'SIG' + name), tell)\n"
        "print('ready', flush=True)\n"
        "time.sleep(20)"
    )
    process = start(tmp_path, python(tells, *names))
    assert process.stdout.readline() == "ready\n"
    for name in names:
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.stdout.readline() == f"SIG{name}\n"
    process.kill()
    process.communicate()


@on_linux
def test_a_signal_to_every_process_is_not_handed_on(tmp_path: Path) -> None:
    """As Slurm sends it; in whatever order the processes get it."""
    later, fence = tmp_path / "later", tmp_path / "fence"  # till then no witness is late
    process = start(fence, python(COUNTS), settings=f"ExecOptions(clock=held_until({str(later)!r}))")
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        for pid in sorted(session(process.pid), reverse=True):
            os.kill(pid, signal.SIGUSR1)
        assert process.stdout.readline() == "usr1\n"
        wait_until(lambda: not any(map(has_pending, session(process.pid))))
    later.touch()
    process.send_signal(signal.SIGTERM)
    assert finish(process)[:2] == (0, "")
    assert exit_report_in(fence).told == ("USR1", "TERM")


@on_linux
def test_a_launcher_without_a_witness_hands_everything_on(tmp_path: Path) -> None:
    process = start(tmp_path, python(COUNTS))
    assert process.stdout.readline() == "ready\n"
    (witness,) = [pid for pid in session(process.pid) if name_of(pid) == "perdure-signals"]
    os.kill(witness, signal.SIGKILL)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "usr1\n"
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 0


def has_pending(pid: int) -> bool:
    """Whether a signal has come to a process that it has not taken yet."""
    with open(f"/proc/{pid}/status") as status:
        return any(int(line.split()[1], 16) for line in status if line.startswith(("SigPnd:", "ShdPnd:")))


def session(leader: int) -> list[Any]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    return [pid for pid in pids if session_of(pid) == leader]


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def name_of(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as name:
        return name.read().strip()


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, fence: Path) -> None:
        self.pid, self._fd = pty.fork()
        if not self.pid:
            variables = {**environment(fence), "PS1": "", "PATH": os.environ["PATH"], "TERM": "dumb"}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], variables)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def see(self, pattern: str) -> str:
        """Wait for this in what the terminal shows after what was seen before."""
        end = time.monotonic() + 60
        while not (found := re.search(pattern, self._seen)):
            assert time.monotonic() < end, self._seen
            if select.select([self._fd], [], [], 0.1)[0]:
                self._seen += os.read(self._fd, 4096).decode()
        self._seen = self._seen[found.end() :]
        return found[0]

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._fd)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "fence")
    yield terminal
    terminal.close()


EXEC = f"{sys.executable} -m perdure exec -- "


@on_linux
def test_a_program_on_a_terminal_reads_it_and_draws_on_it(terminal: Terminal, tmp_path: Path) -> None:
    program = tmp_path / "asks.py"
    program.write_text(
        "import sys\n"
        "print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty())\n"
        "for done in range(3): print(f'\\r{done} of 2', end='', flush=True)\n"
        "print(flush=True)\n"
        "print('hello', input('who? '))\n"
    )
    terminal.type(f"{EXEC}{sys.executable} {program}; echo code $?\n")
    assert terminal.see(r"True True True\r\n.*\r\n") == "True True True\r\n\r0 of 2\r1 of 2\r2 of 2\r\n"
    terminal.see(r"who\? ")
    terminal.type("mira\n")
    terminal.see("hello mira\r\n")
    terminal.see("code 0")


@on_linux
def test_a_debugger_takes_commands(terminal: Terminal, tmp_path: Path) -> None:
    program = tmp_path / "stops.py"
    program.write_text("x = 41\nbreakpoint()\nprint('went on')\n")
    terminal.type(f"{EXEC}{sys.executable} {program}\n")
    terminal.see(r"\(Pdb\) ")
    terminal.type("p x + 1\n")
    terminal.see("42\r\n")
    terminal.type("c\n")
    terminal.see("went on\r\n")


@on_linux
def test_the_keys_of_job_control_do_what_they_do(terminal: Terminal, tmp_path: Path) -> None:
    """Ctrl-C comes once; Ctrl-Z stops program and launcher, and `fg` continues both."""
    program = tmp_path / "waits.py"
    program.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin: print('got', line, flush=True)\n"
        "print('over')\n"
    )
    clock, launcher = tmp_path / "clock", tmp_path / "launch.py"
    launcher.write_text(LAUNCH_WITH_SETTINGS.format(settings=f"ExecOptions(clock=set_forward({str(clock)!r}))"))
    terminal.type(f"{sys.executable} {launcher} {sys.executable} {program}; echo code $?\n")
    terminal.see("ready\r\n")
    terminal.type("\x03")
    terminal.see("interrupted\r\n")
    pass_time(clock, tmp_path / "fence")  # what is handed on late comes now
    terminal.type("\x1a")
    assert "interrupted" not in terminal.see("Stopped|interrupted")
    terminal.type("fg\n")
    terminal.see("launch.py")
    terminal.type("one\n")
    terminal.see("got one")
    terminal.type("\x04")
    terminal.see("over")
