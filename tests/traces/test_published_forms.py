"""Published forms of which no large file is at hand: a real job list, written in each of them, is read unchanged."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from perdure.model.table import Attempts, JobTable, TableEnding
from perdure.traces.read import read
from tests.conftest import require

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
STATES = {
    "COMPLETED": TableEnding.PASSED, "CANCELLED": TableEnding.KILLED, "TIMEOUT": TableEnding.KILLED,
    "FAILED": TableEnding.FAILED,
    "NODE_FAIL": TableEnding.FAILED,
}  # fmt: skip
STATUS = {"Pass": TableEnding.PASSED, "Killed": TableEnding.KILLED, "Failed": TableEnding.FAILED}


@pytest.fixture(scope="module")
def real(data_dir: Path | None) -> JobTable:
    """Every other job of Philly's public list that was submitted before a clock changed."""
    path = require("data", data_dir, "no public traces here") / "traces/philly/philly_jobs_until_2017-11-12.csv.gz"
    require("data", path.exists(), "no public list of Philly here")
    table = read(path).table
    return table.take(
        np.flatnonzero(table.began_s + table.submit_s < datetime(2017, 10, 15, tzinfo=UTC).timestamp())[::2]
    )


def wall(seconds: float, zone: ZoneInfo) -> str:
    return f"{datetime.fromtimestamp(seconds, zone):%Y-%m-%d %H:%M:%S}"


def same(read_back: JobTable, real: JobTable) -> None:
    for name in ("submit_s", "gpus", "duration_s", "vc"):
        np.testing.assert_array_equal(getattr(read_back, name), getattr(real, name), err_msg=name)
    assert read_back.began_s == real.began_s


def test_drac_coded(file: Callable[..., Path], real: JobTable) -> None:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        ["job", "submit_s", "start_s", "end_s", "poll_s", "time_limit_s", "account", "nodes", "gpus", "state"]
    )
    wait_s = np.random.default_rng(2).integers(1, 900, len(real))
    jobs = zip(real.submit_s, wait_s, real.duration_s, real.vc, real.gpus, strict=True)
    for row, (submit_s, waited_s, duration_s, vc, gpus) in enumerate(jobs):
        times = np.cumsum([submit_s, waited_s, duration_s])
        rows.writerow([f"j{row}", *times, times[0], 3600, vc, 1, gpus, "COMPLETED"])
    trace = read(file("coded.csv", text.getvalue()))
    assert (trace.format, trace.left_out) == ("drac-coded", {})
    for name in ("submit_s", "gpus", "duration_s", "vc"):
        np.testing.assert_array_equal(getattr(trace.table, name), getattr(real, name), err_msg=name)
    np.testing.assert_array_equal(trace.table.start_s - trace.table.submit_s, wait_s)


def test_helios(file: Callable[..., Path], real: JobTable) -> None:
    text, zone = io.StringIO(), ZoneInfo("Asia/Shanghai")
    rows = csv.writer(text, lineterminator="\n")
    text.write(HELIOS)
    rng, states = np.random.default_rng(1), list(STATES)
    state, wait_s = rng.integers(len(states), size=len(real)), rng.integers(0, 900, len(real))
    for row, (gpus, duration_s, vc) in enumerate(zip(real.gpus, real.duration_s, real.vc, strict=True)):
        submit_s = real.began_s + real.submit_s[row]
        times = np.cumsum([submit_s, wait_s[row], duration_s])
        rows.writerow([
            row, "u1", vc, gpus, 4, -(-gpus // 8), states[state[row]], *(wall(second, zone) for second in times),
            int(duration_s), wait_s[row],
        ])  # fmt: skip
    trace = read(file("cluster_log.csv", text.getvalue()))
    assert (trace.format, trace.left_out) == ("helios", {})
    same(trace.table, real)
    np.testing.assert_array_equal(trace.table.start_s - trace.table.submit_s, wait_s)
    np.testing.assert_array_equal(trace.table.ending, [STATES[states[word]] for word in state])
    np.testing.assert_array_equal(trace.table.nodes, -(-real.gpus // 8))


def test_philly_with_its_attempts(file: Callable[..., Path], real: JobTable) -> None:
    zone = ZoneInfo("America/Los_Angeles")
    rng = np.random.default_rng(2)
    jobs, tries, passed = [], [], []
    for row, (gpus, duration_s, vc) in enumerate(zip(real.gpus, real.duration_s, real.vc, strict=True)):
        status = list(STATUS)[rng.integers(len(STATUS))]
        cuts = np.sort(rng.integers(0, int(duration_s) + 1, rng.integers(0, 3)))
        spans = np.diff([0, *cuts, int(duration_s)])
        begin_s, attempts = real.began_s + real.submit_s[row], []
        for span in spans.tolist():
            hosts = [{"ip": f"m{n}", "gpus": [f"gpu{k}" for k in range(min(8, gpus - 8 * n))]}
                     for n in range(-(-int(gpus) // 8))]  # fmt: skip
            begin_s, end_s = begin_s + 60, begin_s + 60 + span
            attempts.append({"start_time": wall(begin_s, zone), "end_time": wall(end_s, zone), "detail": hosts})
            begin_s = end_s
        jobs.append({
            "status": status, "vc": str(vc), "jobid": f"application_{row}", "attempts": attempts, "user": "u",
            "submitted_time": wall(real.began_s + real.submit_s[row], zone),
        })  # fmt: skip
        tries.append(spans.tolist())
        passed.append([False] * (len(spans) - 1) + [status == "Pass"])
    trace = read(file("cluster_job_log", json.dumps(jobs, indent=4)))
    assert (trace.format, trace.left_out, trace.notes) == ("philly-json", {}, ())
    same(trace.table, real)
    first = np.concatenate([[0], np.cumsum([len(each) for each in tries])])
    wanted = Attempts(first, np.concatenate(tries).astype(float), np.concatenate(passed))
    found = trace.table.attempts
    for name in ("first", "duration_s", "passed"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
