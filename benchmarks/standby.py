"""How soon a second service answers after the first one was killed, on one PostgreSQL.

    python -m benchmarks.standby [--kills 10]

Two processes of `perdure up`, one of which stands by, on a database server of its own. While a client raises `RATE`
exceptions a second, the leader is killed with signal 9; measured is the time from there until the other one is ready
(``/readyz``) and acknowledges an exception. Then another one stands by, and so on. Every acknowledged exception is
looked for at the end. Prints the median and the most; exit code 1 where one took longer than `BAR_S`, or one is lost.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from perdure.errors import PerdureError
from tests.e2e.test_standby import JOB, Up, until
from tests.service import postgres

BAR_S, RATE = 5.0, 20


class Load:
    """Raises exceptions about one job with whoever leads, and remembers which were acknowledged, and when."""

    def __init__(self, up: Up, job: str) -> None:
        self._up, self._job = up, job
        self._over = threading.Event()
        self.kept: dict[str, float] = {}  # id, instant of the acknowledgement
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        i = 0
        while not self._over.wait(1 / RATE):
            record = {"id": f"load-{i}", "type": f"app.load{i}", "severity": 6, "subject": {"job": self._job}}
            try:
                name = self._up.client().post("/exceptions", record)["id"]
            except PerdureError:
                continue  # the same one again
            self.kept[name] = time.monotonic()
            i += 1


def takeover_s(leader: Up, other: Up, load: Load) -> float:
    """Seconds from the leader's death until the other one is ready and has acknowledged something."""
    leader.process.kill()
    killed_s = time.monotonic()
    leader.process.wait()
    until(other.is_ready, other)
    until(lambda: any(at > killed_s for at in list(load.kept.values())), other)
    ready_s = time.monotonic()
    return ready_s - killed_s


def measure(home: Path, database: str, kills: int) -> tuple[list[float], int]:
    """The times of all kills, and how many of the acknowledged exceptions are not known at the end."""
    leader = Up(home, database, "up-0")
    ups = [leader]
    try:
        until(leader.is_ready, leader)
        job = leader.client().post("/jobs", {**JOB, "argv": ["sleep", "600"]})["job_id"]
        until(lambda: _is_known(leader, job), leader)
        load, took = Load(leader, job), []
        try:
            for number in range(1, kills + 1):
                other = Up(home, database, f"up-{number}", "--standby")
                ups.append(other)
                until(lambda up=other: up.says("stands by"), other)
                time.sleep(1.0)
                took.append(takeover_s(leader, other, load))
                leader = other
        finally:
            load.end()
        client = leader.client()
        lost = sum(not _has(client, name) for name in load.kept)
        print(f"{len(load.kept)} exceptions acknowledged meanwhile, {lost} lost", flush=True)
        return took, lost
    finally:
        for up in ups:
            if up.process.poll() is None:
                up.process.terminate()
                up.process.wait(30)


def _is_known(up: Up, job: str) -> bool:
    try:
        return bool(up.client().get(f"/jobs/{job}")["attempts"])
    except PerdureError:
        return False


def _has(client: object, name: str) -> bool:
    try:
        return bool(client.get(f"/exceptions/{name}"))  # type: ignore[attr-defined]
    except PerdureError:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    kills = parser.parse_args().kills
    programs = postgres.programs()
    if programs is None:
        sys.exit("PostgreSQL's server programs are not installed")
    with postgres.server(programs) as url, tempfile.TemporaryDirectory() as home:
        took, lost = measure(Path(home), postgres.new_database(url, "standby"), kills)
    print(f"{kills} kills: median {statistics.median(took):.2f} s, at most {max(took):.2f} s")
    print(" ".join(f"{one:.2f}" for one in took))
    return 0 if max(took) <= BAR_S and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
