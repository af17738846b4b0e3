"""The container file: what it copies is there, what it runs makes a service, and it runs with the least rights.

No image is built here: that takes a network and a builder.
"""

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.service.settings import known_names
from tests.packaging.clean import clean_venv

ROOT = Path(__file__).resolve().parents[2]
JOINED = re.sub(r"(?m)^#.*\n", "", (ROOT / "Containerfile").read_text()).replace("\\\n", " ")
STEPS = [tuple(line.split(maxsplit=1)) for line in JOINED.splitlines() if line.strip()]
BUILD, FINAL = (STEPS[: (second := [s[0] for s in STEPS].index("FROM", 1))], STEPS[second:])
SOURCE_ONLY = "--no-index"  # marks the step that takes nothing from outside


def of(steps: list[tuple[str, ...]], kind: str) -> list[str]:
    return [rest for name, rest in steps if name == kind]


def copies() -> Iterator[tuple[str, str]]:
    """What is copied from the repository, each with where to."""
    for rest in of(BUILD, "COPY"):
        *sources, target = rest.split()
        yield from ((source, target) for source in sources)


def test_what_is_copied_is_there_and_not_left_out_of_the_context() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source, _ in copies():
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in kept), source
    assert {source for source, _ in copies()} == set(kept)


def test_packages_are_those_of_the_lock() -> None:
    installs = [step for step in of(BUILD, "RUN") if " pip install " in step]
    assert all("--require-hashes" in step or SOURCE_ONLY in step for step in installs)
    assert any("--require-hashes -r requirements/${LOCK}.txt" in step for step in installs)
    assert of(BUILD, "ARG") == ["LOCK=base"]
    for text in ((ROOT / "Containerfile").read_text(), (ROOT / "docs" / "kubernetes.md").read_text()):
        for lock in re.findall(r"LOCK=(\w+)", text):
            assert f"requirements/{lock}.txt" in [source for source, _ in copies()]


def test_it_runs_as_a_user_without_rights_whose_state_is_a_volume() -> None:
    (user,), (volume,) = of(FINAL, "USER"), of(FINAL, "VOLUME")
    assert re.fullmatch(r"[a-z]+", user)
    assert user != "root"
    (run,) = of(FINAL, "RUN")
    assert f"install -d -o {user} -g {user} -m 0700 {volume}" in run
    env = dict(pair.split("=", 1) for pair in shlex.split(" ".join(of(FINAL, "ENV"))))
    assert env["PERDURE_SERVICE_STATE"] == volume
    names = {name.upper().replace(".", "_") for name in known_names()}
    assert {name.removeprefix("PERDURE_") for name in env if name.startswith("PERDURE_")} <= names
    last_user = [name for name, _ in FINAL].index("USER")
    assert not [name for name, _ in FINAL[last_user:] if name in ("RUN", "COPY", "ADD")]


def test_its_source_becomes_a_program_as_its_step_says(tmp_path: Path) -> None:
    """In an environment with the locked packages, with nothing beside what is copied."""
    context = tmp_path / "source"
    for source, target in copies():
        to = context / (source if target == "./" else target)
        to.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, to)
    python = clean_venv(tmp_path / "venv", with_pip=True)
    (step,) = [step for step in of(BUILD, "RUN") if SOURCE_ONLY in step]
    run(step.replace("/opt/perdure", str(tmp_path / "venv")), context)
    shutil.rmtree(context)
    (entry,), (words,) = of(FINAL, "ENTRYPOINT"), of(FINAL, "CMD")
    program = python.parent / json.loads(entry)[0]
    assert "--state" in run(shlex.join([str(program), *json.loads(words), "--help"]), tmp_path)


def test_its_health_is_asked_where_it_listens() -> None:
    (health,) = of(FINAL, "HEALTHCHECK")
    command = json.loads(health.partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "healthcheck", "exec")
    (port,) = of(FINAL, "EXPOSE")
    assert f"http://127.0.0.1:{port}/healthz" in command[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lock", ["base", "cluster"])
def test_its_steps_make_the_program_from_nothing(tmp_path: Path, lock: str) -> None:
    """With packages from an index: takes a network."""
    for step in of(BUILD, "RUN"):
        run(f"LOCK={lock}; {step}".replace("/opt/perdure", str(tmp_path / "venv")), ROOT)
    assert "up" in run(f"{tmp_path}/venv/bin/perdure --help", tmp_path)


def run(command: str, cwd: Path) -> str:
    ran = subprocess.run(["sh", "-c", command], cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
