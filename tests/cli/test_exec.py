"""`perdure exec` hands the program over, options and all."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from perdure.cli import commands
from perdure.cli.commands import app
from perdure.cli.main import main
from perdure.job import exec, exit_report, files
from perdure.job.options import ExecOptions, options_of, read_words


def run(tmp_path: Path, *words: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PERDURE_JOB_ID": "7", "PERDURE_INCARNATION": "1", **variables}
    return subprocess.run(
        [sys.executable, "-m", "perdure", "exec", *words],
        cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_options_of_the_program_are_the_programs_with_and_without_dashes(tmp_path: Path) -> None:
    for dashes in ([], ["--"]):
        ran = run(tmp_path, *dashes, "sh", "-c", 'echo "$@"; exit 5', "sh", "--json", "-h")
        assert (ran.stdout, ran.returncode) == ("--json -h\n", 5)


def test_outside_of_a_job_it_is_refused_in_one_line(tmp_path: Path) -> None:
    ran = run(tmp_path, "--", "true", PERDURE_JOB_ID="", SLURM_JOB_ID="")
    assert ran.returncode == 2
    assert ran.stderr == "perdure: exec: neither PERDURE_JOB_ID nor SLURM_JOB_ID is set. Run it inside a job.\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--signal-before", "soon"], "'soon' is not SECONDS[:SIGNAL]. Say for example 120:USR1."),
        (["--hang-signal", "USR9"], "'USR9' is not a signal. Name one such as TERM, USR1 or USR2."),
        (["--framework", "x"], "'x' is not a framework. Name one of auto, torchrun, lightning, submitit, plain."),
    ],
)
def test_settings_that_cannot_be_used_are_refused_in_one_line(
    tmp_path: Path, options: list[str], complaint: str
) -> None:
    ran = run(tmp_path, *options, "--", "true")
    assert (ran.returncode, ran.stderr) == (2, f"perdure: {options[0]}: {complaint}\n")


def test_settings_reach_the_launcher(tmp_path: Path) -> None:
    """Walltime is over already: the program is told at the first look, by the signal that was named."""
    code = "import signal, sys, time; signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75)); time.sleep(60)"
    options = ["--signal-before", "60:USR2", "--hang-after", "0", "--framework", "plain"]
    ran = run(tmp_path, *options, "--", sys.executable, "-c", code, SLURM_JOB_END_TIME="1")
    assert ran.returncode == 75
    (task,) = files.tasks(tmp_path / ".perdure" / "7")
    assert exit_report.read(task.exit_report).reason is exit_report.ExitReason.WALLTIME


NOT_LOADED = {
    "typer", "click", "rich", "pydantic", "msgspec", "numpy", "re2", "shutil", "tempfile", "uuid", "hashlib", "socket",
    "urllib.request", "http.client", "datetime", "ssl", "asyncio", "multiprocessing", "logging", "argparse",
    "perdure.job.checkpoint", "perdure.job.listening", "perdure.hangs.rank_state", "perdure.job.inspection",
}  # fmt: skip


def test_a_launcher_loads_little(tmp_path: Path) -> None:
    """Eight start at once on two cores: what each loads is waited for by all."""
    code = (
        "import sys; from perdure.cli.main import main; code = main(['exec', '--hang-after', '60', '--', 'true']);"
        "print(*sys.modules); sys.exit(code)"
    )
    env = {**os.environ, "PERDURE_JOB_ID": "7", "PERDURE_INCARNATION": "1", "PERDURE_FENCE_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert not NOT_LOADED & set(ran.stdout.split())


def test_words_are_read_alike_with_and_without_the_command_line_library() -> None:
    """Whatever the short way does not take as plain is left to the library."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    options = {name for each in group.commands["exec"].params for name in each.opts} - {"command"}
    assert options == {f"--{name.replace('_', '-')}" for name in options_of.__kwdefaults__}
    words = ["--hang-after", "20", "--signal-before=120:USR1", "--", "python", "-c", "--hang-after", "x"]
    given = {"hang_after": 20.0, "signal_before": "120:USR1"}
    assert read_words(words) == (["python", "-c", "--hang-after", "x"], given)
    assert read_words(["train.py", "--lr", "1"]) == (["train.py", "--lr", "1"], {})


@pytest.mark.parametrize("seconds", ["0", "1", "20.5"])
def test_options_mean_the_same_with_and_without_the_command_line_library(
    monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    heard: list[tuple[list[str], ExecOptions]] = []

    def run(argv: list[str], *, options: ExecOptions) -> int:
        heard.append((argv, options))
        return 0

    monkeypatch.setattr(exec, "run", run)
    texts = {"hang_signal": "USR1", "signal_before": "120:USR1", "on_pause": "STOP", "framework": "lightning"}
    for name in options_of.__kwdefaults__:
        words = ["exec", f"--{name.replace('_', '-')}", texts.get(name, seconds), "--", "true"]
        assert [main(words), commands.run(words)] == [0, 0]
        given: dict[str, Any] = {name: texts.get(name) or float(seconds)}
        assert heard[-2] == heard[-1] == (["true"], options_of(**given))


@pytest.mark.parametrize(
    "words",
    [
        [], ["--"], ["--help"], ["-h", "true"], ["--hang-after"], ["--hang-after", "--", "x"],
        ["--hang-after", "-1", "x"], ["--hang-after", "nan", "x"], ["--hang_after", "1", "x"], ["--hang", "1", "x"],
        ["--nonsense", "1", "x"],
    ],
)  # fmt: skip
def test_words_that_are_not_plain(words: list[str]) -> None:
    assert read_words(words) is None
