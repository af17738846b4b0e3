"""Actions of all kinds, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from perdure.model.actions import (
    Action,
    Cancel,
    Comment,
    Down,
    Drain,
    Exclude,
    Extend,
    Hold,
    Preempt,
    Release,
    Requeue,
    Undrain,
)
from perdure.model.identity import AttemptId


def an_action(rng: Random, cluster: str, job_id: str, latest: int, nodes: Sequence[str]) -> Action:
    """On the latest attempt of a job, mostly; sometimes on another one, of another cluster, or of no job at all."""
    if rng.random() < 0.06:
        cluster, job_id = rng.choice((("elsewhere", job_id), (cluster, "99")))
    attempt = AttemptId(cluster, job_id, max(0, latest + rng.choice((0,) * 12 + (-1, 1))))
    some = tuple(rng.sample((*nodes, "gone"), rng.choice((0, 1, 1, 2))))
    node, episode = rng.choice((*nodes, *nodes, *nodes, "gone")), f"e{rng.randrange(2)}"
    lift, comment = some[:1] if rng.random() < 0.3 else (), rng.choice(("", "[perdure] why"))
    match rng.choice("rrrrrpxxhhlllcceekddwuu"):
        case "r":
            count, delay_s = rng.choice((0, 0, 1, 2)), rng.choice((0.0, 0.0, 30.0))
            return Requeue(attempt, some, delay_s, count, comment, lift)
        case "p":
            return Preempt(attempt, episode)
        case "x":
            return Exclude(attempt, some, rng.choice((0, 0, 1, 2)), comment, lift)
        case "h":
            return Hold(attempt, episode)
        case "l":
            return Release(attempt, episode, comment)
        case "c":
            return Cancel(attempt)
        case "e":
            return Extend(attempt, rng.choice((3.0, 30.0, 4000.0, 90_000.0)))
        case "k":
            return Comment(attempt, rng.choice(("[perdure] because", "[perdure c#1] node n1 failed")))
        case "d":
            return Drain(node, "[perdure] Xid 79", episode)
        case "w":
            return Down(node, "[perdure] gone", episode)
    return Undrain(node, episode)
