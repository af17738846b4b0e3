"""Two hundred failing jobs, while connections stay half open, heartbeats are forged, the disk fills, the service dies.

None of their failures is lost, none is recovered twice, none is stopped that may pass; and decisions stay quick. Whose
log was lost to the full disk is tried once more.
"""

import os
import pwd
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.job.files import JobFiles
from perdure.job.heartbeat import Heartbeat, HeartbeatSource, write
from tests.attacks.service import Attacked, attacked, await_
from tests.attacks.test_connections import HALVES
from tests.attacks.test_full_disk import fill, give_back, needs_mount, readiness, small_disk
from tests.attacks.test_heartbeats import MALLORY
from tests.copying import replace

JOBS, USERS, NODES, GPUS = 200, 20, 4, 8
SLOWEST_S = 30.0  # of a hundred decisions, all but one
FULL_S = 8.0
ENDS_S = 400.0
BUDGETS = """
[retry]
cluster_floor_per_hour = 1000
per_node_per_hour = 1000
[caps]
floor_per_hour = 1000
"""  # how many jobs fail on the full disk is the machine's speed: whoever is over an hour's budget would wait for it

CLUSTER = ("--nodes", str(NODES), "--gpus", str(GPUS))
HOPELESS = "echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2; exit 1"
PASSES = (
    '[ "$(wc -l < {starts})" -gt 1 ] && exit 0; '
    "echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2; exit 1"
)


def script(starts: Path, number: int) -> str:
    """It counts its own starts, on a disk that has room."""
    fails = PASSES.format(starts=starts) if passes(number) else HOPELESS
    return f"echo start >> {starts}; sleep {2 + number % 5}; {fails}"


def passes(number: int) -> bool:
    """One in four at its second start."""
    return number % 4 == 0


