"""One user's failures, logs and streams take no more than a share: what others need is there."""

import asyncio
import http.client
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from perdure.coordination.playbook import own_playbook
from perdure.errors import TooMany
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import Output, OutputFile, OutputKind
from perdure.retry.rules import RetryRules
from perdure.service.core.view import SiteView
from perdure.service.web.api.event_feed import EventFeed
from perdure.service.web.api.events import Listeners
from perdure.service.web.state import WebSettings
from perdure.service.workers import log_queue
from perdure.service.workers.log_queue import FairQueue, LogQueue
from tests.attacks.service import Attacked, await_
from tests.copying import replace
from tests.service.web_world import RESET, World


def attempt(job_id: int | str, user: str) -> Attempt:
    return Attempt(AttemptId("c", str(job_id), 1), AttemptState.FAILED, ("n1",), 0.0, end_s=1.0, user=user)


# -- retries


@pytest.mark.parametrize("hopeless", [24, pytest.param(200, marks=pytest.mark.slow)])
def test_one_user_s_hopeless_jobs_leave_others_their_retries(tmp_path: Path, hopeless: int) -> None:
    """24 of them used to stop everybody's transient failures for good."""
    world = World(tmp_path, 1_790_000_000.0, nodes=8)
    for number in range(hopeless):
        world.submit(f"h{number}", f"hopeless{number}", "mallory", 1, look=False)
        world.start(f"h{number}", f"gpu{1 + number % 8:02}")
        world.end(f"h{number}", RESET)
    world.submit("1", "train", "mira", 1)
    world.start("1", "gpu01")
    world.end("1", RESET)
    failure = world.state.cases["1"].failure
    assert failure.decision.retries
    assert failure.decision.delay_s < 120.0
    of_mallory = [case.failure.decision for job_id, case in world.state.cases.items() if job_id != "1"]
    assert all(decision.retries for decision in of_mallory)  # later, and not never


# -- judging


def test_turns_go_to_who_was_served_least() -> None:
    queue = FairQueue()
    for number in range(40):
        queue.put(attempt(number, "mallory"))
    order = []
    for number in range(40):
        if number == 5:
            queue.put(attempt("m", "mira"))
            queue.put(attempt("n", "mira"))
        order.append(queue.take(lambda _: True).user)
        queue.charge(order[-1], 1.0)
    assert order.index("mira") in (5, 6)
    assert Counter(order)["mira"] == 2
    assert order.index("mira", 7) <= 8


def test_who_was_away_saves_no_turns_up() -> None:
    queue = FairQueue()
    for number in range(10):
        queue.put(attempt(number, "mira"))
        queue.take(lambda _: True)
        queue.charge("mira", 1.0)
    for user in ("late", "mira") * 5:
        queue.put(attempt(user, user))
    order = []
    for _ in range(10):
        order.append(queue.take(lambda _: True).user)
        queue.charge(order[-1], 1.0)
    assert Counter(order[:6])["mira"] >= 2


def test_who_was_served_long_ago_does_not_wait_for_ever_new_names() -> None:
    """What he had then is no more than what others have had since: whoever comes after him is served after him."""
    queue = FairQueue()
    for number, user in enumerate(("mira", *["jonas"] * 6)):
        queue.put(attempt(number, user))
        queue.take(lambda _: True)
        queue.charge(user, 1.0)
    for user in ("mira", "new"):
        queue.put(attempt("last", user))
    assert [queue.take(lambda _: True).user for _ in range(2)] == ["mira", "new"]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogQueue]:
    """Reads of which those of mallory do not answer."""
    monkeypatch.setattr(log_queue, "PATIENCE_S", 3.0)
    never = threading.Event()

    def read(found: Attempt) -> Output:
        if found.user == "mallory":
            never.wait(120)
        return Output((OutputFile("log", b"x", b"", 0, OutputKind.STDOUT, "", 0, 1, ""),), ())

    made = LogQueue(read)
    yield made
    never.set()
    made.close()


