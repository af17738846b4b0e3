"""Whatever is wrong with a trace: one line with file, row and fix, and exit code 2; or left out and counted."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

pytestmark = pytest.mark.usefixtures("says_nothing_of_compiling")

HEADER = "job_id,submit_s,gpus,duration_s\n"
GOOD = "a,0,1,5\n"
ATTEMPT = {"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 01:01:00",
           "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}  # fmt: skip
JOB = {"status": "Pass", "vc": "a", "jobid": "x", "user": "u", "submitted_time": "2017-10-07 00:59:00",
       "attempts": [ATTEMPT]}  # fmt: skip
COLUMNS = "the row is cut off or has columns too many (Expected Number of Columns: 4"
SKIP = ", or pass --skip-bad to leave such rows out."


def whatif(perdure: Callable[..., Ran], name: str, *words: str) -> Ran:
    return perdure("whatif", name, "--cluster", "1x8", "--policy", "fifo", "--json", *words)


@pytest.mark.parametrize(
    ("row", "what", "fix"),
    [
        ("b,1,2", f"{COLUMNS} Found: 3)", "Fix the row"),
        ("b,1,2,5,6", f"{COLUMNS} Found: 5)", "Fix the row"),
        ('"b"x,1,2,5', "the row cannot be read: unquoted value", "Fix the row"),
        ("\ud800,1,2,5", "the row cannot be read: invalid encoding", "Fix the row"),
        ("b,1,2,five", "duration_s is not a number", "Fix the row"),
        ("b,1,2,-5", "the duration is negative (-5.0)", "Give seconds of running"),
        ("b,1,2,nan", "the duration is missing or not a number", "Give seconds of running"),
        ("b,1,2,inf", "the duration is missing or not a number", "Give seconds of running"),
        ("b,1,2,", "the duration is missing or not a number", "Give seconds of running"),
        ("b,1,2,1e300", "the duration is absurd (1e+300)", "Give seconds of running"),
        ("b,nan,2,5", "the submit time is missing or not a time", "Give it"),
        ("b,-1e300,2,5", "the submit time is absurd (-1e+300)", "Give seconds"),
        ("b,1,0,5", "the job has 0 GPUs", "Give how many GPUs the job held"),
        ("b,1,-2,5", "the number of GPUs is negative (-2.0)", "Give how many GPUs the job held"),
        ("b,1,1.5,5", "the number of GPUs is missing or not a whole number (1.5)", "Give how many GPUs the job held"),
        ("b,1,1e12,5", "the number of GPUs is absurd (1000000000000.0)", "Give how many GPUs the job held"),
        ("a,1,2,5", "the job id was used before (a)", "Give every job an id of its own"),
        (",1,2,5", "the job has no id", "Give every job an id of its own"),
    ],
)  # fmt: skip
def test_a_bad_row_is_one_line_or_left_out_and_counted(
    perdure: Callable[..., Ran], home: Path, row: str, what: str, fix: str
) -> None:
    (home / "jobs.csv").write_bytes((HEADER + GOOD + row + "\n").encode("utf-8", "surrogatepass"))
    ran = whatif(perdure, "jobs.csv")
    assert (ran.code, ran.out, ran.complaint) == (2, "", f"jobs.csv:3: {what}. {fix}{SKIP}")
    skipped = whatif(perdure, "jobs.csv", "--skip-bad")
    assert (skipped.code, skipped.json["runs"][0]["jobs"]) == (0, 1)
    assert skipped.err in (
        f"jobs.csv: 1 left out: {what.split(' (')[0]}\n",
        "jobs.csv: 1 left out: the row cannot be read\n",
    )


@pytest.mark.parametrize(
    ("name", "raw", "complaint"),
    [
        ("a.csv", b"job_id,submit_s,gpus\na,0,1\n",
         "a.csv:1: no column duration_s. It needs: job_id, submit_s, gpus, duration_s."),
        ("a.csv", b"job_id,submit_s,gpus,duration_s,gpus\na,0,1,5,1\n",
         "a.csv:1: column gpus comes twice. Name each column once."),
        ("a.csv", b"", "a.csv: the file is empty. Export the trace again."),
        ("a.csv", HEADER.encode(), "a.csv: no job is left of this trace (perdure: it holds no rows). Name a trace of "),
        ("a.csv", (HEADER + GOOD + '"b,0,1,5\nc,0,1,5\n').encode(),
         "a.csv:3: a quote is opened and not closed, so that the rows behind it cannot be told apart. Fix the row."),
        ("a.csv", (HEADER + "a,0,0,5\n").encode(),
         "a.csv: no job is left of this trace (perdure: 1 left out: the job has 0 GPUs). Name a trace of GPU jobs."),
        ("a.csv.gz", gzip.compress(HEADER.encode() + GOOD.encode() * 9, mtime=0)[:-9],
         "a.csv.gz: the file is cut off or damaged ("),
        ("a.parquet", b"PAR1 and no more", "a.parquet: the file is cut off or damaged ("),
        ("a.txt", b"JobID|State\n1|COMPLETED\n",
         "a.txt:1: no column Submit, Start, ElapsedRaw, AllocTRES. Export with TZ=UTC sacct --allusers "),
        ("a.swf", b"1 2 3\n", "a.swf: the form of this trace is not known. Name it by --format, one of: "),
        ("none.csv", None, "none.csv: No such file or directory. Name a trace file that you may read."),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_line_and_2(
    perdure: Callable[..., Ran], home: Path, name: str, raw: bytes | None, complaint: str
) -> None:
    if raw is not None:
        (home / name).write_bytes(raw)
    ran = whatif(perdure, name, "--skip-bad")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


def test_a_json_list_that_is_cut_off_is_one_line_and_what_is_lost_is_told(
    perdure: Callable[..., Ran], home: Path
) -> None:
    text = json.dumps([JOB, {**JOB, "jobid": "y"}, {**JOB, "jobid": "z"}], indent=1)
    (home / "log.json").write_text(text[: text.index('"y"')])
    assert whatif(perdure, "log.json").complaint == (
        "log.json: the file is cut off or damaged (job 2, which begins in line 23, does not end). "
        "Copy or export it again."
    )
    ran = whatif(perdure, "log.json", "--skip-bad")
    assert (ran.code, ran.json["runs"][0]["jobs"]) == (0, 1)
    assert ran.err == (
        "log.json: 1 left out: the job has no jobid or no list of attempts\n"
        "log.json: job 2 does not end, and whatever comes behind it was not read\n"
    )


def test_jobs_in_any_order_are_sorted(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "jobs.csv").write_text(HEADER + "late,10,8,5\nearly,0,8,5\n")
    assert whatif(perdure, "jobs.csv", "--jobs-out", "out.csv").err == ""
    assert (home / "out.csv").read_text().splitlines()[1:] == ["fifo,early,0,5,0,0", "fifo,late,10,15,0,0"]
