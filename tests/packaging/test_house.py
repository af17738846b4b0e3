"""The house stays small enough to live in: functions, modules, and what the rooms of the service know of each other."""

import ast
import re
import tomllib

from tests.packaging.house import ROOT, SOURCES, read_files, rooms_of

NOT_PURE = re.compile(r"(\.|^)(now|today|utcnow|localtime)\(\)$|default_rng\(\)$")
FILES = read_files(SOURCES)


def test_no_function_is_longer_than_a_screen() -> None:
    long = {name: lines for file in FILES for name, lines in file.functions() if lines > 60}
    assert long == {}


def test_no_module_has_more_than_500_lines() -> None:
    assert {str(file.path): file.lines for file in FILES if file.lines > 500} == {}


def test_rooms_of_the_service_import_few_others() -> None:
    assert len(rooms_of(FILES)) <= 43


def test_what_decides_purely_asks_for_no_time_and_draws_with_the_generator_that_it_is_given() -> None:
    """Import contracts cannot forbid `datetime`, which reads texts too, nor NumPy."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    pure = {part for each in contracts if " pure" in each["name"] for part in each["source_modules"]}
    assert len(pure) > 10
    folders = tuple(SOURCES.joinpath(*part.split(".")[1:]) for part in pure)
    calls = (
        (str(file.path), ast.unparse(node))
        for file in FILES
        if any(file.path.is_relative_to(folder) for folder in folders)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call) and not node.args and not node.keywords
    )
    assert [call for call in calls if NOT_PURE.search(call[1])] == []