@contextmanager
def going_on(step: Callable[[], None], every_s: float) -> Iterator[None]:
    """Take the step again and again until the block is left, whatever becomes of it."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(every_s):
            with suppress(OSError):
                step()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class HalfOpen:
    """Hundreds of connections that never say the whole of it; those that were closed are opened anew."""

    def __init__(self, most: int = 700) -> None:
        self.most = most
        self.service: Attacked | None = None
        self._open: list[socket.socket] = []

    def keep(self) -> None:
        self._open = self._open[-self.most :]
        for number in range(100):
            assert self.service is not None
            half = self.service.connect(2)
            self._open.append(half)
            half.sendall(HALVES[number % 3])

    def close(self) -> None:
        for half in self._open:
            half.close()


class Forger:
    """Each agent beats; a user's files speak for everybody's jobs on each node, and then fall silent."""

    def __init__(self, share: Path, fences: Path) -> None:
        self._share, self._fences, self._count = share, fences, 0
        share.mkdir(mode=0o755)

    def beat(self) -> None:
        self._count += 1
        for node in (f"n{i}" for i in range(1, NODES + 1)):
            alive = Heartbeat(HeartbeatSource.AGENT, node, node, 1, self._count, time.time(), 2.0)
            write(self._share / f"{node}.json", alive)
            if self._count < 15:
                for job_id in range(1, JOBS, 7):
                    self._forge(alive, str(job_id))

    def _forge(self, beat: Heartbeat, job_id: str) -> None:
        tracks = JobFiles(self._fences / job_id / "attempts" / "1" / f"{beat.node}-7")
        tracks.make()
        write(tracks.heartbeat, replace(beat, source=HeartbeatSource.JOB, pid=7, job_id=job_id, token=1))
        os.chown(tracks.heartbeat, pwd.getpwnam(MALLORY).pw_uid, -1)


@contextmanager
def up(home: Path, config: Path, attackers: HalfOpen) -> Iterator[Attacked]:
    with attacked(home, *CLUSTER, "--config", str(config), descriptors=1024) as service:
        attackers.service = service
        yield service


def kill(service: Attacked) -> None:
    service.process.send_signal(signal.SIGKILL)
    service.process.wait(20)


def standing(service: Attacked) -> Counter[Any]:
    """How many jobs stand so."""
    status, found = service.ask("GET", "/jobs?limit=200")
    return Counter(job["state"] for job in found["items"]) if status == 200 else Counter()


def waits(service: Attacked) -> list[Any]:
    """Why those that wait do."""
    pending = service.ask("GET", "/jobs?state=pending&limit=200")[1]["items"]
    return [service.ask("GET", f"/jobs/{job['job_id']}")[1]["exceptions"] for job in pending[:3]]


def undecided(service: Attacked) -> Any:
    status, found = service.ask("GET", "/exceptions?state=raised&state=in_chain&limit=200")
    return status != 200 or found["items"]


SETTLED = {"completed": sum(map(passes, range(JOBS))), "failed": sum(not passes(number) for number in range(JOBS))}


def delays(found: Any) -> list[Any]:
    """Seconds from the end of each failed attempt to the decision on it."""
    ends = {a["incarnation"]: a["end_s"] for a in found["attempts"] if a["state"] == "failed"}
    decided = {e["incarnation"]: e["record"]["verdicts"] for e in found["exceptions"]}
    assert ends.keys() == decided.keys()  # each failure is known
    return [min(v["time"] for v in decided[i] if v["verdict"] == "handled") - ends[i] for i in ends]


@needs_mount
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_failures_among_all_attacks_at_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    starts.mkdir()
    forger = Forger(tmp_path / "agents", tmp_path / "fences")
    config = tmp_path / "config.toml"
    config.write_text(f'[coordination]\nagents = "{tmp_path}/agents"\nfences = ["{tmp_path}/fences"]\n{BUDGETS}')
    with (
        small_disk(tmp_path / "disk", "256m", 20_000) as disk,
        going_on(forger.beat, 1.0),
        closing(HalfOpen()) as half_open,
    ):
        with up(disk, config, half_open) as service, going_on(half_open.keep, 3.0):
            jobs = [
                service.submit(script(starts / str(n), n), user=f"user{n % USERS}", gpus_per_node=1)
                for n in range(JOBS)
            ]
            fill(disk)
            await_(lambda: readiness(service)[0] == 503, 60, lambda: service.log[-2000:])
            time.sleep(FULL_S)
            give_back(disk)
            await_(lambda: readiness(service)[0] == 200, 60, lambda: service.log[-2000:])
            kill(service)
        with up(disk, config, half_open) as service, going_on(half_open.keep, 3.0):
            time.sleep(5.0)
            kill(service)
        with up(disk, config, half_open) as service, going_on(half_open.keep, 3.0):
            left = lambda: (standing(service), waits(service))  # noqa: E731
            await_(lambda: standing(service) == SETTLED, ENDS_S, left, every_s=1.0)
            await_(lambda: not undecided(service), every_s=1.0)
            found = [service.ask("GET", f"/jobs/{job_id}")[1] for job_id in jobs]
            nodes = service.ask("GET", "/nodes")[1]["items"]
            said = service.log
    for number, each in enumerate(found):
        begun = (starts / str(number)).read_text().count("start")
        assert begun == len(each["attempts"]), each
        decisions = [e["decision"] for e in sorted(each["exceptions"], key=lambda e: e["incarnation"])]
        assert decisions in ([["retry"], ["probe"]] if passes(number) else [["stop"], ["probe", "stop"]]), each
    assert {node["state"] for node in nodes} == {"up"}  # forged silence took none of them
    took = sorted(delay for each in found for delay in delays(each))
    median_s, slowest_s = took[len(took) // 2], took[int(0.99 * len(took))]
    sys.stdout.write(f"{len(took)} decisions: half within {median_s:.1f} s, 99 of 100 within {slowest_s:.1f} s\n")
    assert slowest_s < SLOWEST_S
    assert "Traceback" not in said
