"""Every example in the documents runs and prints what it says.

A block marked ```console is a session: lines that start with ``$ `` are run, what follows each is what it prints. A
line ``...`` there stands for any lines, ``...`` within a line for any text; without such lines anything may be printed.
A command ends with 0 or 1, except where its output begins with ``perdure: ``: then it is shown to fail with 2. The
blocks of one document share a home, which is also the working directory. In a block marked ```console service the
service runs with that home. A block marked ```python is a program that must end with 0.
"""

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
READY_S = 120


@dataclass(frozen=True)
class Example:
    """One fenced block of a document."""

    line: int  # of the document
    mark: str
    text: str


@dataclass(frozen=True)
class Step:
    """One command of a session, and what it is to print; None where that is not said."""

    command: str
    printed: str | None


def examples(document):
    """The fenced blocks of a document, in order."""
    opened, mark, lines = 0, "", []
    for number, line in enumerate(document.splitlines(), 1):
        fence = line.strip()
        if not opened and fence.startswith("```"):
            opened, mark, lines = number, fence.removeprefix("```").strip(), []
        elif opened and fence == "```":
            yield Example(opened, mark, "\n".join(lines))
            opened = 0
        elif opened:
            lines.append(line)


def steps(session):
    """The commands of a session; a command goes on in the next line after a backslash."""
    joined = session.replace("\\\n", "")
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield Step(command, printed.strip("\n") or None)


def matches(wanted, printed):
    """Whether what was printed has the form that was shown."""
    pieces = []
    for line in wanted.splitlines():
        if line.strip() == "...":
            pieces.append(r"(?:.*\n)*")
        else:
            pieces.append(re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"[ \t]*\n")
    return re.fullmatch("".join(pieces), printed.strip("\n") + "\n") is not None


@pytest.fixture
def short():
    """A directory with a short name: the path of the service's socket below it has a bound of 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="doc-") as name:
        yield Path(name)


class Home:
    """Where the examples of one document run."""

    def __init__(self, path, stack):
        self.path, self._stack, self._service = path, stack, None
        self.env = {
            "HOME": str(path),
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),  # the foundry is not in the package: its page says to be at the root of a checkout
            "LANG": "C.UTF-8",
            "COLUMNS": "120",
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *command, **options):
        return subprocess.run(
            command, cwd=self.path, env=self.env, text=True, timeout=120, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options,
        )  # fmt: skip

    def need_service(self):
        if self._service is None:
            self._service = self._stack.enter_context(running_service(self))


@contextlib.contextmanager
def running_service(home):
    """`perdure up` without the demonstration, on any free port, until the document is done."""
    log = home.path / "up.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            ["perdure", "up", "--port", "0", "--no-demo"], cwd=home.path, env=home.env, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        await_ready(home.path / ".local/state/perdure/service.json", process, log)
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
    assert code in (0, 130), log.read_text()


def await_ready(file, process, log):
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError, ValueError):
            url = json.loads(file.read_text())["url"]
            with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.05)
    raise AssertionError(f"not ready after {READY_S} s: {log.read_text()}")


def run_session(example, home, place):
    for step in steps(example.text):
        ran = home.run("sh", "-c", step.command)
        shown_to_fail = (step.printed or "").startswith("perdure: ")
        assert ran.returncode in ((2,) if shown_to_fail else (0, 1, 3)), f"{place}: $ {step.command}\n{ran.stdout}"
        if step.printed is not None:
            assert matches(step.printed, ran.stdout), f"{place}: $ {step.command}\nprinted\n{ran.stdout}"


def run_program(example, home, place):
    ran = home.run(sys.executable, "-W", "error", "-c", example.text)
    assert ran.returncode == 0, f"{place}: {ran.stdout}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_a_document_run(path, short):
    with contextlib.ExitStack() as stack:
        home = Home(short, stack)
        for example in examples(path.read_text()):
            place = f"{path.name}:{example.line}"
            match example.mark.split():
                case ["console", "service"]:
                    home.need_service()
                    run_session(example, home, place)
                case ["console"]:
                    run_session(example, home, place)
                case ["python"]:
                    run_program(example, home, place)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_says_what_it_is(path):
    """A block with another mark, or none, would be run by nobody and believed by everybody."""
    marks = {"console", "console service", "python", "text", "toml", "json", "sh"}
    unknown = [f"{path.name}:{e.line}: {e.mark!r}" for e in examples(path.read_text()) if e.mark not in marks]
    assert unknown == []


def test_sessions_are_read_as_they_are_written():
    document = "a\n```console\n$ echo a \\\n  b\na   b\n\n$ true\n```\n```text\n$ false\n```\n"
    first, second = examples(document)
    assert (first.line, first.mark, second.mark) == (2, "console", "text")
    assert list(steps(first.text)) == [Step("echo a   b", "a   b"), Step("true", None)]


@pytest.mark.parametrize(
    ("wanted", "printed", "agree"),
    [
        ("a", "a\n", True),
        ("a", "ab\n", False),
        ("a", "a\nb\n", False),
        ("a\n...", "a\nb\nc\n", True),
        ("a\n...\nc", "a\nc\n", True),
        ("a...c", "abbc\n", True),
        ("a...c", "ab\nc\n", False),
        ("a.c", "abc\n", False),
        ("a", "a   \n", True),
    ],
)
def test_dots_stand_for_anything(wanted, printed, agree):
    assert matches(wanted, printed) is agree


def test_a_failing_example_fails(short):
    with contextlib.ExitStack() as stack:
        home = Home(short, stack)
        run_session(Example(1, "console", "$ echo a > b\n$ cat b\na\n$ perdure xyzzy\nperdure: ...\n"), home, "x")
        for session in ("$ echo a\nb", "$ exit 4", "$ echo 'perdure: a'\nperdure: a"):
            with pytest.raises(AssertionError, match="x: "):
                run_session(Example(1, "console", session), home, "x")
        with pytest.raises(AssertionError, match="x: "):
            run_program(Example(1, "python", "raise ValueError"), home, "x")
        run_program(Example(1, "python", "import perdure"), home, "x")