def read_by(logs: LogQueue) -> tuple[Attempt, Output]:
    found = logs.next(60.0)
    assert found is not None
    return found


def test_logs_that_do_not_answer_keep_nobody_else_waiting(logs: LogQueue) -> None:
    """Each used to take 20 s of everybody's."""
    for number in range(20):
        logs.put(attempt(f"h{number}", "mallory"))
    logs.put(attempt("1", "mira"))
    found, output = read_by(logs)
    assert (found.user, len(output.files)) == ("mira", 1)
    answers = [read_by(logs) for _ in range(20)]
    assert {each.id.job_id for each, _ in answers} == {f"h{number}" for number in range(20)}  # none is left without
    assert not any(output.files for _, output in answers)  # nor is any of them waited for until it answers
    assert logs.next(0.01) is None


def test_two_logs_that_do_not_answer_are_all_that_is_read_of_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a thread until it answers: one more with every failure, and there is none left for others."""
    monkeypatch.setattr(log_queue, "PATIENCE_S", 0.5)
    begun, never = [], threading.Event()

    def read(found: Attempt) -> Output:
        begun.append(found.id.job_id)
        never.wait(120)
        return Output((), ())

    made = LogQueue(read)
    for job_id in ("1", "2", "3", "4"):
        made.put(attempt(job_id, "mallory"))
        taken = made.next(60.0)
        assert taken is not None
        found, output = taken
        assert (found.id.job_id, output.files) == (job_id, ())
    assert begun == ["1", "2"]
    never.set()
    made.close()


def test_a_log_is_judged_as_soon_as_it_has_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is woken by what has been read, and not only by the end of its patience."""
    monkeypatch.setattr(log_queue, "PATIENCE_S", 40.0)
    answers = threading.Event()

    def read(found: Attempt) -> Output:
        answers.wait(120)
        return Output((), ())

    made = LogQueue(read)
    users = ("mira", "jonas", "mira", "lin", "mira")
    for number, user in enumerate(users):
        made.put(attempt(str(number), user))
    threading.Timer(0.5, answers.set).start()
    began_s = time.monotonic()
    taken = [made.next(120.0) for _ in users]
    assert time.monotonic() - began_s < 30.0
    assert {each.id.job_id for each, _ in taken} == {"0", "1", "2", "3", "4"}  # type: ignore[misc]
    made.close()


def test_a_log_that_cannot_be_read_leaves_no_failure_without_an_answer() -> None:
    def read(found: Attempt) -> Output:
        raise ZeroDivisionError

    made = LogQueue(read)
    made.put(attempt("1", "mira"))
    taken = made.next(5.0)
    assert taken is not None
    _, output = taken
    assert "ZeroDivisionError" in output.absent[0].says
    made.close()


def test_random_bytes_of_one_user_starve_no_other_s_failure(service: Attacked) -> None:
    """40 logs of them took the judge 19 s; the failure of another waits for one of them at most, once it is seen."""
    noise = service.home / "noise"
    noise.write_bytes(os.urandom(1 << 20))
    noisy = [service.submit(f"cat {noise} >&2; exit 1", user="mallory", name=f"noise{n}") for n in range(40)]
    last = service.submit("true", user="mallory")

    def is_over() -> Any:
        status, found = service.ask("GET", f"/jobs/{last}")
        return status == 200 and found["job"]["state"] == "completed"

    await_(is_over, 120)
    job = service.submit("echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2; exit 1")
    service.await_decision(job, 120)
    found = service.ask("GET", f"/jobs/{job}")[1]
    failed_s, (decided_s,) = found["attempts"][0]["end_s"], decisions_s(found)
    between = [at_s for each in noisy for at_s in decisions_s(service.ask("GET", f"/jobs/{each}")[1])]
    assert sum(failed_s < at_s < decided_s for at_s in between) < 20  # some are judged before the look that sees it


