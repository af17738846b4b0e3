"""How soon a killed controller's clusters are served by one that lives (`perdure up --clusters`).

    python -m benchmarks.takeover [--clusters 5] [--kills 5]

On a PostgreSQL of its own two controllers share the clusters. When each has its share and all are ready, one is killed
with signal 9; afterwards another is started in its place. Prints of each kill when the first of its clusters had a new
owner, and when all were ready.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.e2e.test_clusters import Controllers, running, until
from tests.service import postgres

SEEN_EVERY_S = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover")
    parser.add_argument("--clusters", type=int, default=5)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    programs = postgres.programs()
    if programs is None:
        parser.error("PostgreSQL's server programs are not installed")
    with tempfile.TemporaryDirectory() as home, postgres.server(programs) as url:
        database = postgres.new_database(url, "takeover")
        with running(Path(home), database, given.clusters, ("a", "b")) as controllers:
            print("| clusters taken over | the first has a new owner after | all are ready after |\n|---|---|---|")
            for number in range(given.kills):
                until(lambda: _are_shared(controllers), controllers)
                print(_one_kill(controllers), flush=True)
                controllers.start(f"{number}")


def _one_kill(controllers: Controllers) -> str:
    before = controllers.owners()
    victim = sorted(controllers.running)[0]
    lost = {name for name, (owner, _) in before.items() if _parent(owner) == controllers.running[victim].pid}
    begun, first_s = time.monotonic(), None
    controllers.kill(victim)
    while True:
        now = controllers.owners()
        moved = {name for name in lost if now[name] != before[name]}
        if moved and first_s is None:
            first_s = time.monotonic() - begun
        if first_s is not None and moved == lost and not controllers.unready():
            return f"| {len(lost)} | {first_s:.1f} s | {time.monotonic() - begun:.1f} s |"
        time.sleep(SEEN_EVERY_S)


def _are_shared(controllers: Controllers) -> bool:
    """All clusters are ready, and each controller has one at least."""
    if controllers.unready():
        return False
    parents = {_parent(owner) for owner, _ in controllers.owners().values()}
    return len(parents) == len(controllers.running)


def _parent(pid: int) -> int:
    """The controller of a cluster's process: a fork server is between the two."""
    for _ in range(2):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


if __name__ == "__main__":
    main()
