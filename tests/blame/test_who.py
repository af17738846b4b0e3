"""The command: what it prints, how it ends, and how it does on the public set."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from perdure.cli.main import main
from tests.blame.test_read import write
from tests.conftest import require

SMALL = 30  # cases; those after it are large, and left to benchmarks/blame.py


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cases").mkdir()
    down = ", ".join(f"({c * 6 + s}, [{c}, {8 + s}], 40, {20 * (c == 3)})" for c in range(8) for s in range(6))
    well = down.replace(", 20)", ", 0)")
    for name, rows in (("down", down), ("well", well)):
        write(tmp_path / "cases" / f"{name}.paths.parquet", rows)
    return tmp_path


def test_a_suspect_is_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["who", str(folder / "cases/down.paths.parquet"), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "perdure.who/1"
    assert said["seconds"] >= 0
    (suspect,) = said["suspects"]
    assert (suspect["component"], suspect["kind"], suspect["equivalent"], suspect["units"]) == (3, "hard", [], 120)
    assert suspect["rate_low"] < suspect["rate"] < suspect["rate_high"]


def test_nobody_is_an_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["who", str(folder / "cases/well.paths.parquet")]) == 0
    assert "Nobody is to blame" in capsys.readouterr().out


def test_a_table_shows_who_and_how_bad(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["who", str(folder / "cases/down.paths.parquet")]) == 1
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["COMPONENT", "TIER", "KIND"]
    assert row.split()[:3] == ["3", "component", "hard"]


def test_a_folder_is_answered_in_the_form_that_is_scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["who", "--batch", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {"down", "down:s", "well", "well:s"}
    assert (said["down"], said["well"]) == ([3], [])
    assert main(["who", "--batch", str(folder)]) == 0
    assert "nobody" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no service runs with this state directory"),
        (["--components", "a.parquet"], "who paths: Missing argument 'PATHS'"),
        (["--study", "tor", "a.parquet"], "who tor: Got unexpected extra argument"),
        (["--study", "colocation"], "who colocation: Missing argument 'DAYS'"),
        (["a.parquet", "--batch", "b"], "who batch: Got unexpected extra argument"),
        (["a.parquet"], "no such file"),
        (["a.parquet", "--components"], "requires an argument"),
    ],
)
def test_misuse_ends_with_two_and_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["who", *words]) == 2
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1


def test_a_solver_that_is_not_known_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["who", str(folder / "cases/down.paths.parquet"), "--solver", "oracle"]) == 2
    assert "'oracle' is not known" in capsys.readouterr().err


def test_the_default_keeps_its_bars_on_the_small_public_cases(data_dir: Path | None) -> None:
    from perdure.blame import localise
    from perdure.blame.read import cases, read_window

    public = require("data", data_dir, "no public cases here") / "localisation"
    require("data", public.is_dir(), "no public cases here")
    truth = {case["case"]: case for case in json.loads((public / "truth.json").read_text())}
    hits, misses, wrong, unfound, in_vain = 0, 0, 0, 0, 0
    for case in cases(public)[:SMALL]:
        named = {suspect.component for suspect in localise(read_window(case.paths, case.components))}
        groups = [({t["component"], *t["equivalent"]}, t["llr"]) for t in truth[case.name]["truth"]]
        found = [bool(group & named) for group, _ in groups]
        hits, misses = hits + sum(found), misses + len(found) - sum(found)
        false = sum(not any(one in group for group, _ in groups) for one in named)
        wrong, in_vain = wrong + false, in_vain + false * (not groups)
        unfound += sum(strength >= 12 and not hit for hit, (_, strength) in zip(found, groups, strict=True))
    assert hits / (hits + wrong) >= 0.98
    assert 2 * hits / (2 * hits + wrong + misses) >= 0.95
    assert unfound <= np.floor(0.03 * (hits + unfound))
    assert in_vain <= 1


LIVE = {
    "component": "gpu03", "tier": "node", "equivalent": [{"tier": "leaf", "name": "l1"}], "kind": "hard", "rate": 0.9,
    "rate_low": 0.7, "rate_high": 1.0, "units": 9, "passed": 1, "users": 3, "strength": 30.0, "since_s": 1.79e9,
    "last_s": 1.79e9, "cleared_s": None, "said": "", "exception_id": "x",
}  # fmt: skip


@pytest.mark.parametrize(("suspects", "code"), [([], 0), ([LIVE], 1)])
def test_without_a_file_the_running_service_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], suspects: list[dict[str, object]], code: int
) -> None:
    answer = {"suspects": suspects, "cleared": []}
    monkeypatch.setattr("perdure.cli.who.service", lambda _: SimpleNamespace(get={"/suspects": answer}.get))
    assert main(["who", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == {"schema": "perdure.who/1", **answer}
    assert main(["who"]) == code
    said = capsys.readouterr().out
    if suspects:
        assert said.splitlines()[1].split()[:4] == ["gpu03", "node", "hard", "90%"]
        assert "leaf l1" in said
    else:
        assert "Nobody is to blame" in said
