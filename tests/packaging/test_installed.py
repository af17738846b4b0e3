"""The wheel and the source distribution, each in an environment with the locked packages and nothing else."""

import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.packaging.clean import clean_venv, pip

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from flit_core import buildapi; print(getattr(buildapi, sys.argv[1])(sys.argv[2]))"
NOT_OURS = ("PYTHONPATH", "VIRTUAL_ENV", "PERDURE_", "XDG_")
READY_S = 120


def build(kind: str, out: Path, cwd: Path = ROOT) -> Path:
    built = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(out)], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert built.returncode == 0, built.stderr
    return out / built.stdout.strip()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the source distribution, as files."""
    out = tmp_path_factory.mktemp("packed")
    return {kind: build(f"build_{kind}", out) for kind in ("wheel", "sdist")}


class Installed:
    """An environment, and a home without a source tree beside it."""

    def __init__(self, directory: Path, package: Path) -> None:
        self.python = clean_venv(directory / "venv")
        self.bin = self.python.parent
        pip(self.python, "--no-deps", "--no-build-isolation", str(package))
        self.home = directory / "home"
        self.home.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
        self.env = {**kept, "HOME": str(self.home), "COLUMNS": "100", "PYTHONNOUSERSITE": "1"}

    def run(self, *words: str, program: str = "perdure") -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [self.bin / program, *words]
        return subprocess.run(
            command, cwd=self.home, env=self.env, capture_output=True, text=True, timeout=120, check=False
        )

    def asked(self, code: str) -> str:
        ran = self.run("-c", code, program="python")
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()


@pytest.fixture(scope="module")
def installed(packed: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), packed["wheel"])


def test_the_code_that_runs_is_the_installed_one(installed: Installed) -> None:
    where = installed.asked("import perdure; print(perdure.__file__)")
    assert where.startswith(str(installed.python.parents[1]))
    assert str(ROOT) not in where
    assert (
        installed.asked("import importlib.util as u; print(u.find_spec('pytest'), u.find_spec('tests'))") == "None None"
    )


def test_help_names_the_commands(installed: Installed) -> None:
    ran = installed.run("--help")
    assert ran.returncode == 0, ran.stderr
    assert all(command in ran.stdout for command in ("up", "why", "who", "doctor"))


def test_a_log_is_explained(installed: Installed) -> None:
    (installed.home / "a.log").write_text("RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x5 and 7x1)\n")
    ran = installed.run("why", "a.log", "--json")
    assert ran.returncode == 1, ran.stderr
    assert '"category": "shape"' in ran.stdout


def test_rules_are_explained(installed: Installed) -> None:
    listed = installed.run("rules")
    assert listed.returncode == 0, listed.stderr
    assert "shape" in listed.stdout


def test_manual_pages_are_made(installed: Installed) -> None:
    ran = installed.run("help", "--man", "share/man")
    assert ran.returncode == 0, ran.stderr
    assert (installed.home / "share/man/man1/perdure-why.1").read_text().startswith((".", "'"))


@pytest.mark.parametrize(
    "name",
    [
        "monitoring/alerts.yml",
        "monitoring/grafana.json",
        "systemd/perdure.service",
        "../backends/slurm/hooks/epilogctld",
    ],
)
def test_files_for_the_site_are_there(installed: Installed, name: str) -> None:
    path = Path(installed.asked("import perdure; print(*perdure.__path__)")) / "service" / name
    assert path.stat().st_size > 100


def test_the_service_runs_and_serves_its_pages(installed: Installed) -> None:
    command: list[str | Path] = [installed.bin / "perdure", "up", "--port", "0", "--no-demo", "--state", "state"]
    service = subprocess.Popen(
        command, cwd=installed.home, env=installed.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        first = service.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:\d+)/\?code=(\S+)", first)
        assert found, first + (service.stdout.read() if service.poll() is not None else "")
        url, code = found.groups()
        await_ready(url)
        assert get(f"{url}/healthz") == b'{"status":"ok"}'
        assert b"perdure_build_info" in get(f"{url}/metrics")
        assert b"<html" in get(f"{url}/login")
        page = get(f"{url}/?code={code}", cookies=True)
        assert b"Perdure" in page
        for asset in set(re.findall(rb'(?:href|src)="(/static/[^"]+)"', page)):
            assert get(url + asset.decode())
        assert (installed.home / "state" / "journal.db").exists()
        assert installed.run("jobs", "--state", "state").returncode == 0
    finally:
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
        service.stdout.close()


def get(url: str, cookies: bool = False) -> bytes:
    opener = (
        urllib.request.build_opener(urllib.request.HTTPCookieProcessor()) if cookies else urllib.request.build_opener()
    )
    with opener.open(url, timeout=30) as answer:
        return answer.read()


def await_ready(url: str) -> bytes:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            return get(f"{url}/readyz")
        except urllib.error.HTTPError:
            time.sleep(0.1)
    pytest.fail(f"{url} is not ready within {READY_S} s")


def test_the_source_distribution_makes_the_same_program(
    packed: dict[str, Path], installed: Installed, tmp_path: Path
) -> None:
    """Installed by itself it is the same files, so that all of the above holds for it, too."""
    alone = Installed(tmp_path, packed["sdist"])
    where = "import perdure; print(*perdure.__path__)"
    mine, others = Path(alone.asked(where)), Path(installed.asked(where))
    assert str(tmp_path) in str(mine)
    assert contents(mine) == contents(others)
    assert alone.run("--version").returncode == 0


def contents(directory: Path) -> dict[Path, bytes]:
    """The files below a directory with what they hold, without what Python compiles."""
    files = [path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(directory): path.read_bytes() for path in files}


def test_the_source_distribution_makes_the_same_wheel_and_holds_nothing_else(
    packed: dict[str, Path], tmp_path: Path
) -> None:
    with tarfile.open(packed["sdist"]) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    assert {path.name for path in root.iterdir()} == {"src", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
    assert [path.name for path in (root / "src").iterdir()] == ["perdure"]
    assert not list(root.rglob("tests"))
    again = zipfile.ZipFile(build("build_wheel", tmp_path, cwd=root))
    wheel = zipfile.ZipFile(packed["wheel"])
    assert {name: again.read(name) for name in again.namelist() if not name.endswith("RECORD")} == {
        name: wheel.read(name) for name in wheel.namelist() if not name.endswith("RECORD")
    }
