"""A setting that is ignored: does the test that shows it notice? ``python -m tests.mutants.ignored [GROUP.KEY ...]``.

Run as a plugin of pytest (``-p tests.mutants.ignored``) it lets one setting be what is built in, whatever is set.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from perdure.service.settings import groups
from tests.mutants.runner import say

IGNORED = "PERDURE_TEST_IGNORED"
ROOT = Path(__file__).resolve().parents[2]


def pytest_configure() -> None:
    """Every value that is given goes nowhere, and what is read is what is built in."""
    group, _, key = os.environ.get(IGNORED, "").partition(".")
    if group:
        settings = groups()[group]
        built_in = getattr(settings(), key)
        setattr(settings, key, property(lambda _: built_in, lambda _, value: None))


def main() -> int:
    from tests.service.test_every_setting import PROXY, SEEN, TESTED

    here = "tests/service/test_every_setting.py"
    of_value, of_proxy = "test_another_value_of_it_alone_is_seen", "test_another_value_of_the_proxys_is_seen"
    shown = {**TESTED, **{name: f"{here}::{of_value}[{name}]" for name in SEEN}}
    shown |= {f"proxy.{name}": f"{here}::{of_proxy}[{name}]" for name in PROXY}
    missed = 0
    for name in sys.argv[1:] or sorted(shown):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.mutants.ignored", "-p", "no:cacheprovider"]
        ran = subprocess.run(
            [*command, shown[name]], cwd=ROOT, env={**os.environ, IGNORED: name}, capture_output=True, check=False
        )
        if ran.returncode != 1:  # 1: a test failed
            missed += 1
            say(f"{name}: MISSED by {shown[name]}")
    say(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
