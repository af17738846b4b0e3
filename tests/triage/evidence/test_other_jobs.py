"""What Slurm said of another job, or of an earlier start, is no cause of this attempt's end."""

import time
from datetime import UTC, datetime

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.evidence.other_jobs import without_other_jobs
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Label, Verdict

START_S = datetime(2026, 11, 24, 14, 0).timestamp()
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer\n"
EARLIER, DURING = "2026-11-20T03:00:00", "2026-11-24T14:00:30"


def verdict(line: str, log: str = RESET, job_id: str = "5000", end_s: float = START_S + 60) -> Verdict:
    attempt = Attempt(AttemptId("c", job_id, 1), AttemptState.FAILED, ("n1",), START_S, end_s, exit_code=1)
    return judge(f"step 1\nslurmstepd: error: *** {line} ***\n{log}".encode(), attempt)


@pytest.mark.parametrize(
    "line",
    [
        f"JOB 4711 ON node9 CANCELLED AT {EARLIER} DUE TO TIME LIMIT",
        f"JOB 4711 ON node9 CANCELLED AT {DURING} DUE TO TIME LIMIT",  # it ended while this one ran
        f"JOB 5000 ON node9 CANCELLED AT {EARLIER} DUE TO PREEMPTION",  # this job's start before
        f"JOB 5001 ON node9 CANCELLED AT {EARLIER}",
        f"STEP 4711.0 ON node1 CANCELLED AT {EARLIER}",
        f"STEP 4711.batch ON node1 CANCELLED AT {EARLIER} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
    ],
)
def test_the_end_of_another_job_is_not_this_one_s(line: str) -> None:
    alone = judge(f"step 1\n{RESET}".encode(), None)
    assert verdict(line).category == alone.category == "net"
    found = verdict(line, log="ValueError: bad shape\n")
    assert "CANCELLED" not in " ".join(evidence.text for evidence in found.evidence)


@pytest.mark.parametrize(
    ("line", "job_id"),
    [
        (f"JOB 5000 ON node9 CANCELLED AT {DURING} DUE TO TIME LIMIT", "5000"),
        (f"JOB 5003 ON node9 CANCELLED AT {DURING} DUE TO TIME LIMIT", "5000_3"),  # Slurm's own number of the task
        (f"JOB 5001 ON node9 CANCELLED AT {DURING} DUE TO TIME LIMIT", "5000+1"),
        ("JOB 5000 ON node9 CANCELLED AT 2026-13-41T99:00:00 DUE TO TIME LIMIT", "5000"),  # no time at all
    ],
)
def test_its_own_end_is(line: str, job_id: str) -> None:
    found = verdict(line, log="", job_id=job_id)
    assert (found.category, found.label) == ("time_limit", Label.DETERMINISTIC)


def test_a_log_by_itself_is_believed() -> None:
    line = f"slurmstepd: error: *** JOB 4711 ON node9 CANCELLED AT {EARLIER} DUE TO TIME LIMIT ***\n"
    assert judge(line.encode()).category == "time_limit"


@pytest.mark.parametrize("zone", ["EST5", "UTC0", "JST-9"])
def test_words_on_an_end_count_where_they_may_be_of_this_start_in_any_zone(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows in which zone they were written: this machine's, or UTC."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        start_s = datetime(2026, 11, 24, 14, 0).timestamp()
        attempt = Attempt(AttemptId("c", "5000", 1), AttemptState.FAILED, ("n1",), start_s, start_s + 60)
        for said in (datetime.fromtimestamp(start_s + 30), datetime.fromtimestamp(start_s + 30, UTC)):
            line = f"*** JOB 5000 ON n1 CANCELLED AT {said:%Y-%m-%dT%H:%M:%S} DUE TO TIME LIMIT ***"
            hits = own_rules().hits(LogText.of(f"slurmstepd: error: {line}\n".encode()))
            assert without_other_jobs(hits, attempt) == list(hits)
            assert hits
    finally:
        monkeypatch.undo()
        time.tzset()
