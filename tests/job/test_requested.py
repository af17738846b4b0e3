"""What the service asks of a running job: read, heeded by real processes, over when its cause is."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from perdure import client
from perdure.job import requested
from perdure.job.identity import Start, service_job_of, task_of
from perdure.job.listening import Listener
from perdure.job.requested import MOVE, PAUSE, STALE_S, Request, Requests, write
from tests.job.launching import children_of, finish, is_stopped, on_linux, pass_time, python, start, wait_until

DOWN = Request("down/job.pause/7", PAUSE, "because of storage.down of pfs:/scratch")
QUOTA = Request("quota/job.move/7", MOVE)


def test_what_begins_and_what_is_over(tmp_path: Path) -> None:
    path = tmp_path / "asked.json"
    requests = Requests(path)
    assert requests.look(0.0) == ((), ())
    write(path, [DOWN, QUOTA], 1)
    assert requests.look(1.0) == ((DOWN, QUOTA), ())
    assert requests.kinds() == {PAUSE, MOVE}
    write(path, [QUOTA], 2)
    assert requests.look(2.0) == ((), (DOWN,))
    path.write_text("{")
    assert requests.look(3.0) == ((), ())
    assert requests.kinds() == {MOVE}


def test_what_nobody_renews_is_asked_no_more(tmp_path: Path) -> None:
    path = tmp_path / "asked.json"
    requests = Requests(path)
    write(path, [DOWN], 1)
    requests.look(0.0)
    assert requests.look(STALE_S) == ((), ())
    write(path, [DOWN], 2)
    assert requests.look(STALE_S + 1) == ((), ())
    assert requests.look(2 * STALE_S + 2) == ((), (DOWN,))


def test_what_another_user_wrote_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "asked.json"
    write(path, [DOWN], 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        assert Requests(path).look(0.0) == ((), ())
    assert Requests(path).look(0.0) == ((DOWN,), ())


def test_without_a_launcher_nothing_is_asked() -> None:
    assert requested.asked() == frozenset()
    assert not requested.paused()


def test_a_task_of_an_array_is_known_by_the_arrays_name() -> None:
    array = {"SLURM_JOB_ID": "71", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3"}
    assert service_job_of(array) == "70_3"
    assert service_job_of(array | {"PERDURE_JOB_ID": "8"}) == "8"


def test_a_rank_is_the_program_s_own_before_mpis_and_slurms() -> None:
    """Under mpirun Slurm's number is that of the script."""
    told = {"SLURM_PROCID": "0", "PMI_RANK": "1", "OMPI_COMM_WORLD_RANK": "2", "RANK": "3"}
    local = {"SLURM_LOCALID": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "5", "LOCAL_RANK": "6"}
    assert [task_of(dict(list(told.items())[:n])).rank for n in range(5)] == [None, 0, 1, 2, 3]
    assert [task_of(dict(list(local.items())[:n])).local_rank for n in range(4)] == [None, 4, 5, 6]


class Service(ThreadingHTTPServer):
    """A service that asks job 7 for what a test says, and streams signs of life."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exceptions = {}
        self.reach = {"PERDURE_URL": f"http://127.0.0.1:{self.server_port}", "PERDURE_TOKEN": "word"}

    def ask(self, kind: str, incarnation: int = 1) -> None:
        """Raise a fault of what jobs share, and tell job 7."""
        record = {"id": f"down/job.{kind}/7", "type": f"job.{kind}", "cause": "down", "incarnation": incarnation}
        self.exceptions["down"] = {"id": "down", "type": "storage.down", "outcome": ""}
        self.exceptions[record["id"]] = record | {"outcome": "", "note": "because of storage.down", "annotations": []}

    def all_clear(self) -> None:
        self.exceptions["down"]["outcome"] = "recovered"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        path = self.path.removeprefix("/api/v1")
        self.send_response(200)
        self.end_headers()
        if path.startswith("/events/stream"):
            known = None
            for count in range(3000):
                event = "" if known in (None, len(self.server.exceptions)) else "event: exception_changed\ndata: {}\n"
                known = len(self.server.exceptions)
                self.wfile.write(f"id: {count}\n{event}\n".encode())
                time.sleep(0.02)
        elif path.startswith("/exceptions?"):
            told = [record for record in list(self.server.exceptions.values()) if "cause" in record]
            self.wfile.write(json.dumps({"items": told}).encode())
        else:
            self.wfile.write(json.dumps(self.server.exceptions[path.removeprefix("/exceptions/")]).encode())

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            return  # the launcher has ended


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    thread = threading.Thread(target=service.serve_forever, args=(0.01,))
    thread.start()
    yield service
    service.shutdown()
    thread.join()
    service.server_close()


COUNTS = """
import os, sys, time
from pathlib import Path
from perdure.job import beat
print(os.getpid(), flush=True)
count, end = Path(sys.argv[1]), Path(sys.argv[2])
step = 0
while not end.exists():
    beat(step)
    count.write_text(str(step))
    step += 1
    time.sleep(0.01)
