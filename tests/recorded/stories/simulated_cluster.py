"""The simulated cluster over a bad line: what is seen of it, and what comes of what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from perdure.backends.simulated.backend import FaultPlan, SimulatedBackend
from perdure.backends.simulated.cluster import EVERY, START_S, Script, SimulatedCluster
from perdure.errors import PerdureError
from perdure.model.actions import Action
from perdure.model.jobs import Attempt
from tests.recorded.drawn import in_words
from tests.recorded.stories.actions import an_action

CASES, STEPS = 50, 60


def story(_case: int, rng: Random) -> Iterator[str]:
    requeue_exit = frozenset({7}) if rng.random() < 0.5 else frozenset()
    cluster = SimulatedCluster(
        rng.randrange(1000), rng.choice((2, 3, 4)), gpus=4, requeue_exit=requeue_exit, guarded=rng.random() < 0.8
    )
    backend = SimulatedBackend(cluster, _faults(rng), rng.randrange(1000))
    told: list[Action] = []
    for _ in range(STEPS):
        try:
            yield f"{cluster.now - START_S:g} {_something(cluster, backend, told, rng)}"
        except PerdureError as err:
            yield str(err)
        if rng.random() < 0.05:
            backend.silent, backend.faults = rng.random() < 0.2, _faults(rng)
    yield f"{sorted(cluster.effects.items())} {sorted(cluster.recoveries.items())} {cluster.idle}"


def _something(cluster: SimulatedCluster, backend: SimulatedBackend, told: list[Action], rng: Random) -> str:
    match rng.choice("ssssaaaaaapppppppffrllooowww"):
        case "s":
            return cluster.submit(_script(rng))
        case "a":
            cluster.advance(rng.choice((0.0, 1.0, 5.0, 10.0, 30.0, 300.0)))
            return in_words(cluster.observation(cluster.now - rng.choice((0.0, 20.0, 200.0, 900.0))))
        case "p":
            action = rng.choice(told) if told and rng.random() < 0.25 else _action(cluster, rng)
            told.append(action)
            return f"{in_words(action)} {in_words(backend.perform(action))}"
        case "f":
            cluster.fail_node(rng.choice((*cluster.node_names, "gone")))
        case "r":
            cluster.return_node(rng.choice((*cluster.node_names, "gone")))
        case "l":
            return in_words(backend.lookup(rng.choice(told) if told else _action(cluster, rng)))
        case "o":
            return in_words(backend.observe(cluster.now - rng.choice((0.0, 20.0, 200.0))))
        case "w":
            return in_words([backend.output(each, rng.choice((4, 9, 999))) for each in _attempts(cluster)[-2:]])
    return "a node"


def _action(cluster: SimulatedCluster, rng: Random) -> Action:
    job_id = rng.choice(cluster.job_ids[-5:] or ("1",))
    attempts = cluster.attempts(job_id) if job_id in cluster.job_ids else ()
    return an_action(rng, "sim", job_id, attempts[-1].id.incarnation if attempts else 0, cluster.node_names)


def _attempts(cluster: SimulatedCluster) -> list[Attempt]:
    return [attempt for job_id in cluster.job_ids for attempt in cluster.attempts(job_id)]


def _script(rng: Random) -> Script:
    return Script(
        run_s=rng.choice((1.0, 10.0, 60.0)),
        says=rng.choice(("", "step 1 of 2", "a long line of many words")),
        failures=rng.choice((0, 0, 1, 2, EVERY)),
        bad_nodes=rng.choice(((), ("n1",))),
        exit_code=rng.choice((1, 7)),
        error=rng.choice(("", "RuntimeError: no")),
        node_count=rng.choice((1, 1, 2, 3)),
        min_nodes=rng.choice((0, 0, 1)),
        gpus_per_node=rng.choice((1, 2, 4)),
        may_requeue=rng.random() < 0.8,
        user=rng.choice(("ada", "bob")),
    )


def _faults(rng: Random) -> FaultPlan:
    if rng.random() < 0.4:
        return FaultPlan()
    chances = [rng.choice((0.0, 0.0, 0.2)) for _ in range(6)]
    lose_request, lose_reply, delay, duplicate, stale, blind = chances
    return FaultPlan(lose_request, lose_reply, delay, rng.choice((5.0, 60.0)), duplicate, stale, blind)
