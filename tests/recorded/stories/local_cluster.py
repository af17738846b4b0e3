"""The embedded cluster: jobs come, end, are put back and cancelled, nodes fail and return, time passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from random import Random
from typing import Any

from perdure.backends.local import requests
from perdure.backends.local.core import Core, Effect, Launch, fresh_nodes
from perdure.backends.local.queue import queue_of
from perdure.backends.local.records import Timing
from perdure.backends.local.spec import JobSpec
from perdure.errors import PerdureError
from perdure.model.jobs import PolicyConsent, RetryPreference
from tests.recorded.drawn import NOW, in_words
from tests.recorded.stories.actions import an_action

CASES, STEPS = 60, 60
NODES = ("n1", "n2", "n3")


def story(_case: int, rng: Random) -> Iterator[str]:
    requeue_delay_s = rng.choice((0.0, 0.0, 2.0))
    timing = Timing(detect_s=1.0, kill_wait_s=2.0, thaw_s=3.0, requeue_delay_s=requeue_delay_s)
    nodes = fresh_nodes(3, rng.choice((2, 4)), rng.choice((2, 4)), {}, NOW)
    core, now = Core(nodes, [], [], rng.choice((1, 8)), timing, "/logs/{job}-{incarnation}.log"), NOW
    for _ in range(STEPS):
        now += rng.choice((0.0, 0.0, 0.5, 1.0, 2.0, 3.0))
        if rng.random() < 0.2 and (wakes_s := core.next_wake_s()) is not None:
            now = max(now, wakes_s)
        yield f"{now - NOW:g} {_something(core, rng, now)}"
        yield from _after(core, rng, now)
        if rng.random() < 0.05:
            core = _restarted(core, timing, rng)


def _something(core: Core, rng: Random, now: float) -> str:
    what = rng.choice(("submit",) * 5 + ("exit",) * 5 + ("act",) * 6 + ("fault",) * 3 + ("wait",) * 3 + ("seldom",))
    try:
        match what:
            case "submit":
                return "submitted " + core.submit(a_spec(rng), now)
            case "exit":
                return _exit(core, rng, now)
            case "act":
                job_ids = tuple(core.jobs)[-6:] or ("1",)
                job_id = rng.choice(job_ids)
                latest = core.jobs[job_id].incarnation if job_id in core.jobs else 0
                action = an_action(rng, "c", job_id, latest, NODES)
                return f"{in_words(action)} {in_words(requests.perform(core, 'c', action, now))}"
            case "fault":
                node, fault = (
                    rng.choice((*NODES, "n4")),
                    rng.choice(("fail", "freeze", "thaw", "return", "return", "x")),
                )
                core.inject(node, fault, now)
                return f"{fault} {node}"
            case "seldom":
                return _seldom(core, rng, now)
        return what
    except PerdureError as err:
        return str(err)


def _exit(core: Core, rng: Random, now: float) -> str:
    if not core.running:
        return "nothing runs"
    attempt = core.running[rng.choice(tuple(core.running))]
    over = {each.rank for each in attempt.exits}
    ranks = [rank for rank in range(len(attempt.nodes)) if rank not in over]
    said = []
    for rank in ranks if rng.random() < 0.6 else ranks[:1]:
        status = rng.choice((0, 0, 1, 78, -9, -15))
        incarnation = attempt.incarnation - (rng.random() < 0.05)
        core.task_ended(attempt.job_id, incarnation, rank, status, now)
        said.append(f"{attempt.job_id}#{incarnation}.{rank} ended {status}")
    return ", ".join(said)


def _seldom(core: Core, rng: Random, now: float) -> str:
    if not core.running:
        return "nothing runs"
    attempt = core.running[rng.choice(tuple(core.running))]
    match rng.randrange(4):
        case 0:
            core.launch_failed(attempt.job_id, attempt.incarnation - rng.randrange(2), "no room", now)
        case 1:
            core.stop("stopped", now)
        case 2:
            core.all_lost("crashed", now)
        case _:
            core.forget([job.job_id for job in core.jobs.values() if job.state.is_over][:2])
            return "forgot"
    return "lost"


def _restarted(core: Core, timing: Timing, rng: Random) -> Core:
    """As the daemon reads it back from disk, maybe with a node less, or with nodes of another size."""
    known = dict(core.nodes)
    size = next(iter(known.values()))
    nodes = fresh_nodes(3, size.gpus, size.slots + rng.randrange(2), known, NOW + 1)
    numbers = [int(job_id) for job_id in core.jobs]
    again = max(numbers, default=0) + 1
    return Core(nodes, core.jobs.values(), core.running.values(), again, timing, "/logs/{job}-{incarnation}.log")


def a_spec(rng: Random) -> JobSpec:
    count = rng.choice((1, 1, 1, 2, 2, 3))
    maybe: dict[str, Any] = {
        "gpus_per_node": rng.choice((0, 1, 2, 3)),
        "walltime_s": rng.choice((2.0, 5.0, 20.0)),
        "may_requeue": False,
        "requeue_on_node_fail": False,
        "max_requeues": rng.choice((0, 1, 2)),
        "priority": rng.choice((0, 1, 2, 3)),
        "preemptible": True,
        "exclude": (rng.choice(NODES),),
        "delay_s": rng.choice((1.0, 4.0)),
        "hold": True,
        "min_nodes": rng.choice((0, 1)),
        "user": rng.choice(("ada", "bob")),
        "wish": rng.choice(list(RetryPreference)),
        "consent": rng.choice(list(PolicyConsent)),
        "workdir": "/home",
        "name": "train",
    }
    often = {"gpus_per_node": 0.8, "preemptible": 0.6, "priority": 0.4, "walltime_s": 0.4}
    given = {name: value for name, value in maybe.items() if rng.random() < often.get(name, 0.12)}
    if rng.random() < 0.1:
        given["require"] = tuple(node for node in (*NODES, "n4") if node not in given.get("exclude", ()))[-count:]
    if "walltime_s" in given and rng.random() < 0.5:
        given |= {"signal": rng.choice(("USR1", "SIGTERM")), "signal_before_s": rng.choice((1.0, 9.0))}
    return JobSpec(("true",), node_count=count, **given)


def _after(core: Core, rng: Random, now: float) -> Iterator[str]:
    core.tick(now)
    step = core.take()
    yield from (f" job {in_words(job)}" for job in step.jobs)
    yield from (f" attempt {in_words(attempt)}" for attempt in step.attempts)
    yield from (f" node {in_words(node)}" for node in step.nodes)
    yield from (f" {_in_short(effect)}" for effect in step.effects)
    wakes_s = core.next_wake_s()
    yield f" next {in_words(wakes_s)}"
    if rng.random() < 0.2:
        yield f" nodes {in_words(core.told_nodes())}"
        yield f" jobs {in_words([job.told('c') for job in step.jobs])}"
        yield f" attempts {in_words([attempt.told('c') for attempt in step.attempts])}"
    if rng.random() < 0.1:
        yield f" queue {in_words(queue_of(core, 'c', now))}"


def _in_short(effect: Effect) -> str:
    if isinstance(effect, Launch):
        return f"launch {effect.job.job_id}#{effect.attempt.incarnation} on {effect.attempt.nodes}"
    return f"{type(effect).__name__} {astuple(effect)}"