"""
SETTINGS = (
    "ExecOptions(hang=HangRule(after_s={after}, min_gaps=3, soft_s=0.1), look_s=0.02, poll_s=0.02, beat_s=0.0{more})"
)


def settings(more: str, after: float = 0.5) -> str:
    return SETTINGS.format(after=after, more=more)


def steps(path: Path) -> int:
    return int(path.read_text() or 0) if path.exists() else 0


@on_linux
def test_a_program_that_is_to_pause_stands_still_until_the_cause_is_over(tmp_path: Path, service: Service) -> None:
    """So long that it would be a hang."""
    count, end = tmp_path / "count", tmp_path / "end"
    argv = ["sh", "-c", '"$@"; exit $?', "sh", *python(COUNTS, count, end)]
    process = start(
        tmp_path / "fence",
        argv,
        settings=settings(f", pause_signal=signal.SIGSTOP, clock=set_forward({str(tmp_path / 'clock')!r})", after=1.0),
        variables=service.reach,
    )
    pid = int(process.stdout.readline())
    wait_until(lambda: steps(count) > 50)  # so that its pace is known
    service.ask(PAUSE)
    asked = "perdure exec: the job is asked to pause, because of storage.down"
    assert process.stderr.readline() == f"{asked}: the program is stopped until that is over\n"
    wait_until(lambda: is_stopped(pid))
    stood = steps(count)
    process.send_signal(signal.SIGCONT)  # as after a freeze of the machine, which ends no pause
    pass_time(tmp_path / "clock", tmp_path / "fence")
    assert steps(count) == stood
    service.all_clear()
    wait_until(lambda: steps(count) > stood + 20)
    end.touch()
    code, _, err = finish(process)
    assert (code, err) == (0, "perdure exec: the program goes on: that is over\n")


@on_linux
def test_one_that_stands_still_and_is_told_to_end_ends(tmp_path: Path, service: Service) -> None:
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(5)); print('ready', flush=True)"
    process = start(
        tmp_path,
        python(f"{code}; time.sleep(60)"),
        settings=settings(", pause_signal=signal.SIGSTOP"),
        variables=service.reach,
    )
    assert process.stdout.readline() == "ready\n"
    service.ask(PAUSE)
    wait_until(lambda: any(map(is_stopped, children_of(process.pid))))
    process.terminate()
    assert finish(process)[0] == 5


@on_linux
def test_another_signal_goes_to_those_that_listen(tmp_path: Path, service: Service) -> None:
    code = "import signal, sys, time; signal.signal(10, lambda *_: sys.exit(4)); print('ready', flush=True)"
    argv = ["sh", "-c", '"$@"; exit $?', "sh", *python(f"{code}; time.sleep(60)")]
    process = start(tmp_path, argv, settings=settings(", pause_signal=signal.SIGUSR1"), variables=service.reach)
    assert process.stdout.readline() == "ready\n"
    service.ask(PAUSE)
    ended, _, err = finish(process)
    assert (ended, "SIGUSR1 sent to 1 of its processes" in err) == (4, True)


ASKS = """
import time
from perdure.job import asked, paused, requested
requested.LOOK_S = 0.01
print("begins", flush=True)
while not paused(): time.sleep(0.01)
print(*sorted(asked()), flush=True)
while paused(): time.sleep(0.01)
"""


def test_unless_its_user_says_otherwise_the_program_may_ask_and_is_left_alone(tmp_path: Path, service: Service) -> None:
    service.ask("throttle")  # before it began: all that is asked is looked at
    process = start(tmp_path, python(ASKS), settings=settings(""), variables=service.reach)
    assert process.stdout.readline() == "begins\n"
    service.ask(PAUSE)
    assert process.stdout.readline() in ("pause\n", "pause throttle\n")
    asked = "perdure exec: the job is asked to {}, because of storage.down\n"
    assert {process.stderr.readline() for _ in range(2)} == {asked.format("throttle"), asked.format("pause")}
    service.all_clear()
    assert finish(process)[0] == 0


@pytest.mark.parametrize("over", ["down", f"down/job.{PAUSE}/7"])
def test_what_is_over_by_its_cause_or_by_itself_is_not_asked(tmp_path: Path, service: Service, over: str) -> None:
    listener = Listener(client.Service.of(service.reach), "7", Start("7", 1, "", tmp_path), tmp_path / "asked")
    service.ask(PAUSE)
    assert [request.kind for request in listener._asked()] == [PAUSE]
    service.exceptions[over]["outcome"] = "withdrawn"
    assert list(listener._asked()) == []


def test_what_was_asked_of_an_earlier_start_is_not_asked_of_this_one(tmp_path: Path, service: Service) -> None:
    service.ask(PAUSE, incarnation=9)
    process = start(
        tmp_path, python("import time; time.sleep(0.5)"), settings=settings(", pause_signal=signal.SIGTERM"),
        variables=service.reach,
    )  # fmt: skip
    assert finish(process)[::2] == (0, "")


def test_without_its_service_a_program_runs_as_ever(tmp_path: Path) -> None:
    nowhere = {"PERDURE_URL": "http://127.0.0.1:9", "PERDURE_TOKEN": "word"}
    process = start(
        tmp_path, python("print('done')"), settings=settings(", pause_signal=signal.SIGSTOP"), variables=nowhere
    )
    assert finish(process) == (0, "done\n", "")


def test_what_is_asked_is_renewed_by_each_look_at_a_service_that_answers(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "asked.json"
    listener = Listener(client.Service.of(service.reach), "7", Start("7", 1, "s", tmp_path), path)
    requests = Requests(path)
    service.ask(PAUSE)
    for now in (0.0, STALE_S - 1, 2 * STALE_S - 2, 3 * STALE_S - 3):
        listener._look()
        requests.look(now)
        assert requests.kinds() == {PAUSE}
    requests.look(4 * STALE_S)
    assert requests.kinds() == frozenset()  # nothing has been heard of the service since
