"""The failing tools: each has its record, and what is said of logs that were fixed against stays as right."""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from benchmarks.tool_failures.run import read_programs, run
from benchmarks.triage_gpu import right_categories
from benchmarks.triage_tools import judged, part_of, read_records, shows_root
from perdure.triage.verdict import Label, Verdict

LEAST_RIGHT, LEAST_ROOT = 0.97, 0.9
WRITTEN = (3, 4, 5, 6)  # the parts whose programs, where one ran, are not here
TRUTH = ("retry", "category", "root")


@pytest.fixture(scope="module")
def pairs() -> list[tuple[dict[str, Any], Verdict]]:
    records = read_records()
    return list(zip(records, judged(records), strict=True))


def test_each_record_is_of_a_program_and_shows_its_root() -> None:
    programs = {program["id"]: program for program in read_programs()}
    records = {record["id"]: record for record in read_records() if part_of(record) not in WRITTEN}
    assert records.keys() == programs.keys()
    for name, record in records.items():
        assert {key: record[key] for key in TRUTH} == {key: programs[name][key] for key in TRUTH}, name
        assert record["also_right"] == programs[name].get("also_right", []), name
        assert record["root"] in record["text"], name
        assert record["exit_code"] != 0, name


@pytest.mark.parametrize(
    ("part", "least_right", "least_root"),
    [
        (1, LEAST_RIGHT, LEAST_ROOT),
        (2, LEAST_RIGHT, LEAST_ROOT),
        (3, LEAST_RIGHT, 0.8),
        (4, LEAST_RIGHT, 0.9),
        (5, LEAST_RIGHT, 0.95),
    ],
)
def test_every_log_has_a_category_that_a_person_would_choose(
    pairs: list[tuple[dict[str, Any], Verdict]], part: int, least_right: float, least_root: float
) -> None:
    own = [(record, verdict) for record, verdict in pairs if part_of(record) == part]
    wrong = [record["id"] for record, verdict in own if verdict.category not in right_categories(record)]
    assert len(wrong) <= (1 - least_right) * len(own), wrong
    assert not [r["id"] for r, verdict in own if verdict.category == "unknown"]
    assert sum(shows_root(*pair) for pair in own) >= least_root * len(own)


def test_of_logs_that_nothing_was_fixed_against_most_are_right(pairs: list[tuple[dict[str, Any], Verdict]]) -> None:
    own = [(record, verdict) for record, verdict in pairs if part_of(record) == 6]
    assert sum(verdict.category in right_categories(record) for record, verdict in own) >= 0.9 * len(own)
    assert sum(shows_root(*pair) for pair in own) >= 0.85 * len(own)


def test_each_written_log_shows_its_root() -> None:
    written = [record for record in read_records() if part_of(record) in WRITTEN]
    assert len(written) == 92 + 130 + 90 + 60
    assert not [record["id"] for record in written if record["root"] not in record["text"]]


def test_nothing_that_passes_is_stopped_and_nothing_that_lasts_is_retried(
    pairs: list[tuple[dict[str, Any], Verdict]],
) -> None:
    wrong = {True: Label.DETERMINISTIC, False: Label.TRANSIENT}
    assert not [record["id"] for record, verdict in pairs if verdict.label is wrong[record["retry"]]]


def _may_unshare() -> bool:
    return which("unshare") is not None and Path("/proc/self/ns/pid").exists() and sys.platform == "linux"


@pytest.mark.skipif(not _may_unshare(), reason="needs namespaces")
def test_a_program_is_run_and_names_of_the_machine_are_gone() -> None:
    script = 'pwd; echo "$HOME"; python -c "import sys; print(sys.prefix)"; no_such_tool'
    program = {"id": "x", "retry": False, "category": "missing_file", "root": "not found", "script": script}
    record = run(program, 0)
    if "unshare failed" in record["text"]:
        pytest.skip("needs root for namespaces")
    assert record["exit_code"] == 127
    assert record["text"].splitlines()[:3] == ["/scratch/ines/run", "/home/ines", "/opt/envs/train"]
    assert record["text"].splitlines()[3].startswith("/var/spool/slurmd/job.sh: line ")
