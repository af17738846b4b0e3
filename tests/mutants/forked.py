"""Runs pytest in forks of a process that has loaded what the tests need and no mutant changes.

Reads lines of JSON, ``[[test, ...], seconds, whether all is sound]``, and answers each with what failed, or "", and
the seconds of the processor that it took: how busy the machine is says nothing of a test.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import signal
import sys
import time
from contextlib import suppress

LOADED = ("pytest", "hypothesis", "numpy", "msgspec", "sqlalchemy", "fastapi", "pydantic", "httpx", "jinja2", "polars",
          "scipy")  # fmt: skip
POLL_S = 0.05
SLEEPS = 8.0  # times as long by the clock as by the processor: it does not end
REWRITTEN = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is loaded already


def main() -> None:
    for name in LOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    for line in sys.stdin:
        tests, limit_s, is_sound = json.loads(line)
        sys.dont_write_bytecode = not is_sound
        os.write(answers, (json.dumps(_run(tests, limit_s)) + "\n").encode())


def _run(tests: list[str], limit_s: float) -> tuple[str, float]:
    began_s, took_s = time.monotonic(), limit_s
    reads, writes = os.pipe()
    if not (child := os.fork()):
        os.setsid()
        os.close(reads)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s) + 1))
        _test(tests, writes)
    os.close(writes)
    failed = "does not end"
    while time.monotonic() < began_s + SLEEPS * limit_s:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            took_s = used.ru_utime + used.ru_stime
            said = os.read(reads, 4096).decode(errors="replace")
            failed = "" if status == 0 else said or f"status {status}"
            break
        time.sleep(POLL_S)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
    os.close(reads)
    return failed, took_s


def _test(tests: list[str], writes: int) -> None:
    import pytest

    class Told:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                os.write(writes, report.nodeid.encode()[:300])

    code = 99
    try:
        given = [
            "-q",
            "-x",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "--no-header",
            "--tb=no",
            "-W",
            REWRITTEN,
            "--doctest-modules",
            *tests,
        ]
        code = int(pytest.main(given, plugins=[Told()]))
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
