"""How large the house is: ``python -m tests.packaging.house`` prints code lines, functions, imports and tests by part.

Code is neither blank, comment nor docstring; a function is counted with its signature. Programs of the demonstration
and of the tests are users' own, and left out.
"""

# ruff: noqa: T201  (it prints)
from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import quantiles

ROOT = Path(__file__).resolve().parents[2]
SOURCES, TESTS = ROOT / "src" / "perdure", ROOT / "tests"
SERVICE = "perdure.service"
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One module, and the numbers of the lines that hold code."""

    path: Path
    tree: ast.Module
    code: frozenset[int]
    lines: int

    @property
    def imports(self) -> int:
        return sum(isinstance(node, ast.Import | ast.ImportFrom) for node in self.tree.body)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Each function with its code lines."""
        for node in ast.walk(self.tree):
            if isinstance(node, _DEFINITIONS):
                yield node.name, len(self.code.intersection(range(node.lineno, (node.end_lineno or 0) + 1)))

    def imported(self) -> Iterator[str]:
        """The modules that it imports, anywhere in it; of a package each name that is taken from it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{each.name}" for each in node.names)


def read_files(root: Path) -> list[SourceFile]:
    """All modules below a folder, by path."""
    paths = sorted(path for path in root.rglob("*.py") if "programs" not in path.parts)
    return [_read(path) for path in paths]


def _read(path: Path) -> SourceFile:
    text = path.read_text()
    tree = ast.parse(text)
    said: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *_DEFINITIONS)) and ast.get_docstring(node) is not None:
            said.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {n for each in tokens if each.type not in _NO_CODE for n in range(each.start[0], each.end[0] + 1)}
    return SourceFile(path, tree, frozenset(code - said), text.count("\n"))


def rooms_of(files: list[SourceFile]) -> set[tuple[str, str]]:
    """Which room of the service imports which."""
    found = set()
    for file in files:
        place = file.path.relative_to(SOURCES)
        if place.parts[0] == "service":
            room = place.parts[1].removesuffix(".py")
            found |= {(room, name.split(".")[2]) for name in file.imported() if name.startswith(f"{SERVICE}.")}
    return {(room, other) for room, other in found if room != other}


def by_part(files: list[SourceFile], root: Path) -> Mapping[str, int]:
    """Code lines of each part."""
    parts = groupby(files, key=lambda file: file.path.relative_to(root).parts[0])
    return {part: sum(len(file.code) for file in its) for part, its in parts}


def _spread(values: list[int]) -> str:
    tenths = quantiles(values, n=10)
    return f"median {tenths[4]:.0f}, p90 {tenths[8]:.0f}, most {max(values)}"


def main() -> None:
    files = read_files(SOURCES)
    code, tests = by_part(files, SOURCES), by_part(read_files(TESTS), TESTS)
    print(f"code lines {sum(code.values())}, of tests {sum(tests.values())}")
    print(f"arrows between the rooms of the service: {len(rooms_of(files))}")
    print(f"code lines of a function: {_spread([lines for file in files for _, lines in file.functions()])}")
    print(f"imports of a module: {_spread([file.imports for file in files])}")
    print(f"lines of a module: {_spread([file.lines for file in files])}")
    for part, lines in code.items():
        told = f", tests {tests[part] / lines:.2f} of it" if part in tests else ""
        print(f"  {part}: {lines}{told}")


if __name__ == "__main__":
    main()
