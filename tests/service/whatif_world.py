"""What tests of what-if questions share: traces to send, asking, waiting, and an answer without a simulation."""

from __future__ import annotations

import gzip
import itertools
import time
from typing import Any

from perdure.model.clean_text import clean
from perdure.service.whatif.comparison import Comparison, Figures, Spread, Stage, Summary
from perdure.service.whatif.comparison_store import ANSWERS, REPORT, RESULT, SUMMARY
from perdure.service.whatif.question import ComparisonQuestion
from tests.service.web_world import Site, TestClient

WHATIF = "/api/v1/whatif"
_numbers = itertools.count()
PATIENCE_S = 120.0  # at low priority on a busy machine
ROWS = "job_id,submit_s,gpus,duration_s,vc\n" + "".join(
    f"j{number},{60 * number},{1 + number % 8},{300 + 97 * (number % 7)},vc{number % 2}\n" for number in range(40)
)
ASK: dict[str, Any] = {"cluster": "2x8", "policies": ["fifo", "srtf"]}
PNG = bytes.fromhex(  # one pixel
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c6360000000020001"
    "48afa4710000000049454e44ae426082"
)


def send(client: TestClient, raw: bytes | str = ROWS, name: str = "jobs.csv") -> Any:
    body = raw.encode() if isinstance(raw, str) else raw
    headers = {"Content-Type": "application/octet-stream"}
    return client.post(f"{WHATIF}/uploads", params={"name": name}, content=body, headers=headers)


def asked(client: TestClient, **ask: Any) -> dict[str, Any]:
    answer = client.post(f"{WHATIF}/comparisons", json={**ASK, **ask})
    assert answer.status_code == 202, answer.text
    return answer.json()


def awaited(client: TestClient, comparison_id: str) -> dict[str, Any]:
    """The comparison once it is over."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = client.get(f"{WHATIF}/comparisons/{comparison_id}").json()
        if found["stage"] not in ("waiting", "running"):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.05)


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def figures(policy: str, retry: str = "recorded", change: float | None = None) -> Figures:
    spread = Spread(mean=9000.0, p50=3000.0, p90=40_000.0, p99=200_000.0)
    return Figures(
        policy=policy, retry=retry, finished=1500, jct_s=spread, jct_low=8000.0, jct_high=10_000.0, jct_change=change,
        wait_s=spread, wait_change=change, makespan_s=1e6, utilisation=0.81, goodput=0.7, wasted_gpu_h=812.5,
        success_rate=0.7,
    )  # fmt: skip


def answered(place: Site, owner: str = "mira", source: str = "jobs.csv", **said: Any) -> Comparison:
    """A comparison that is over, with answers made up."""
    world = place.world
    text = clean(source)
    number = next(_numbers)
    found = Comparison(
        f"{2**64 - 1 - number:016x}",  # later ones do not come later in a directory
        owner,
        text,
        ComparisonQuestion(cluster="2x8", policies=("fifo", "srtf"), retries=("recorded", "never"), seeds=3),
        Stage.DONE,
        world.now + number,
        world.now,
        world.now + 5,
    )
    summary = Summary(
        jobs=1500,
        gpus=16,
        format="sacct",
        left_out=said.pop("left_out", {"never started": 3}),
        notes=said.pop("notes", ["times are read as UTC"]),
        compared=[figures("fifo"), figures("srtf", "never", -0.234), figures("las-2d", "recorded", 0.05)],
        pictures=["completion", "waits", "use", "gantt"],
    )
    place.queue.store.put(found)
    made = place.queue._work / found.id
    made.mkdir()
    for name in ANSWERS:
        (made / name).write_bytes(PNG)
    (made / SUMMARY).write_text(summary.model_dump_json())
    (made / RESULT).write_text('{"schema": "perdure.whatif/1"}')
    (made / REPORT).write_text("<!doctype html>")
    place.queue.store.take_answers(found.id, made)
    made.rmdir()
    return found
