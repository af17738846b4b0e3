"""Mutants of some kinds in some files, each run against the tests nearest to its file.

``python -m tests.mutants.swept --kind ends,counts --only retry,coordination``; kinds are in ``operators.py``, and
``--n 40 --seed 1`` tries so many of them, drawn at random. Nearest are the answers of the file that are written down,
doctests, tests called like the file, those of the same folder and others that name most of what it defines, and what is
written down of its part; of those, what a minute takes. Prints what survives, with its line and the change. One that
changes nothing that anybody can see is listed, with the reason, in ``equivalent.toml``.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.mutants.catalogue import ROOT
from tests.mutants.generated import EQUIVALENT
from tests.mutants.operators import OPERATORS, Site, sites
from tests.mutants.runner import copies, say
from tests.recorded.groups import names

SOURCE = ROOT / "src/perdure"
FAR = ("slurm/", "browser/", "packaging/", "e2e/", "programs/", "foundry/", "docs/", "attacks/", "crash/", "mutants/")
ENOUGH_S = 50.0  # of the processor, for the tests of each mutant
LONGEST_S = 60.0  # for one of them
MOST_FILES = 4
RECORDED = "tests/recorded/test_recorded.py::test_every_answer_is_as_it_was"
SHOWN: dict[str, tuple[str, ...]] = {  # by how files below src/perdure begin: what is written down of what they do
    "backends/condor/": ("stories/condor_pool",),
    "backends/kubernetes/": ("stories/kubernetes_cluster",),
    "backends/local/": ("stories/local_", "commands/own"),
    "backends/simulated/": ("stories/simulated_cluster", "runs"),
    "backends/slurm/": ("stories/slurm_cluster", "commands/slurm"),
    "blame/": ("whole_runs/suspects",),
    "cli/": ("commands",),
    "coordination/": ("runs", "stories/exception_chain"),
    "emulation/": ("whole_runs/emulated",),
    "hangs/": ("commands/folders",),
    "job/": ("stories/exec_runs", "stories/job_files", "commands/own"),
    "live_policy/": ("whole_runs/live_queues",),
    "model/": ("runs", "stories"),
    "retry/": ("runs",),
    "scheduling/": ("whole_runs/parts", "whole_runs/elastic", "whole_runs/schedules"),
    "service/access/": ("requests/full", "visits/full"),
    "service/core/": ("runs",),
    "service/exceptions/": ("runs", "requests/full"),
    "service/store/": ("runs", "visits/full"),
    "service/web/": ("visits", "requests"),
    "service/workers/": ("runs",),
    "simulation/": ("whole_runs/parts", "whole_runs/figures", "commands/replays", "whole_runs/schedules"),
    "studies/": ("whole_runs/small_studies",),
    "succession/": ("kept_chains", "commands/keep"),
    "throughput/": ("whole_runs/speeds",),
    "traces/": ("commands/replays", "whole_runs/parts"),
    "triage/": ("verdicts", "commands/logs"),
    "waits/": ("commands/models", "commands/site"),
}
SHORT = 4  # letters of a name that many things have
SLOWER = 3.0  # than without a mutant: it does not end


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.swept", description="try all mutants of a kind")
    parser.add_argument("--kind", default="ends", help=f"one or several of {', '.join(sorted(OPERATORS))}")
    parser.add_argument("--only", default="", help="files whose paths below src/perdure begin like one of these")
    parser.add_argument("--n", type=int, help="so many of them, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    parser.add_argument("--log", type=Path, help="where results are written down, and not tried again")
    given = parser.parse_args()
    kinds = given.kind.split(",")
    if unknown := set(kinds) - set(OPERATORS):
        parser.error(f"{', '.join(sorted(unknown))}: the kinds are {', '.join(sorted(OPERATORS))}")
    chosen = list(_chosen(kinds, given.only.split(",")))
    if given.n is not None and given.n < len(chosen):
        drawn = random.Random(given.seed).sample(range(len(chosen)), given.n)
        chosen = [chosen[at] for at in sorted(drawn)]
    known = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    done = {} if given.log is None or not given.log.exists() else _read(given.log)
    caught = survived = same = 0
    with copies(1) as free:
        copy = free.get()
        server = None if given.list else Server(copy)
        for file, text, site in chosen:
            told = f"{file}:{site.line}: {text[site.start : site.end]!r} -> {site.now!r}"
            if server is None:
                say(told)
                continue
            if any(_is_as(entry, file, text, site) for entry in known):
                same += 1
                continue
            by = done.get(told) if told in done else server.tried(file, text, site)
            if given.log is not None and told not in done:
                with given.log.open("a") as log:
                    log.write(json.dumps([told, by]) + "\n")
            caught, survived = caught + bool(by), survived + (not by)
            if not by:
                say(f"survived: {told}")
    low, high = interval(caught, caught + survived)
    share = f"{low:.0%} to {high:.0%} of all are caught"
    say(f"{given.kind} of {given.only or 'all'}: {caught} caught, {survived} survived ({share}), {same} change nothing")
    return 1 if survived else 0


def interval(caught: int, tried: int) -> tuple[float, float]:
    """In which the share that is caught is, with 95 % (E. B. Wilson, JASA 22, 1927)."""
    if not tried:
        return 0.0, 1.0
    z, share = 1.96, caught / tried
    middle, wide = share + z * z / (2 * tried), z * math.sqrt(share * (1 - share) / tried + (z / (2 * tried)) ** 2)
    return (middle - wide) / (1 + z * z / tried), (middle + wide) / (1 + z * z / tried)


def _read(log: Path) -> dict[str, str]:
    return dict(json.loads(line) for line in log.read_text().splitlines())


def _chosen(kinds: list[str], only: list[str]) -> Iterator[tuple[str, str, Site]]:
    for begins in only:
        for path in sorted(SOURCE.rglob("*.py")):
            file = path.relative_to(SOURCE).as_posix()
            if file.startswith(begins):
                text = path.read_text()
                for kind in kinds:
                    yield from ((file, text, site) for site in sites(text, kind))


def _is_as(entry: dict[str, str], file: str, text: str, site: Site) -> bool:
    if entry["file"] != file:
        return False
    line = site.line - 1
    was, now = (_plain(each.splitlines()[line]) for each in (text, site.put_into(text)))
    return (was, now) == (_plain(entry["was"]), _plain(entry["now"]))


def _plain(line: str) -> str:
    """Without parentheses: the generators of mutants set them differently."""
    return re.sub(r"[()\s]", "", line)


class Server:
    """Runs tests in a copy of the project, each time in a fork of a process that has loaded what does not change."""

    def __init__(self, copy: Path) -> None:
        self._copy, self._instant_s = copy, int(time.time())
        environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}:{copy}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.forked"], cwd=copy, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._sound: dict[tuple[str, ...], tuple[tuple[str, ...], float]] = {}

    def tried(self, file: str, text: str, site: Site) -> str:
        """Which test noticed; "" where none did."""
        tests, took_s = self._unharmed(nearest(file))
        if not tests:
            raise LookupError(f"no test near {file} passes in {LONGEST_S:.0f} s")
        path = self._copy / "src/perdure" / file
        try:
            self._write(path, site.put_into(text))
            return self._run(tests, 10.0 + SLOWER * took_s)[0]
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        """At an instant of its own: what was compiled of it is known to be old."""
        path.write_text(text)
        self._instant_s += 2
        os.utime(path, (self._instant_s, self._instant_s))

    def _unharmed(self, tests: tuple[str, ...]) -> tuple[tuple[str, ...], float]:
        """Those that pass without a mutant, as many as are quick enough, and how long they take."""
        if tests not in self._sound:
            passed, spent_s = [], 0.0
            for test in tests:
                by, took_s = _timed(self, test)
                if not by and spent_s <= ENOUGH_S:
                    passed.append(test)
                    spent_s += took_s
            self._sound[tests] = tuple(passed), spent_s
        return self._sound[tests]

    def _run(self, tests: tuple[str, ...], limit_s: float, *, is_sound: bool = False) -> tuple[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(tests), limit_s, is_sound]) + "\n")
        self._process.stdin.flush()
        by, took_s = json.loads(self._process.stdout.readline())
        return by, took_s


@cache
def _timed(server: Server, test: str) -> tuple[str, float]:
    return server._run((test,), LONGEST_S, is_sound=True)


@cache
def nearest(file: str) -> tuple[str, ...]:
    """Tests of a file below src/perdure, the nearest first."""
    folder, _, name = file.removesuffix(".py").rpartition("/")
    home = _home(folder)
    words = {word for word in _public(ast.parse((SOURCE / file).read_text())) if len(word) > SHORT} | {name}
    ranked = []
    for path, text in _tests():
        said = len(words & set(re.findall(r"\w+", text)))
        if said or path.startswith(f"{home}/"):
            ranked.append((not path.endswith(f"/test_{name}.py"), not path.startswith(f"{home}/"), -said, path))
    own = [f"{RECORDED}[modules/{file.removesuffix('.py').replace('/', '.')}]"]
    known = [test for test in own if test in _recorded(("modules",))]
    if ">>>" in (SOURCE / file).read_text():
        known.append(f"src/perdure/{file}")
    shown = [test for begins, which in SHOWN.items() if file.startswith(begins) for test in _recorded(which)]
    return (*known, *(path for *_, path in sorted(ranked)[:MOST_FILES]), *shown)


@cache
def _recorded(which: tuple[str, ...]) -> list[str]:
    return [f"{RECORDED}[{name}]" for begins in which for name in names() if name.startswith(begins)]


def _public(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
            if isinstance(node, ast.ClassDef):
                yield from (each.name for each in node.body if isinstance(each, ast.FunctionDef))


def _home(folder: str) -> str:
    """Where tests of a folder below src/perdure are: in one of the same name, or of one above it."""
    while folder and not (ROOT / "tests" / folder).is_dir():
        folder = folder.rpartition("/")[0]
    return f"tests/{folder}"


@cache
def _tests() -> list[tuple[str, str]]:
    found = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("test_*.py")))
    return [(path, (ROOT / path).read_text()) for path in found if not path.removeprefix("tests/").startswith(FAR)]


if __name__ == "__main__":
    sys.exit(main())
