"""Philly's raw log: attempts, times that are the text "None", jobs without attempts, hosts that change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import InputError
from perdure.model.table import TableEnding
from perdure.traces.read import read


def attempt(start: str = "2017-10-07 01:00:00", end: str = "2017-10-07 01:01:00", **gpus: int) -> dict[str, Any]:
    detail = [{"ip": host, "gpus": [f"gpu{n}" for n in range(count)]} for host, count in (gpus or {"m1": 1}).items()]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(
    *attempts: dict[str, Any],
    jobid: str = "application_1",
    status: str = "Pass",
    submitted: str = "2017-10-07 00:59:00",
    **more: object,
) -> dict[str, Any]:
    said = {"status": status, "vc": "a", "jobid": jobid, "attempts": list(attempts), "submitted_time": submitted}
    return {**said, "user": "u", **more}


def test_attempts_are_kept_and_the_last_of_a_passed_job_passed(file: Callable[..., Path]) -> None:
    tries = [attempt(m1=4, m2=4), attempt("2017-10-07 01:02:00", "2017-10-07 01:12:00", m3=8)]
    trace = read(file("log.json.gz", json.dumps([job(*tries)])))
    jobs = trace.table
    assert trace.format == "philly-json"
    assert jobs.gpus.tolist() == [8]
    assert jobs.duration_s.tolist() == [660]
    assert (jobs.start_s[0], jobs.end_s[0]) == (60, 780)
    assert jobs.attempts is not None
    assert jobs.attempts.duration_s.tolist() == [60, 600]
    assert jobs.attempts.passed.tolist() == [False, True]


@pytest.mark.parametrize(
    ("status", "ending", "passed"),
    [("Pass", TableEnding.PASSED, True), ("Killed", TableEnding.KILLED, False), ("Failed", TableEnding.FAILED, False)],
)
def test_only_a_passed_job_has_an_attempt_that_passed(
    file: Callable[..., Path], status: str, ending: TableEnding, passed: bool
) -> None:
    jobs = read(file("log.json", json.dumps([job(attempt(), status=status)]))).table
    assert jobs.attempts is not None
    assert (jobs.ending[0], jobs.attempts.passed[0]) == (ending, passed)


@pytest.mark.parametrize("missing", [{"start": "None"}, {"end": "None"}, {"end": None}])
def test_an_attempt_that_misses_a_time_is_no_attempt_and_is_told(
    file: Callable[..., Path], missing: Mapping[str, Any]
) -> None:
    trace = read(file("log.json", json.dumps([job(attempt(**missing), attempt())])))
    assert trace.table.duration_s.tolist() == [60]
    assert trace.notes == ("1 attempts miss a start or an end and are not among the attempts",)


def test_jobs_that_never_ran_are_left_out_and_counted(file: Callable[..., Path]) -> None:
    log = [job(), job(attempt(start="None"), jobid="b"), job(attempt(), jobid="c")]
    trace = read(file("log.json", json.dumps(log)))
    assert trace.table.job_id.tolist() == ["c"]
    assert trace.left_out == {"never started": 1, "no attempt with a start and an end": 1}


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (job(attempt(end="2017-10-07 00:00:00")), "an attempt ends before it starts"),
        (job(attempt(), submitted="None"), "the submit time is missing"),
        ({"status": "Pass"}, "the job has no jobid or no list of attempts"),
        (["not", "a", "job"], "the job has no jobid or no list of attempts"),
        (job({"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 01:01:00"}), "the job has 0 GPUs"),
        (job(attempt(), jobid="good"), "the job id was used before"),
    ],
)
def test_a_bad_job_is_named_or_skipped(file: Callable[..., Path], bad: list[str] | dict[str, Any], what: str) -> None:
    path = file("log.json", json.dumps([job(attempt(), jobid="good"), bad]))
    with pytest.raises(InputError, match=f"log.json, job 2: {what}"):
        read(path)
    assert read(path, skip_bad=True).table.job_id.tolist() == ["good"]


def test_a_log_that_is_cut_off_is_refused_and_its_whole_jobs_can_be_read(file: Callable[..., Path]) -> None:
    text = json.dumps([job(attempt()), job(attempt(), jobid="b")], indent=1)
    path = file("log.json", text[: len(text) - 60])
    with pytest.raises(InputError, match=r"cut off or damaged .job 2, which begins in line"):
        read(path)
    assert len(read(path, skip_bad=True).table) == 1


def test_the_public_sample(public: Callable[[str], Path]) -> None:
    trace = read(public("traces/philly/cluster_job_log.sample.json"))
    assert trace.table.gpus.tolist() == [8, 1]
    assert trace.table.submit_s.tolist() == [0, 179_557]
    assert trace.left_out == {"never started": 1}


def test_halves_of_characters_are_replaced(file: Callable[..., Path]) -> None:
    jobs = read(file("log.json", json.dumps([job(attempt(), jobid="a\ud83c", vc="\udc00b", user="é")]))).table
    assert (jobs.job_id[0], jobs.vc[0], jobs.user[0]) == ("a?", "?b", "é")


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ("2017-11-04 12:00:00", "2017-11-05 12:00:00", 25),  # that night the clock went back from 2 to 1
        ("2017-11-05 00:30:00", "2017-11-05 01:30:00", 1),
        ("2017-11-05 01:45:00", "2017-11-05 01:15:00", 0.5),
    ],
)
def test_an_attempt_runs_on_while_the_clock_is_put_back(
    file: Callable[..., Path], start: str, end: str, hours: float
) -> None:
    jobs = read(file("log.json", json.dumps([job(attempt(start, end))]))).table
    assert jobs.duration_s.tolist() == [3600 * hours]
    assert (jobs.end_s - jobs.start_s).tolist() == [3600 * hours]


def test_an_attempt_that_ends_before_it_starts_is_refused(file: Callable[..., Path]) -> None:
    log = [job(attempt(), jobid="a"), job(attempt("2017-11-06 01:45:00", "2017-11-06 01:15:00"), jobid="b")]
    with pytest.raises(InputError, match=r"log.json, job 2: an attempt ends before it starts\. Give its true times"):
        read(file("log.json", json.dumps(log)))
