"""The wheel holds everything that the package needs to run, and nothing of this machine."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "perdure"
BUILD = "import sys; from flit_core import buildapi; print(buildapi.build_wheel(sys.argv[1]))"


def python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    built = python("-c", BUILD, str(out), cwd=ROOT)
    assert built.returncode == 0, built.stderr
    return zipfile.ZipFile(out / built.stdout.strip())


@pytest.fixture(scope="module")
def unpacked(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files in a directory of their own, as `pip install --target` leaves them."""
    path = tmp_path_factory.mktemp("installed")
    wheel.extractall(path)
    return path


def test_every_file_of_the_package_is_in_it(wheel: zipfile.ZipFile) -> None:
    ours = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == ours
    assert "perdure/triage/rules.toml" in packed


def test_the_licence_and_the_command_are_in_it(wheel: zipfile.ZipFile) -> None:
    info = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "Apache License" in wheel.read(info["licenses/LICENSE"]).decode()
    assert "perdure=perdure.cli.main:main" in wheel.read(info["entry_points.txt"]).decode()
    metadata = wheel.read(info["METADATA"]).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_it_is_built_for_any_machine_and_is_small(wheel: zipfile.ZipFile) -> None:
    assert wheel.filename.endswith("-py3-none-any.whl")
    assert sum(file.file_size for file in wheel.filelist) < 20e6


def test_it_runs_from_the_wheel_alone(unpacked: Path, tmp_path: Path) -> None:
    """Judging a log needs the code, the rules and the model."""
    (tmp_path / "a.log").write_text("RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x5 and 7x1)\n")
    env = {**os.environ, "PYTHONPATH": str(unpacked), "HOME": str(tmp_path)}
    where = python("-c", "import perdure; print(perdure.__file__)", env=env, cwd=tmp_path)
    assert where.stdout.startswith(str(unpacked))
    ran = python("-m", "perdure", "why", "a.log", "--json", env=env, cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert '"category": "shape"' in ran.stdout
