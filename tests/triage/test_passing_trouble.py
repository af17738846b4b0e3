"""A trouble that passes, told near a line that would stop its job, leaves it to a probing retry."""

import pytest

from perdure.triage.judge import judge
from perdure.triage.passing_trouble import NEAR_LINES
from perdure.triage.verdict import Label

TRACE = 'Traceback (most recent call last):\n  File "read.py", line 3, in <module>\n    json.load(f)\n'
DAMAGED = TRACE + "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
CODE = TRACE + "NameError: name 'foo' is not defined\n"
TROUBLES = [
    "ERROR fetch: HTTP status 503 Service Unavailable",
    "urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='data.example.org', port=443): Read timed out.",
]


def _labelled(log: str) -> Label:
    return judge(log.encode()).label


def test_without_a_trouble_a_damaged_file_stops_its_job() -> None:
    assert _labelled(DAMAGED) is Label.DETERMINISTIC


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_service_that_failed_nearby_takes_the_stop_away(trouble: str) -> None:
    verdict = judge(f"{DAMAGED}{trouble}\n".encode())
    assert (verdict.label, verdict.category) == (Label.UNSURE, "data")
    assert any("line 5 tells of a trouble that may pass" in each.text for each in verdict.evidence)


@pytest.mark.parametrize(
    "remark",
    [
        "2026-01-01 10:00:00,000 - fetch - INFO - HTTP status 503 Service Unavailable",
        "HTTP Error 503 while requesting HEAD https://data.example.org/info, ignored",
    ],
)
def test_what_was_dealt_with_is_no_trouble(remark: str) -> None:
    assert _labelled(f"{DAMAGED}{remark}\n") is Label.DETERMINISTIC


def test_a_trouble_far_away_is_no_witness() -> None:
    between = "".join(f"loss {n}\n" for n in range(NEAR_LINES + 1))
    assert _labelled(f"{DAMAGED}{between}{TROUBLES[0]}\n") is Label.DETERMINISTIC


def test_wrong_code_stops_its_job_whatever_services_did() -> None:
    assert _labelled(f"{CODE}{TROUBLES[0]}\n") is Label.DETERMINISTIC


def test_only_the_exception_that_python_ignored_is_passed_over() -> None:
    ignored = f"Exception ignored in: <function close at 0x7f>\n{TRACE}{TROUBLES[1]}\n"
    assert _labelled(ignored + DAMAGED) is Label.DETERMINISTIC
    assert _labelled(f"{ignored}{DAMAGED}{TROUBLES[1]}\n") is Label.UNSURE


def test_a_trouble_that_the_job_got_over_is_no_witness() -> None:
    steps = "".join(f"step {n} loss 0.5\n" for n in range(1, 20))
    warned = "WARNING s3 returned HTTP status 503 Service Unavailable\n"
    assert _labelled(warned + DAMAGED) is Label.UNSURE
    assert _labelled(warned + steps + DAMAGED) is Label.DETERMINISTIC
