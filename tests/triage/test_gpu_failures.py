"""The failing programs of a GPU: each has its record, and the runner shows what a program printed."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu_failures.programs import FailingProgram, read_programs
from benchmarks.gpu_failures.run import Run
from benchmarks.triage_gpu import read_records, sets_of

UNRECORDED = {"tenant2_cuda"}


def test_each_record_is_of_a_program() -> None:
    programs = {program.keys["id"]: program for program in read_programs()}
    records = read_records()
    assert {record["id"] for record in records} == set(programs) - UNRECORDED
    for record in records:
        keys = programs[record["id"]].keys
        assert (keys["family"], json.loads(keys["retry"])) == (record["family"], record["retry_helps"])
        assert keys["category"] in {record["category"], record.get("planned", {}).get("category")}


def test_families_are_read_or_not() -> None:
    assert {name: len(records) for name, records in sets_of(read_records()).items()} == {
        "families read": 86,
        "families not read": 47,
    }


@pytest.fixture
def program(tmp_path: Path) -> FailingProgram:
    keys = {
        "id": "tiny",
        "as": str(tmp_path / "work"),
        "pro": "none",
        "run": "cat words.txt; echo started; sleep 20",
        "when": "started",
        "event": "sleep 0.2; kill -9 -$JOB",
        "after": "touch $SIDE/after",
    }
    return FailingProgram(keys, {"words.txt": "hello\n"})


def test_a_program_is_run_and_struck(program: FailingProgram, tmp_path: Path) -> None:
    result = Run(program, tmp_path, 0).result()
    assert (result["exit_code"], result["fired"]) == (-9, True)
    assert (tmp_path / "tiny/log.txt").read_text() == "hello\nstarted\n"
    assert (tmp_path / "tiny/side/after").exists()
    assert not (tmp_path / "work").exists()


def test_no_folder_is_taken_that_exists(program: FailingProgram, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(SystemExit, match="exists"):
        Run(program, tmp_path, 0).result()
