"""How commands end: 0, 1 or 2, one line on stderr, never a traceback."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import __version__
from perdure.errors import InputError
from tests.cli.conftest import Ran

COMMANDS = [
    "up", "why", "jobs", "submit", "nodes", "node", "node drain", "actions", "config", "config check", "exec", "token",
    "whatif", "trace", "trace generate", "trace convert", "trace apps",
]  # fmt: skip
HEAVY = {
    "numpy", "scipy", "re2", "fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "rich", "pydantic", "jinja2",
    "prometheus_client", "asyncio", "urllib.request", "http.client", "sqlite3", "ssl", "tomllib",
}  # fmt: skip
MAX_MODULES = 200  # an interpreter with Typer loads about 150


def python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 60, "check": False} | options
    return subprocess.run([sys.executable, *words], **options)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(option: str) -> None:
    code = (
        "import sys; from perdure.cli.main import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    ran = python("-c", code, option)
    loaded = set(ran.stderr.split())
    assert ran.returncode == 0
    assert "perdure" in ran.stdout
    assert not loaded & HEAVY
    assert len(loaded) < MAX_MODULES


def test_version(perdure: Callable[..., Ran]) -> None:
    ran = perdure("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"perdure {__version__}\n", "")


def test_the_module_is_the_command() -> None:
    ran = python("-m", "perdure", "--version")
    assert (ran.returncode, ran.stdout) == (0, f"perdure {__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_what_it_does_and_how_it_ends(perdure: Callable[..., Ran], command: str) -> None:
    ran = perdure(*command.split(), "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: perdure {command} ")
    if command not in ("config", "node drain"):  # a group of one, and a member of a group that says it
        assert "Exit codes:" in ran.out


def test_no_command_is_answered_with_the_help(perdure: Callable[..., Ran]) -> None:
    ran = perdure()
    assert ran.code == 2
    assert "Commands:" in ran.out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["xyzzy"], "command line: No such command 'xyzzy'. See perdure --help."),
        (["node", "drian"], "node: No such command 'drian'. Did you mean 'drain', 'undrain'? See perdure node --help."),
        (
            ["drain", "n1"],
            "command line: No such command 'drain'. Did you mean 'perdure node drain'? See perdure --help.",
        ),
        (["jobs", "--limit"], "jobs: Option '--limit' requires an argument. See perdure jobs --help."),
        (["--nonsense"], "command line: No such option: --nonsense. See perdure --help."),
        (["jobs", "--limit", "x"], "jobs: Invalid value for '--limit': "),
        (["jobs", "--limit", "0"], "jobs: Invalid value for '--limit': "),
        (["node"], "node: Missing command. See perdure node --help."),
        (
            ["node", "drain", "a/b"],
            "node 'a/b': is not the name of a node: it is empty or holds a /. See perdure nodes.",
        ),
        (["node", "drain"], "node drain: Missing argument 'NODE'. See perdure node drain --help."),
        (["why"], "why: give log files or job ids. See perdure why --help."),
        (["submit"], "submit: Missing argument"),
        (["actions", "--stop", "--resume"], "actions: give one of --undo, --withhold, --stop, --resume. "),
        (["submit", "--signal", "USR1", "--", "true"], "--signal: 'USR1' is not SIG@SECONDS. Write it like USR1@60."),
    ],
)
def test_wrong_use_is_one_line_and_2(perdure: Callable[..., Ran], words: list[str], complaint: str) -> None:
    ran = perdure(*words)
    assert ran.code == 2
    assert ran.complaint.startswith(complaint)
    assert ran.out == ""


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def command(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr("perdure.cli.options.load_settings", command)
    monkeypatch.setattr("perdure.cli.config.load_settings", command)


def test_an_error_raised_on_purpose_is_one_line_even_where_it_quotes_hostile_text(
    perdure: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, InputError("job \x1b[2J", "a\nb\u202e", "fix"))
    ran = perdure("config", "check")
    assert ran.code == 2
    assert ran.complaint == "job [2J: a b. fix."


def test_an_unexpected_error_is_one_line_and_its_trace_is_shown_on_demand(
    perdure: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, KeyError("x"))
    ran = perdure("config", "check")
    assert ran.code == 2
    assert ran.complaint == "config: KeyError: 'x'. This is a fault in Perdure; perdure --debug shows where."
    for words in (["--debug", "config", "check"], ["config", "check"]):
        ran = perdure(*words)
        assert ran.code == 2
        assert ("Traceback" in ran.err) == ("--debug" in words)
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    assert "Traceback" in perdure("config", "check").err


def test_ctrl_c_is_quiet(perdure: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    ran = perdure("config", "check")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_a_reader_that_leaves_is_no_error(home: Path) -> None:
    """As `perdure config check | head -1` does."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as nobody:
        ran = python("-m", "perdure", "config", "check", stdout=nobody, stderr=subprocess.PIPE, capture_output=False)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_a_terminal_that_lacks_letters_is_no_error(home: Path) -> None:
    (home / "ü.log").write_text("RuntimeError: größe\n")
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = python("-m", "perdure", "why", "ü.log", env=env)
    assert ran.returncode == 3  # nobody can tell of a text like that
    assert ran.stderr == ""


def test_a_signal_ends_it_without_a_trace(home: Path) -> None:
    """Waiting for standard input, as a person would see it."""
    with subprocess.Popen(
        [sys.executable, "-m", "perdure", "why", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
    ) as process:
        process.stdin.write(b"x" * (4 << 20) + b"y")  # taken only once the command reads
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
