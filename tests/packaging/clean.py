"""Virtual environments with what the lock of the base names and nothing else, made without a network."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def locked(name: str = "base.txt") -> list[Requirement]:
    """What a lock has for this machine."""
    joined = (ROOT / "requirements" / name).read_text().replace("\\\n", " ")
    lines = (line for line in joined.splitlines() if line.strip() and not line.startswith("#"))
    found = [Requirement(line.partition(" --")[0].strip()) for line in lines]
    return [each for each in found if each.marker is None or each.marker.evaluate()]


def clean_venv(path: Path, *, with_pip: bool = False) -> Path:
    """Make a virtual environment without Perdure whose packages are links to this one's; returns its python."""
    venv.EnvBuilder(symlinks=True, with_pip=with_pip).create(path)
    (packages,) = path.glob("lib/python*/site-packages")
    for requirement in locked():
        for top, target in _tops(requirement.name).items():
            if not (packages / top).exists():
                (packages / top).symlink_to(target)
    return path / "bin" / "python"


def _tops(name: str) -> dict[str, Path]:
    """Files and directories of a distribution directly below site-packages."""
    found = distribution(name)
    tops = {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
    return {top: Path(str(found.locate_file(top))) for top in tops}


def pip(python: Path, *words: str, cwd: Path = ROOT) -> None:
    """Install into the environment of `python` by the pip of this one; nothing is asked of an index."""
    quiet = [
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(python),
        "install",
        "--no-index",
        "--no-compile",
    ]
    ran = subprocess.run(
        [sys.executable, *quiet, *words], cwd=cwd, capture_output=True, text=True, timeout=280, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
