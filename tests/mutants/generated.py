"""Mutants that mutmut makes of a part, some drawn at random: do the part's own tests notice them?

``python -m tests.mutants.generated PART --n 100 --seed 0``. Prints each that survives, with its place and the change,
and the share that was caught. Texts are left alone, and so is what errors say: wording is not a promise. One that
survives and changes nothing that anybody can see is listed, with the reason, in ``equivalent.toml``.

mutmut (BSD-3) makes all mutants of a file, starts the tests once, and forks for each mutant.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import Bug
from tests.mutants.runner import TYPES, copies, say, tried

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
SURVIVED = (0, 5, 33)  # mutmut's exit codes: the tests passed; no test runs it
NOBODY = "nobody*"  # matches no mutant: mutmut ends when it has made them


@dataclass(frozen=True, slots=True)
class Part:
    """Files below src/perdure, as mutmut names them, and the tests that ought to notice, in less than a minute."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    but: tuple[str, ...] = ()
    starts_processes: bool = False  # that do not know of mutmut: each mutant is put in as a bug of the catalogue is


PARTS = {
    "retry": Part(("retry/*",), ("tests/retry", "tests/laws/test_retry.py")),
    "coordination": Part(("coordination/*",), ("tests/coordination", "tests/laws/test_controller.py")),
    "service": Part(
        (
            "service/core/controller.py",
            "service/workers/executor.py",
            "service/store/journal.py",
            "service/exceptions/coordinator.py",
        ),
        (
            "tests/service/core/test_controller.py",
            "tests/service/workers/test_executor.py",
            "tests/service/store/test_journal.py",
            "tests/service/workers/test_holds.py",
            "tests/service/web/test_exceptions_api.py",
            "tests/service/web/test_exceptions_page.py",
            "tests/laws/test_controller.py",
        ),
    ),
    "fence": Part(
        ("job/fence.py", "durable.py"),
        ("tests/job/test_fence.py", "tests/job/test_checkpoint.py", "tests/crash/test_promises.py"),
    ),
    "logfile": Part(("backends/logfile.py",), ("tests/backends/test_logfile.py",), starts_processes=True),
    "conformal": Part(("triage/conformal.py",), ("tests/triage/test_conformal.py",)),
    "scheduling": Part(
        ("scheduling/*",), ("tests/scheduling", "tests/simulation/test_laws.py", "tests/simulation/test_golden.py")
    ),
    "blame": Part(
        ("blame/*",), ("tests/blame", "tests/laws/test_blame.py"), but=("*/charts.py", "*/deepview.py")
    ),  # pictures; what is compiled
    # small modules without processes, threads or a database of their own
    "rights": Part(
        (
            "service/access/auth.py",
            "service/access/sessions.py",
            "service/web/idempotency.py",
            "service/core/orders.py",
            "service/core/scope.py",
        ),
        (
            "tests/service/access/test_auth.py",
            "tests/service/web/test_idempotency.py",
            "tests/service/core/test_scope.py",
            "tests/service/test_small_laws.py",
        ),
    ),
    "judged": Part(
        (
            "service/core/successor.py",
            "service/core/launcher_notes.py",
            "service/core/recovery.py",
        ),
        (
            "tests/service/core/test_successor.py",
            "tests/service/core/test_launcher_notes.py",
            "tests/service/test_small_laws.py",
            "tests/service/core/test_controller.py",
        ),
    ),
    "notices": Part(
        ("service/notices/derive.py", "service/notices/rules.py", "service/notices/notice.py"),
        ("tests/service/notices/test_rules.py", "tests/service/notices/test_edges.py", "tests/laws/test_notices.py"),
    ),
    "silence": Part(
        ("job/silence.py", "job/liveness.py", "hangs/culprit.py", "job/framework.py"),
        (
            "tests/job/test_silence.py",
            "tests/job/test_liveness.py",
            "tests/hangs/test_culprit.py",
            "tests/job/test_framework.py",
            "tests/job/test_edges.py",
            "tests/laws/test_hangs.py",
        ),
    ),
    "slurm": Part(
        (
            "slurm_words/states.py",
            "backends/writers.py",
            *(
                f"backends/slurm/{name}.py"
                for name in ("plans", "picture", "het", "siblings", "outputs", "config", "dependants")
            ),
        ),
        ("tests/backends/slurm", "tests/backends/test_writers.py", "tests/slurm_words", "tests/laws/test_slurm.py"),
    ),
    "context": Part(
        (
            "triage/evidence/context.py",
            "triage/evidence/ending.py",
            "triage/evidence/gpu_memory.py",
            "triage/evidence/reached.py",
            "triage/text/when.py",
        ),
        (
            "tests/triage/evidence/test_context.py",
            "tests/triage/evidence/test_gpu_memory.py",
            "tests/triage/evidence/test_reached.py",
            "tests/triage/evidence/test_edges.py",
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function, whose lines are `sound` and `changed`."""

    name: str
    file: str  # below src/perdure
    line: int
    sound: Sequence[str]
    changed: Sequence[str]
    was: str
    now: str

    def is_as(self, entry: dict[str, str]) -> bool:
        """Whether an entry of ``equivalent.toml`` is about this."""
        return (self.file, self.was, self.now) == (entry["file"], entry["was"], entry["now"])

    def is_missed(self, copy: Path, *tests: str) -> bool:
        """Put it in without mutmut; one whose function is there twice cannot be."""
        bug = Bug(self.name, "", self.file, "\n".join(self.sound), "\n".join(self.changed), tests)
        try:
            return not tried(copy, bug).by
        except ValueError:
            return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.generated", description="draw mutants of a part")
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--n", type=int, default=100, help="mutants that are drawn (default 100)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    part = PARTS[given.part]
    with copies(1) as free:
        copy = free.get()
        _configure(copy, part)
        said = _mutmut(copy, NOBODY)
        mutants = sorted(_mutants(copy), key=lambda mutant: mutant.name)
        drawn = random.Random(given.seed).sample(mutants, min(given.n, len(mutants)))
        if part.starts_processes:
            missed = [mutant for mutant in drawn if mutant.is_missed(copy, *part.tests)]
        elif drawn:
            said = _mutmut(copy, *[mutant.name for mutant in drawn])
            codes = _exit_codes(copy)
            missed = [mutant for mutant in drawn if codes[mutant.name] in SURVIVED]
            drawn = [mutant for mutant in drawn if codes[mutant.name] is not None]
        if not drawn:
            say(said[-4000:])
            return 2
        # By itself: mutmut forks when modules are imported already, and mypy is one of the tests.
        missed = [mutant for mutant in missed if mutant.is_missed(copy, TYPES, *part.tests)]
    known = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    same = [mutant for mutant in missed if any(mutant.is_as(entry) for entry in known)]
    for mutant in sorted((m for m in missed if m not in same), key=lambda mutant: (mutant.file, mutant.line)):
        say(f"{mutant.file}:{mutant.line}: missed\n  - {mutant.was}\n  + {mutant.now}")
    caught, count = len(drawn) - len(missed), len(drawn) - len(same)
    share = f"{caught} of {count} caught ({100 * caught / count:.1f} %), {len(same)} more change nothing"
    say(f"{given.part}: {share}; drawn of {len(mutants)}, seed {given.seed}")
    return 1 if caught < count else 0


def _configure(copy: Path, part: Part) -> None:
    """mutmut reads what it is to do from the project's file."""
    settings = {
        "source_paths": ["src/"],
        "only_mutate": [f"src/perdure/{name}" for name in part.files],
        "do_not_mutate": list(part.but),
        "also_copy": ["tests", "docs", "README.md"],
        "pytest_add_cli_args_test_selection": list(part.tests),
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
    }
    with (copy / "pyproject.toml").open("a") as file:
        file.write("\n[tool.mutmut]\n")
        file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    (copy / "shared").symlink_to(copy.parent / "shared")


def _mutmut(copy: Path, *names: str) -> str:
    """Run it on these mutants; what it said."""
    mutated = copy / "mutants"
    done = subprocess.run(
        [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", "1", *names],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{mutated / 'src'}:{mutated}", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def _exit_codes(copy: Path) -> dict[str, int | None]:
    codes: dict[str, int | None] = {}
    for path in (copy / "mutants/src").rglob("*.meta"):
        codes.update(json.loads(path.read_text())["exit_code_by_key"])
    return codes


def _mutants(copy: Path) -> Iterator[Mutant]:
    """Those that mutmut made, but for the ones that change texts alone."""
    for path in (copy / "mutants/src").rglob("*.meta"):
        mutated = path.with_suffix("")
        text = mutated.read_text()
        functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
        found = {node.name: node for node in functions}
        file = str(mutated.relative_to(copy / "mutants/src/perdure"))
        original = (copy / "src/perdure" / file).read_text()
        for name in json.loads(path.read_text())["exit_code_by_key"]:
            short = name.rpartition(".")[2]
            sound, changed = found.get(f"{short.rpartition('__mutmut_')[0]}__mutmut_orig"), found.get(short)
            if sound and changed and _without_texts(sound) != _without_texts(changed):
                yield _mutant(name, file, original, _lines(text, sound, short), _lines(text, changed, short))


def _lines(text: str, function: ast.FunctionDef, mutant: str) -> Sequence[str]:
    """The function as it stands in the project: mutmut calls it ``x_NAME__mutmut_3``, a method ``xǁCLASSǁNAME...``."""
    first, *rest = text.splitlines()[function.lineno - 1 : function.end_lineno]
    plain = mutant.rpartition("__mutmut_")[0].removeprefix("x_").rpartition("ǁ")[2]
    head, _, given = first.partition("(")
    return (f"{head.partition('def ')[0]}def {plain}({given}", *rest)


def _mutant(name: str, file: str, original: str, sound: Sequence[str], changed: Sequence[str]) -> Mutant:
    steps = difflib.SequenceMatcher(None, sound, changed, autojunk=False).get_opcodes()
    _, first, last, begins, ends = next(step for step in steps if step[0] != "equal")
    line = original.count("\n", 0, max(0, original.find("\n".join(sound)))) + first + 1
    was, now = (" ".join(part.strip() for part in lines) for lines in (sound[first:last], changed[begins:ends]))
    return Mutant(name, file, line, sound, changed, was, now)


def _without_texts(function: ast.FunctionDef) -> str:
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args = []
    return "\n".join(map(ast.dump, (function.args, *function.body)))


if __name__ == "__main__":
    sys.exit(main())
