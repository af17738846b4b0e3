"""Windows from files: what is right is read, what is wrong is named with its row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from perdure.blame.read import cases, read_window
from perdure.blame.window import window
from perdure.cli.main import main
from perdure.errors import InputError

GOOD = "(0, [0, 1], 5, 1), (1, [1, 2], 6, 0), (2, [0, 2], 7, 7)"
TIERS = "(0, 'tor'), (1, 'tor'), (2, 'storage')"


def write(path: Path, rows: str, columns: str = "path, components, n, e", cast: str = "") -> Path:
    duckdb.execute(f"COPY (SELECT * {cast} FROM (VALUES {rows}) t({columns})) TO '{path}' (FORMAT parquet)")
    return path


@pytest.fixture
def paths(tmp_path: Path) -> Callable[..., Path]:
    return lambda rows, **options: write(tmp_path / "a.paths.parquet", rows, **options)


@pytest.fixture
def tiers(tmp_path: Path) -> Callable[[Any], Path]:
    return lambda rows: write(tmp_path / "a.components.parquet", rows, "component, tier")


def test_a_window_is_read_as_it_was_written(paths: Callable[..., Path], tiers: Callable[[Any], Path]) -> None:
    found = read_window(paths(GOOD), tiers(TIERS))
    assert found.incidence.toarray().tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    assert found.units.tolist() == [5, 6, 7]
    assert found.failures.tolist() == [1, 0, 7]
    assert found.tiers.tolist() == ["tor", "tor", "storage"]


def test_without_components_those_that_occur_are_all(paths: Callable[..., Path]) -> None:
    found = read_window(paths("(7, [30, 10], 5, 1)"))
    assert found.component_ids.tolist() == [10, 30]
    assert found.path_ids.tolist() == [7]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("(0, [0], 5, 1), (1, [1], 2, 3)", "row 2: e is larger than n"),
        ("(0, [0], 5, 1), (1, [1], -2, -3)", "row 2: n is negative"),
        ("(0, [0], 5, -1)", "row 1: e is negative"),
        ("(0, [0], 5.0::DOUBLE, 1), (1, [1], 'nan'::DOUBLE, 1)", "row 2: n is missing or NaN"),
        ("(0, [0], 5.5::DOUBLE, 1)", "row 1: n is not a whole number"),
        ("(0, [0], 5.0::DOUBLE, 1), (1, [1], 1e16::DOUBLE, 1)", "row 2: n is beyond 2^53"),
        ("(0, [0], 5, 1), (1, [1], NULL, 1)", "row 2: n is missing or NaN"),
        ("(0, [0], 5, 1), (1, [9], 5, 1)", "row 2: component 9 is not known"),
        ("(0, [0], 5, 1), (1, [-1], 5, 1)", "row 2: component -1 is not known"),
        ("(0, [0], 5, 1), (1, [], 5, 1)", "row 2: the path has no components"),
        ("(0, [0], 5, 1), (1, NULL, 5, 1)", "row 2: the path has no components"),
        ("(0, [0], 5, 1), (1, [1, NULL], 5, 1)", "row 2: a component is missing"),
        ("(0, [0], 5, 1), (1, [2, 1, 2], 5, 1)", "row 2: component 2 is listed twice"),
        ("(4, [0], 5, 1), (3, [1], 5, 1), (4, [1], 5, 1)", "row 3: path 4 is there twice"),
        ("(0, [0], 'five', 1)", "n holds VARCHAR, not whole numbers"),
        ("(0, 'a', 5, 1)", "components holds VARCHAR, not lists of whole numbers"),
    ],
)
def test_what_is_wrong_is_said_with_its_row(
    paths: Callable[..., Path], tiers: Callable[[Any], Path], capsys: pytest.CaptureFixture[str], rows: str, said: str
) -> None:
    file = paths(rows)
    assert main(["who", str(file), "--components", str(tiers(TIERS))]) == 2
    line = capsys.readouterr().err
    assert f"{file}" in line
    assert said in line
    assert line.count("\n") == 1


def test_a_table_without_rows_has_no_path(tmp_path: Path) -> None:
    file = tmp_path / "empty.parquet"
    duckdb.execute(f"COPY (SELECT 1 AS path, [1] AS components, 1 AS n, 1 AS e LIMIT 0) TO '{file}' (FORMAT parquet)")
    with pytest.raises(InputError, match="there is no path in it"):
        read_window(file)


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", b"path,components,n,e\n"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(content)
    with pytest.raises(InputError, match="not a Parquet file"):
        read_window(file)


def test_a_file_or_a_column_that_is_not_there_is_named(paths: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_window(tmp_path / "none.parquet")
    with pytest.raises(InputError, match="a directory"):
        read_window(tmp_path)
    with pytest.raises(InputError, match="no column e"):
        read_window(paths("(0, [0], 5)", columns="path, components, n"))


def test_components_that_stand_twice_are_refused(paths: Callable[..., Path], tiers: Callable[[Any], Path]) -> None:
    with pytest.raises(InputError, match="row 3: component 0 is there twice"):
        read_window(paths(GOOD), tiers("(0, 'tor'), (1, 'tor'), (0, 'tor')"))


@pytest.mark.parametrize("row", ["(1, NULL)", "(NULL, 'tor')"])
def test_a_component_without_number_or_tier_is_refused_with_its_row(
    paths: Callable[..., Path], tiers: Callable[[Any], Path], row: str
) -> None:
    with pytest.raises(InputError, match="row 2: component or tier is missing"):
        read_window(paths(GOOD), tiers(f"(0, 'tor'), {row}, (2, 'storage')"))


def test_components_that_no_path_crosses_are_there_all_the_same() -> None:
    found = window([0, 1], [7], [5], [1], component_ids=[7, 8, 9], tiers=["tor"] * 3)
    assert found.incidence.toarray().tolist() == [[1, 0, 0]]
    assert [found.rows(column).tolist() for column in range(3)] == [[0], [], []]


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        cases(tmp_path)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="differ in length"):
        window([0, 1], [0], [1, 2], [0, 0])


def test_texts_for_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="not whole numbers"):
        window([0, 1], np.array(["a"]), [1], [0])


def test_more_entries_than_memory_should_hold_are_refused(
    paths: Callable[..., Path],
    tiers: Callable[[Any], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("perdure.blame.read.MOST_ENTRIES", 5)
    assert main(["who", str(paths(GOOD)), "--components", str(tiers(TIERS))]) == 2
    line = capsys.readouterr().err
    assert "paths have 6 components together. Take a shorter window." in line
    assert line.count("\n") == 1


def test_a_bad_case_of_a_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cases").mkdir()
    write(tmp_path / "cases/a.paths.parquet", GOOD)
    write(tmp_path / "cases/b.paths.parquet", "(0, [0], 5, 6)")
    assert main(["who", "--batch", str(tmp_path), "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "b.paths.parquet, row 1: e is larger than n" in said.err


def test_counts_that_a_float_cannot_hold_apart_are_still_counts() -> None:
    found = window([0, 1, 2], [0, 1], [2**60, 5], [2**59, 0])
    assert found.failures[0] / found.units[0] == 0.5
