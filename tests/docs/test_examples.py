"""Every example in the documents runs and prints what it says.

A block marked ```console is a session: lines that start with ``$ `` are run, what follows each is what it prints. A
line ``...`` there stands for any lines, ``...`` within a line for any text; without such lines anything may be printed.
A command ends with 0, 1 or 3, except where its output begins with ``perdure: ``: then it is shown to fail with 2. The
blocks of one document share a directory and what their commands export. A block marked ```python is a program that must
end with 0.

They run as they do for a reader of README: in a second terminal, where ``perdure`` is ``.venv/bin/perdure`` and not on
the path, beside one service that was started with the defaults and so runs the demonstration, for all documents
together. A block marked ```console service is one that needs it.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import perdure

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SERVICE_FILE = ".local/state/perdure/service.json"
READY_S = 120
COMMAND_S = 120  # after which a command is taken for one that never ends
PERDURE = 'perdure() { .venv/bin/perdure "$@"; }'
EXPORTED = ".exported"  # what the commands so far have exported


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


def examples(document: str) -> Iterator[Example]:
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


def steps(session: str) -> Iterator[Step]:
    """The commands of a session; a command goes on in the next line after a backslash."""
    joined = session.replace("\\\n", "")
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield Step(command, printed.strip("\n") or None)


def matches(wanted: str, printed: str) -> bool:
    """Whether what was printed has the form that was shown."""
    pieces = []
    for line in wanted.splitlines():
        if line.strip() == "...":
            pieces.append(r"(?:.*\n)*")
        else:
            pieces.append(re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"[ \t]*\n")
    return re.fullmatch("".join(pieces), printed.strip("\n") + "\n") is not None


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short name: the path of the service's socket below it has a bound of 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="doc-") as name:
        yield Path(name)


class Place:
    """A second terminal: where the examples of one document run. `home` holds the service's state."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.env = environment(home)
        (path / ".venv").symlink_to(Path(sys.executable).parents[1])

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[Any]:
        return subprocess.run(
            command, cwd=self.path, env=self.env, text=True, timeout=COMMAND_S, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options,
        )  # fmt: skip

    def shell(self, command: str) -> subprocess.CompletedProcess[Any]:
        """Run a command of a session, in the environment that those before it have exported."""
        before = f"[ ! -f {EXPORTED} ] || . ./{EXPORTED}"
        return self.run("sh", "-c", f"{before}\n{PERDURE}\n{command}\ncode=$?\nexport -p > {EXPORTED}\nexit $code")

    def program(self, text: str) -> subprocess.CompletedProcess[Any]:
        (self.path / "program.py").write_text(text)
        return self.shell(".venv/bin/python -W error program.py")


def environment(home: Path) -> dict[Any, Any]:
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "COLUMNS": "120",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{Path(perdure.__file__).parents[1]}:{ROOT}",  # these sources, and the foundry of the checkout
    }


@pytest.fixture(scope="module")
def service_home() -> Iterator[Path]:
    """A home in which a service runs with the defaults, the demonstration among them, until all documents are done."""
    with tempfile.TemporaryDirectory(prefix="doc-") as name, running_service(Path(name)):
        yield Path(name)


@contextlib.contextmanager
def running_service(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    log = home / "up.log"
    command = [str(Path(sys.executable).with_name("perdure")), "up", "--port", "0"]
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=home, env=environment(home), stdout=out, stderr=out)
    try:
        await_ready(home / SERVICE_FILE, process, log)
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
    assert code in (0, 130), log.read_text()


def await_ready(file: Path, process: subprocess.Popen[bytes], log: Path) -> None:
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


def run_session(example: Example, place: Place, where: str) -> None:
    for step in steps(example.text):
        ran = place.shell(step.command)
        shown_to_fail = (step.printed or "").startswith("perdure: ")
        assert ran.returncode in ((2,) if shown_to_fail else (0, 1, 3)), f"{where}: $ {step.command}\n{ran.stdout}"
        if step.printed is not None:
            assert matches(step.printed, ran.stdout), f"{where}: $ {step.command}\nprinted\n{ran.stdout}"


def run_program(example: Example, place: Place, where: str) -> None:
    ran = place.program(example.text)
    assert ran.returncode == 0, f"{where}: {ran.stdout}"


def ask(home: Path, path: str) -> Any:
    """What the service says, as whoever runs it."""
    found = json.loads((home / SERVICE_FILE).read_text())
    asked = urllib.request.Request(
        f"{found['url']}/api/v1{path}", headers={"Authorization": f"Bearer {found['token']}"}
    )
    with urllib.request.urlopen(asked, timeout=COMMAND_S) as answer:
        return json.load(answer)


def left_behind(home: Path) -> list[Any]:
    """What a document has turned off and not on again. The demonstration's own nodes die, and come back."""
    drained = [node["name"] for node in ask(home, "/nodes")["items"] if node["state"] in ("draining", "drained")]
    return drained + ["the kill switch"] * ask(home, "/status")["stopped"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_a_document_run(path: Path, short: Path, service_home: Path) -> None:
    place = Place(short, service_home)
    for example in examples(path.read_text()):
        where = f"{path.name}:{example.line}"
        match example.mark.split():
            case ["console", *_]:
                run_session(example, place, where)
            case ["python"]:
                run_program(example, place, where)
    assert left_behind(service_home) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_says_what_it_is(path: Path) -> None:
    """A block with another mark, or none, would be run by nobody and believed by everybody."""
    marks = {"console", "console service", "python", "text", "toml", "json", "sh", "nginx"}
    unknown = [f"{path.name}:{e.line}: {e.mark!r}" for e in examples(path.read_text()) if e.mark not in marks]
    assert unknown == []


def test_sessions_are_read_as_they_are_written() -> None:
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
def test_dots_stand_for_anything(wanted: str, printed: str, agree: bool) -> None:
    assert matches(wanted, printed) is agree


def test_a_failing_example_fails(short: Path) -> None:
    place = Place(short, short)
    run_session(Example(1, "console", "$ echo a > b\n$ cat b\na\n$ perdure xyzzy\nperdure: ...\n"), place, "x")
    for session in ("$ echo a\nb", "$ exit 4", "$ echo 'perdure: a'\nperdure: a"):
        with pytest.raises(AssertionError, match="x: "):
            run_session(Example(1, "console", session), place, "x")
    with pytest.raises(AssertionError, match="x: "):
        run_program(Example(1, "python", "raise ValueError"), place, "x")
    run_program(Example(1, "python", "import perdure"), place, "x")


def test_what_a_command_exports_is_there_for_the_next(short: Path) -> None:
    place = Place(short, short)
    run_session(Example(1, "console", "$ export JOB=$(echo 7)\n$ echo $JOB\n7"), place, "x")
    run_program(Example(1, "python", "import os\nassert os.environ['JOB'] == '7'"), place, "x")


def test_nothing_but_the_system_is_on_the_path(short: Path) -> None:
    place = Place(short, short)
    assert place.run("sh", "-c", "perdure help").returncode == 127
    assert place.shell("perdure help").returncode == 0
