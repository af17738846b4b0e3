"""A service that had answered the job before is down for now; one that never did may be out of reach for good."""

import pytest

from perdure.triage.judge import judge
from perdure.triage.verdict import Verdict

LOST = "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known> for https://data.mirror.org/b.tar\n"
RAISED = 'Traceback (most recent call last):\n  File "fetch.py", line 3, in <module>\n    run()\n'


def said(before: str) -> Verdict:
    return judge(f"{before}{RAISED}{LOST}".encode())


def is_told(verdict: Verdict) -> bool:
    return any(line.rule == "answered-before" for line in verdict.evidence)


@pytest.mark.parametrize(
    "answer",
    [
        "downloaded https://data.mirror.org/a.tar (3 MB)\n",
        "GET https://data.mirror.org/a.tar 200\n",
        "connected to data.mirror.org:443\n",
    ],
)
def test_an_earlier_answer_speaks_for_a_retry(answer: str) -> None:
    verdict = said(answer)
    assert is_told(verdict)
    assert verdict.p_transient > said("started\n").p_transient


@pytest.mark.parametrize(
    "line",
    [
        "",
        "downloaded https://other.mirror.org/a.tar\n",
        "could not be downloaded: https://data.mirror.org/a.tar\n",
        "mirror: https://data.mirror.org\n",
        "error 200 connected to data.mirror.org\n",
    ],
)
def test_another_host_or_no_answer_says_nothing(line: str) -> None:
    assert not is_told(said(line))


def test_names_of_files_are_no_hosts() -> None:
    log = "saved fetch.py\nfetch.py: Connection timed out\n"
    assert not is_told(judge(log.encode()))
