"""Failed attempts out of accounting and logs, through the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.survey.collect import jobs_named
from tests.cli.conftest import Ran

HEADER = "JobID|User|Submit|Start|ElapsedRaw|State|ExitCode|AllocTRES"
ROWS = [
    "7|ada|2026-01-01T00:00:00|2026-01-01T00:00:10|3600|NODE_FAIL|0:0|gres/gpu=8",
    "7|ada|2026-01-01T00:00:00|2026-01-01T02:00:10|7200|COMPLETED|0:0|gres/gpu=8",
    "7.batch||2026-01-01T00:00:00|2026-01-01T02:00:10|7200|FAILED|1:0|",
    "8|bob|2026-01-01T00:00:00|2026-01-01T00:00:10|60|FAILED|1:0|gres/gpu=1",
    "9_2|bob|2026-01-01T00:00:00|2026-01-01T00:00:10|120|OUT_OF_MEMORY|0:9|gres/gpu=1",
    "10|eve|2026-01-01T00:00:00|2026-01-01T00:00:10|60|CANCELLED by 0|0:0|gres/gpu=1",
]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An accounting file, and a directory with logs beside it."""
    (tmp_path / "sacct.txt").write_text("\n".join([HEADER, *ROWS]) + "\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "slurm-8.out").write_text("Traceback (most recent call last):\nIndexError: list index out of range\n")
    (logs / "slurm-77.out").write_text("SyntaxError: invalid syntax\n")
    return tmp_path


def reasons(ran: Ran) -> dict[Any, Any]:
    return {row["reason"]: row for row in ran.json["reasons"]}


def test_accounting_alone_knows_what_the_scheduler_knows(perdure: Callable[..., Ran], site: Path) -> None:
    ran = perdure("why", "--report", str(site / "sacct.txt"), "--json")
    found = reasons(ran)
    assert set(found) == {"node_loss", "host_oom", "unknown"}
    node = found["node_loss"]
    assert (node["trials"], node["lost_gpu_h"], node["retries"], node["saved"]) == (1, 8.0, 1, 1)
    assert ran.json["attempts"] == 5
    assert ran.json["total"]["trials"] == 3


def test_a_log_says_more(perdure: Callable[..., Ran], site: Path) -> None:
    (site / "logs" / "accounting").write_text((site / "sacct.txt").read_text())
    ran = perdure("why", "--report", str(site / "logs"), "--json")
    assert reasons(ran)["index"]["trials"] == 1
    assert (ran.json["logs"], ran.json["logs_of_no_failure"]) == (1, 1)


def test_logs_alone_are_a_failure_each(perdure: Callable[..., Ran], site: Path) -> None:
    (site / "logs" / "calm.txt").write_text("all is well\n")
    ran = perdure("why", "--report", str(site / "logs"), "--json")
    assert {name: row["trials"] for name, row in reasons(ran).items()} == {"index": 1, "syntax": 1}
    assert ran.json["logs_of_no_failure"] == 1


def test_the_gpu_hours_of_logs_alone_are_unknown(perdure: Callable[..., Ran], site: Path) -> None:
    ran = perdure("why", "--report", str(site / "logs"))
    assert [line.split()[4] for line in ran.out.splitlines()[1:4]] == ["-", "-", "-"]
    ran = perdure("why", "--report", str(site / "logs"), "--json")
    assert [row["lost_gpu_h"] for row in (*ran.json["reasons"], ran.json["total"])] == [None, None, None]


def test_the_table_is_for_people_and_pictures_are_drawn(perdure: Callable[..., Ran], site: Path) -> None:
    ran = perdure("why", "--report", str(site / "sacct.txt"), "--out", str(site / "pictures"))
    assert ran.code == 0
    assert ran.out.splitlines()[1].split()[:6] == ["node_loss", "1", "1", "1", "8.0", "99.4"]
    assert "3 of 5 attempts failed" in ran.out
    for name in ("lost", "rtf"):
        assert (site / "pictures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("text", ["", "hello\n", HEADER + "\n"])
def test_what_is_no_accounting_is_told_in_one_line(perdure: Callable[..., Ran], tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    ran = perdure("why", "--report", str(path))
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "x.txt" in ran.err


def test_a_missing_path_is_told(perdure: Callable[..., Ran], tmp_path: Path) -> None:
    ran = perdure("why", "--report", str(tmp_path / "none"))
    assert (ran.code, ran.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("log", "job"),
    [("slurm-8.out", "8"), ("a/9_2.err", "9_2"), ("train_7_rank3.log", "7"), ("2026-01-01-run.log", ""), ("x8y", "8")],
)
def test_a_log_belongs_to_the_job_in_its_name(log: str, job: str) -> None:
    assert jobs_named(["7", "8", "9", "9_2"], [log]) == ({job: [log]} if job else {})


def test_failures_that_were_put_back_are_counted_where_slurm_still_tells_of_them(
    perdure: Callable[..., Ran], tmp_path: Path
) -> None:
    """Seen on a real Slurm: the row of a failed attempt becomes REQUEUED, with its exit code."""
    rows = [
        "7|ada|2026-01-01T00:00:00|2026-01-01T00:00:10|3600|REQUEUED|1:0|gres/gpu=8",
        "7|ada|2026-01-01T01:00:00|2026-01-01T02:00:10|60|REQUEUED|0:9|gres/gpu=8",
        "7|ada|2026-01-01T03:00:00|2026-01-01T03:00:10|7200|COMPLETED|0:0|gres/gpu=8",
        "8|bob|2026-01-01T00:00:00|2026-01-01T00:00:10|60|REQUEUED|0:0|gres/gpu=1",
        "8|bob|2026-01-01T00:10:00|2026-01-01T00:10:10|60|COMPLETED|0:0|gres/gpu=1",
    ]
    (tmp_path / "sacct.txt").write_text("\n".join([HEADER, *rows]) + "\n")
    ran = perdure("why", "--report", str(tmp_path / "sacct.txt"), "--json")
    total = ran.json["total"]
    assert (total["trials"], total["retries"], total["saved"], total["lost_gpu_h"]) == (
        2,
        2,
        2,
        pytest.approx(8.1333, 0.01),
    )
    assert (ran.json["attempts"], ran.json["put_back"]) == (5, 1)
    told = perdure("why", "--report", str(tmp_path / "sacct.txt")).out
    assert "1 attempts were put back into the queue; Slurm no longer knows how they ended" in told
