"""What ``perdure exec`` tells the service, over a real socket; it waits for no service."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ClusterBusy, InputError
from perdure.hangs.rank_state import Life, RankState
from perdure.job import service_report
from perdure.job.identity import Start, Task
from perdure.job.service_report import ServiceReporter, teller
from tests.copying import replace
from tests.job.launching import finish, python, start

START, TASK = Start("7", 3, "", Path("/fence")), Task("n1", "n1", 1)


@pytest.fixture
def service() -> Iterator[tuple[dict[str, str], list[tuple[str, str | Any, Any]]]]:
    """A service that takes whatever is posted, and what it was sent."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posted.append((self.path, self.headers["Authorization"], body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"id": body["id"]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield {"PERDURE_URL": f"http://127.0.0.1:{server.server_port}", "PERDURE_TOKEN": "word"}, posted
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_failure_is_raised_with_whom_it_is_about(
    tmp_path: Path, service: tuple[dict[str, str], list[tuple[str, str | Any, Any]]]
) -> None:
    reach, posted = service
    about = {"RANK": "3", "SLURMD_NODENAME": "n7"}
    assert finish(start(tmp_path, python("raise SystemExit(5)"), variables=reach | about))[0] == 5
    ((path, word, record),) = posted
    assert (path, word) == ("/api/v1/exceptions", "Bearer word")
    assert (record["type"], record["severity"], record["note"]) == ("process.exit", 1, "exit code 5")
    assert record["subject"] == {"job": "7", "node": ["n7"], "rank": [3], "resource": ""}
    assert record["incarnation"] == 1
    assert "time" not in record  # it counts from when it arrives: this machine's clock may be off


def test_what_went_well_is_not_raised(
    tmp_path: Path, service: tuple[dict[str, str], list[tuple[str, str | Any, Any]]]
) -> None:
    reach, posted = service
    assert finish(start(tmp_path, python("pass"), variables=reach))[0] == 0
    assert posted == []


HANGS = """
import time
from perdure.job import beat
for step in range(20):
    beat(step)
    time.sleep(0.04)
time.sleep(60)
"""


def test_a_hang_is_told_when_it_is_noticed_and_when_it_is_ended(
    tmp_path: Path, service: tuple[dict[str, str], list[tuple[str, str | Any, Any]]]
) -> None:
    reach, posted = service
    settings = "ExecOptions(hang=HangRule(after_s=1.5, min_gaps=3, soft_s=0.2), look_s=0.02, poll_s=0.02, beat_s=0.0)"
    assert finish(start(tmp_path, python(HANGS), settings=settings, variables=reach))[0] == 75
    assert [record["type"] for _, _, record in posted] == ["app.hang", "process.hang"]
    assert "last at step 19" in posted[0][2]["note"]


def test_a_hang_is_told_of_the_ranks_that_stopped_first_and_their_nodes() -> None:
    """Not of the task whose launcher tells of it."""
    told = []
    raiser = ServiceReporter(partial(lambda _, **about: told.append(about), nodes=["n0"], ranks=[0]))
    culprits = [RankState(rank, node, Life.ELSEWHERE) for rank, node in [(4, "n2"), (5, "n2"), (6, "n3")]]
    for about in (culprits, []):
        raiser.raise_("app.hang", severity=3, note="", about=about)
        raiser.finish()
    assert [(each["nodes"], each["ranks"]) for each in told] == [(["n2", "n3"], [4, 5, 6]), (["n0"], [0])]


def test_a_service_that_is_away_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(service_report, "WAIT_S", 0.01)
    raiser = ServiceReporter(lambda *_, **__: never.wait(60))
    raiser.raise_("process.exit", severity=1, note="")
    raiser.finish()
    never.set()


def test_a_service_that_refuses_changes_nothing_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: object, **__: Any) -> None:
        raise ClusterBusy("there", "does not answer", "Wait")

    raiser = ServiceReporter(refuse)
    raiser.raise_("process.exit", severity=1, note="")
    raiser.finish()
    said = "perdure exec: the service was not informed of process.exit: there: does not answer. Wait.\n"
    assert capsys.readouterr().err == said


def test_a_start_that_the_service_has_not_seen_yet_is_told_of_its_job() -> None:
    told = []

    def tell(*_: object, **more: Any) -> None:
        told.append(more.get("incarnation", 3))
        if told == [3]:
            raise InputError("incarnation", "3 has never started; the latest is 2", "Leave it out")

    raiser = ServiceReporter(tell)
    raiser.raise_("process.exit", severity=1, note="")
    raiser.finish()
    assert told == [3, 0]


def test_without_a_service_nobody_is_told() -> None:
    assert teller(START, TASK, {"PERDURE_TOKEN": "word"}) is None


def test_a_restart_count_is_not_told_as_the_incarnation_that_the_service_knows() -> None:
    reach = {"PERDURE_URL": "http://localhost"}
    assert teller(START, TASK, reach).keywords["incarnation"] == 3
    assert teller(replace(START, name="srun:1"), TASK, reach).keywords["incarnation"] == 0
    known = replace(START, name="srun:1", start_s=1790000000)
    assert teller(known, TASK, reach).keywords["incarnation"] == 1790000000