def decisions_s(found: Any) -> list[Any]:
    """When each failure of a job was decided on."""
    return [each["record"]["verdicts"][-1]["time"] for each in found["exceptions"] if each["record"]["verdicts"]]


# -- streams


class Silent(EventFeed):
    def __init__(self) -> None:
        super().__init__(lambda *_: [], lambda: 0, lambda _: {}, 60.0)

    async def enter(self) -> None:
        pass

    def leave(self) -> None:
        pass


def test_one_user_does_not_take_all_streams() -> None:
    async def attack() -> None:
        listeners = Listeners(100, Silent())
        taken = [await listeners.enter("mallory") for _ in range(100)]
        with pytest.raises(TooMany):
            await listeners.enter("mallory")
        others = [await listeners.enter(user) for user in ("mira", "jonas", "root") for _ in range(20)]
        assert listeners.here == 100
        assert sum(place.is_taken_back for place in taken) == 60
        assert not any(place.is_taken_back for place in others)
        for place in taken + others:
            listeners.leave(place)
        assert listeners.here == 0

    with ThreadPoolExecutor(1) as pool:  # a browser's test may have left a loop in this thread
        pool.submit(asyncio.run, attack()).result()


def test_of_two_users_with_nearly_as_many_streams_neither_takes_the_others() -> None:
    """Else each would take back what the other one took, for ever."""

    async def listen() -> None:
        listeners = Listeners(5, Silent())
        taken = [await listeners.enter(user) for user in ("mira",) * 3 + ("jonas",) * 2]
        with pytest.raises(TooMany):
            await listeners.enter("jonas")
        assert not any(place.is_taken_back for place in taken)
        await listeners.enter("root")  # who has none takes one of who has most
        assert [place.is_taken_back for place in taken] == [False, False, True, False, False]

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, listen()).result()


def test_one_user_s_streams_over_http_leave_others_theirs(service: Attacked) -> None:
    """Under 1,024 descriptors, half of the connections may be streams."""
    token, mine = service.token("mallory"), service.token("mira")

    def listen(token: str) -> tuple[HTTPConnection, HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
        connection.request("GET", "/api/v1/events/stream", headers={"Authorization": f"Bearer {token}"})
        return connection, connection.getresponse()

    taken = []
    try:
        for _ in range(500):
            connection, answer = listen(token)
            taken.append(connection)
            if answer.status != 200:
                break
        assert answer.status == 429
        assert len(taken) < WebSettings().max_streams
        connection, answer = listen(mine)
        taken.append(connection)
        assert answer.status == 200
        assert answer.readline().startswith(b"id: ")
        assert service.ask("GET", "/status", token=mine)[0] == 200
    finally:
        for connection in taken:
            connection.close()


def test_an_attempt_of_nobody_has_its_turn() -> None:
    queue = FairQueue()
    queue.put(replace(attempt("1", ""), user=""))
    assert queue.take(lambda _: True).id.job_id == "1"


def test_what_is_decided_at_once_is_charged_one_after_the_other(tmp_path: Path) -> None:
    """Failures that waited for one handler, whose turn runs out for all of them in the same instant."""
    world = World(tmp_path, 1_790_000_000.0, nodes=8)
    for number in range(5):
        world.submit(str(number), f"train{number}", "mira", 1)
        world.start(str(number), f"gpu{1 + number:02}")
        world.end(str(number), RESET)
    state = replace(world.state, fleet=replace(world.state.fleet, spent=()))
    rules = RetryRules(cluster_share_per_hour=0.0, cluster_floor_per_hour=6)  # a user has half of them
    view = SiteView(state, own_playbook(), rules, world.now)
    delays = []
    for case in state.cases.values():
        delays.append(view.decision(case.failure.record).delay_s)
        view.settle_on(case.failure.record)
    assert [delay < 3600 for delay in delays] == [True] * 3 + [False] * 2
