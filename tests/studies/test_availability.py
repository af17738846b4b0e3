"""Availability studies and pictures: the published figures, the laws of the test, and files that are pictures."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.blame.grid import grid
from perdure.cli.main import main
from perdure.errors import InputError
from perdure.studies.blame_windows import draw
from perdure.studies.colocation import COLUMNS, Days, compare, read_days
from perdure.studies.tor import TorStudy
from tests.blame.test_read import write

# -- ToRs


def test_the_published_case_gives_the_published_figure() -> None:
    assert f"{1 - TorStudy(0.001, 0.9, 20, 120).unavailability:.5%}" == "99.99993%"
    assert TorStudy().nines == pytest.approx(6.16, abs=0.01)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 43_200), st.floats(0, 43_200))
def test_a_tor_is_never_better_than_its_repairs_allow(
    failing: float, soft: float, soft_min: float, hard_min: float
) -> None:
    study = TorStudy(failing, soft, soft_min, hard_min)
    assert 0 <= study.unavailability <= failing * max(soft_min, hard_min) / 43_200 + 1e-12
    assert study.bearable == pytest.approx(1 - 10 * study.unavailability)


@pytest.mark.parametrize("words", [["--soft-share", "1.1"], ["--failing-share", "-1"], ["--hard-min", "nan"]])
def test_shares_and_times_that_cannot_be_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["who", "--study", "tor", *words]) == 2
    line = capsys.readouterr().err
    assert line.startswith("perdure: study tor, ")
    assert line.count("\n") == 1


# -- distance to storage


def days_of(excess: float, seed: int = 0, days: int = 90, units: int = 1_000_000, rate: float = 1e-4) -> Days:
    """As published: 52 % of the VMs two hops off, 41 % three; days differ by a factor, distances by `excess`."""
    rng = np.random.default_rng(seed)
    weather = rate * rng.gamma(4.0, 0.25, days)
    near, far = np.full(days, round(0.52 * units)), np.full(days, round(0.41 * units))
    return Days(
        tuple(map(str, range(days))), 2, 3, near, rng.binomial(near, weather), far,
        rng.binomial(far, weather * (1 + excess)),
    )  # fmt: skip


def test_the_published_excess_is_found_with_its_interval() -> None:
    found = compare(days_of(0.114), np.random.default_rng(0))
    assert found.excess_low < 0.114 < found.excess_high
    assert found.excess_low > 0
    assert found.p < 0.01
    assert (found.near_share, found.far_share) == pytest.approx((0.52 / 0.93, 0.41 / 0.93))


def test_without_a_difference_the_test_errs_as_often_as_it_says() -> None:
    """100 trials at 5 %: 13 or more errors would happen once in 500."""
    wrong = sum(compare(days_of(0.0, seed, days=30), np.random.default_rng(seed)).p < 0.05 for seed in range(100))
    assert wrong < 13


def test_near_and_far_exchanged_turn_the_excess_round() -> None:
    there = days_of(0.3)
    back = Days(
        there.names, 2, 3, there.far_units, there.far_failures, there.near_units, there.near_failures
    )  # fmt: skip
    one, other = compare(there, np.random.default_rng(1)), compare(back, np.random.default_rng(1))
    assert (1 + one.excess) * (1 + other.excess) == pytest.approx(1)
    assert one.p == other.p


def test_days_without_any_failure_show_no_difference() -> None:
    none = np.zeros(9, np.int64)
    found = compare(Days(tuple("abcdefghi"), 2, 3, none + 5, none, none + 5, none), np.random.default_rng(0))
    assert (found.excess, found.p) == (0.0, 1.0)


def csv_of(rows: Sequence[tuple[object, int, object, int]]) -> list[Any]:
    return [",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]


GOOD = [(day, hops, 100, hops) for day in range(6) for hops in (2, 3)]


def test_days_are_read() -> None:
    found = read_days(csv_of(GOOD))
    assert (len(found.names), found.near_hops, found.far_hops, found.far_failures.tolist()) == (6, 2, 3, [3] * 6)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*GOOD, ("x", 2, 5, 6)], "row 14: 6 of 5 units failed"),
        ([*GOOD, ("x", 2, -5, 0)], "row 14: units is '-5'"),
        ([*GOOD, ("x", 2, "nan", 0)], "row 14: units is 'nan'"),
        ([*GOOD, (0, 2, 5, 0)], "row 14: day '0' has 2 hops twice"),
        ([*GOOD, ("x", 4, 5, 0)], "3 distances in it"),
        (GOOD[:2], "1 days have both distances"),
        ([], "0 distances in it"),
        ([(day, hops, 0, 0) for day in range(6) for hops in (2, 3)], "no units at all"),
    ],
)
def test_what_is_wrong_with_days_is_said_with_its_row(
    rows: Sequence[tuple[object, int, object, int]], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "days.csv"
    file.write_text("\n".join(csv_of(rows)))
    assert main(["who", "--study", "colocation", str(file)]) == 2
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InputError, match="no column failures"):
        read_days(["day,hops,units"])


# -- pictures


def test_the_grid_counts_every_unit_of_its_tiers_once() -> None:
    found = draw("storage", np.random.default_rng(0)).window
    shown = grid(found, row_tier="agg", column_tier="storage")
    assert shown.units.sum() == found.units.sum()
    assert shown.failures.sum() == found.failures.sum()
    assert np.isnan(shown.rate).sum() == (shown.units == 0).sum()
    assert (grid(found).row_tier, grid(found).column_tier) == ("tor", "storage")


def test_a_grid_too_large_keeps_culprits_and_says_what_is_left_out() -> None:
    found = draw("tor", np.random.default_rng(0)).window
    quiet = int(np.argmin(found.totals(found.failures)[: 12 * 20]))
    shown = grid(found, {quiet}, "tor", "storage", (10, 5))
    assert quiet in shown.rows
    assert (len(shown.rows), len(shown.columns)) == (10, 5)
    assert shown.left_out == (240 - 10) + (28 - 5)


@pytest.fixture
def window_file(tmp_path: Path) -> tuple[Path, Path]:
    rows = ", ".join(f"({c * 6 + s}, [{c}, {8 + s}], 40, {20 * (c == 3)})" for c in range(8) for s in range(6))
    paths = write(tmp_path / "a.paths.parquet", rows)
    tiers = ", ".join(f"({c}, '{'tor' if c < 8 else 'storage'}')" for c in range(14))
    return paths, write(tmp_path / "a.components.parquet", tiers, "component, tier")


@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_pictures_are_pictures(window_file: tuple[Path, Path], tmp_path: Path, suffix: str, begins: bytes) -> None:
    paths, components = map(str, window_file)
    days = tmp_path / "days.csv"
    days.write_text("\n".join(csv_of(GOOD)))
    for words in ([paths, "--components", components], ["--study", "tor"], ["--study", "colocation", str(days)]):
        out = tmp_path / f"x.{suffix}"
        assert main(["who", *words, "--out", str(out)]) == (words[0] == paths)
        data = out.read_bytes()
        assert data.startswith(begins)
        assert main(["who", *words, "--out", str(out)]) == (words[0] == paths)
        assert out.read_bytes() == data  # drawn twice, the same


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "x.gif"], "'.gif' is not a kind of picture"),
        (["--out", "/nowhere/x.svg"], "cannot be written"),
        (["--rows", "rack", "--out", "x.svg"], "there is no tier 'rack'"),
    ],
)
def test_pictures_that_cannot_be_are_refused(
    window_file: tuple[Path, Path],
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    paths, components = map(str, window_file)
    assert main(["who", paths, "--components", components, *words]) == 2
    assert said in capsys.readouterr().err


def test_one_tier_is_no_grid(window_file: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["who", str(window_file[0]), "--out", "x.svg"]) == 2
    assert "all components are of one tier" in capsys.readouterr().err


def test_a_study_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["who", "--study", "tor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "perdure.study.tor/1"


def test_asking_names_loads_no_picture_code(window_file: tuple[Path, Path]) -> None:
    """Matplotlib takes a second to load, which nobody who wants names should pay."""
    code = f"import sys; from perdure.cli.main import main; main(['who', {str(window_file[0])!r}]); "
    code += "print('matplotlib' in sys.modules, 'numba' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False False"
