"""``make help`` names each target that a person may ask for, and what it does."""

import re
import subprocess

from tests.conftest import ROOT, require_program


def test_help_lists_every_target() -> None:
    require_program("make")
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    said = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = dict(line.split(maxsplit=1) for line in said.stdout.splitlines())
    assert sorted(listed) == sorted(phony.split())
    assert all(listed.values())


def test_up_passes_its_options_on() -> None:
    require_program("make")
    said = subprocess.run(
        ["make", "--no-print-directory", "-n", "up", "ARGS=--port 8081"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.rstrip().endswith("perdure up --port 8081")
