"""Every limit is taken to the full, and not by one more: of actions, drains, retries, uploads and pages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from perdure.errors import InputError, TooMany
from perdure.model.actions import Drain, Hold
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.budget import room
from perdure.retry.history import Fleet, Spent
from perdure.retry.rules import RetryRules
from perdure.service.core.settings import Caps
from perdure.service.store.journal import ActionRow, ActionState, Charge
from perdure.service.store.queries.reader import MAX_LIMIT
from perdure.service.whatif import uploads
from perdure.service.whatif.settings import WhatifSettings
from perdure.service.whatif.uploads import Uploads
from perdure.service.workers.executor import GateRuling, Used, rule
from tests.apart import run_apart
from tests.service.web_world import site

NOW = 100_000.0
MANY = 1_000_000
HOLD = ActionRow("hold:c/1#1", Hold(AttemptId("c", "1", 1)), "perdure", "", ActionState.PLANNED, "", NOW, NOW + 900.0)
DRAIN = msgspec.structs.replace(HOLD, action=Drain("n1", "r", "e"))
JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0)
TRIED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1", "n2"), 0.0, 60.0, user="ada")


# -- caps and budgets: one more beside so many


def may_act(before: int, user: str = "", row: ActionRow = HOLD, nodes: int = 0, **caps: Any) -> bool:
    charges = tuple(Charge(NOW, row.action.kind, user) for _ in range(before))
    wide = {"actions_per_hour": MANY, "floor_per_hour": MANY, "drains_per_hour": MANY, "drains_floor_per_hour": MANY}
    ruled = rule(row, NOW, True, False, Caps(**{**wide, **caps}), Used(charges, live_jobs=10, nodes=nodes), user)
    return ruled.ruling is GateRuling.GO


def may_take_out(out: int, nodes: int) -> bool:
    ruled = rule(DRAIN, NOW, True, False, Caps(), Used((), nodes=nodes, nodes_out=out))
    return ruled.ruling is GateRuling.GO


def may_retry(before: int, user: str = "bob", nodes: tuple[str, ...] = ("n9",), **rules: int | float) -> bool:
    wide = {"per_cluster_per_hour": MANY, "cluster_floor_per_hour": MANY, "per_user_per_hour": MANY,
            "per_node_per_hour": MANY, "user_share": 1.0}  # fmt: skip
    fleet = Fleet(usable={"": frozenset({"n1", "n2"})}, live_jobs=10, spent=(Spent(NOW, "9", user, nodes),) * before)
    return room(JOB, TRIED, fleet, RetryRules(**{**wide, **rules}), NOW, NOW).instant_s == NOW  # type: ignore[arg-type]


LIMITS: dict[str, tuple[int, Callable[[int], bool]]] = {
    "actions": (7, lambda n: may_act(n, actions_per_hour=7)),
    "actions by jobs": (15, lambda n: may_act(n, jobs_share_per_hour=1.5, floor_per_hour=7)),
    "actions at least": (7, lambda n: may_act(n, jobs_share_per_hour=0.1, floor_per_hour=7)),
    "a user's half of an odd number": (4, lambda n: may_act(n, "ada", actions_per_hour=7)),
    "a user's half of an even number": (4, lambda n: may_act(n, "ada", actions_per_hour=8)),
    "a user's half of one": (1, lambda n: may_act(n, "ada", actions_per_hour=1)),
    "drains": (3, lambda n: may_act(n, row=DRAIN, drains_per_hour=3)),
    "drains by nodes": (
        6,
        lambda n: may_act(n, row=DRAIN, nodes=60, nodes_share_per_hour=0.1, drains_floor_per_hour=2),
    ),
    "drains at least": (2, lambda n: may_act(n, row=DRAIN, nodes=5, nodes_share_per_hour=0.1, drains_floor_per_hour=2)),
    "nodes out of an even number": (5, lambda n: may_take_out(n, 10)),
    "nodes out of an odd number": (5, lambda n: may_take_out(n, 11)),
    "the cluster's retries": (6, lambda n: may_retry(n, cluster_floor_per_hour=6, cluster_share_per_hour=0.0)),
    "the cluster's most retries": (6, lambda n: may_retry(n, per_cluster_per_hour=6)),
    "a user's retries": (5, lambda n: may_retry(n, "ada", per_user_per_hour=5)),
    "a user's share of retries": (3, lambda n: may_retry(n, "ada", per_cluster_per_hour=7, user_share=0.5)),
    "a node's retries": (4, lambda n: may_retry(n, nodes=("n1",), per_node_per_hour=4, cluster_share_per_hour=0.0)),
    "a gang's last node's": (
        4,
        lambda n: may_retry(n, nodes=("n8", "n2"), per_node_per_hour=4, cluster_share_per_hour=0.0),
    ),
    "a user's share of a node's": (
        2,
        lambda n: may_retry(n, "ada", ("n1",), per_node_per_hour=4, user_share=0.5, cluster_share_per_hour=0.0),
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_taken_to_the_full_and_not_by_one_more(name: str) -> None:
    limit, takes = LIMITS[name]
    assert [takes(before) for before in (0, limit - 1, limit, limit + 1)] == [True, True, False, False]


# -- uploads, pages


class Sent:
    """Where traces are sent to, each of so many bytes at most."""

    def __init__(self, home: Path, most_bytes: int = 8) -> None:
        self.uploads = Uploads(home / "uploads", most_bytes, lambda: NOW)

    def take(self, *sizes: int) -> int | None:
        async def chunks() -> AsyncIterator[bytes]:
            for size in sizes:
                yield b"x" * size

        return run_apart(self.uploads.take(chunks(), "ada", "t.csv")).size


@pytest.mark.parametrize("sizes", [(8,), (4, 4), (7, 1)])
def test_an_upload_may_be_as_large_as_is_said_and_no_larger(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    sent = Sent(tmp_path)
    assert sent.take(*sizes) == 8
    with pytest.raises(InputError, match="larger"):
        sent.take(*sizes, 1)
    assert len(list((tmp_path / "uploads").iterdir())) == 1


def under_way(home: Path, owners: list[str]) -> list[bool]:
    """Which of these uploads, none of which comes to its end, are taken."""
    taken: list[bool] = []

    async def all_of_them() -> None:
        held, store = asyncio.Event(), Uploads(home / "uploads", 8, lambda: NOW)

        async def chunks() -> AsyncIterator[bytes]:
            taken.append(True)
            await held.wait()
            yield b"x"

        async def one(owner: str) -> None:
            try:
                await store.take(chunks(), owner, "t.csv")
            except TooMany:
                taken.append(False)

        tasks = []
        for owner in owners:
            count = len(taken)
            tasks.append(asyncio.ensure_future(one(owner)))
            while len(taken) == count:
                await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*tasks)

    run_apart(all_of_them())
    return taken


def test_so_many_uploads_of_one_user_are_under_way_and_no_more(tmp_path: Path) -> None:
    most = uploads.MAX_OF_ONE
    assert under_way(tmp_path, ["ada"] * (most + 1)) == [True] * most + [False]


def test_so_many_uploads_are_at_hand_and_no_more(tmp_path: Path) -> None:
    most = uploads.MAX_UPLOADS
    assert under_way(tmp_path, [f"u{n}" for n in range(most + 1)]) == [True] * most + [False]


def test_a_page_is_as_long_as_may_be_and_no_longer(tmp_path: Path) -> None:
    place = site(tmp_path)
    client = place.client(place.operator)
    for path in ("jobs", "nodes", "actions", "exceptions", "events"):
        codes = [client.get(f"/api/v1/{path}?limit={n}").status_code for n in (0, 1, MAX_LIMIT, MAX_LIMIT + 1)]
        assert codes == [422, 200, 200, 422], path


# -- settings


def bounds() -> list[Any]:
    """Each setting with a bound: its class, its name, a value that is taken, and the next one, that is not."""
    found = []
    for settings in (Caps, RetryRules, WhatifSettings):
        hints = get_type_hints(settings, include_extras=True)
        for name in (each.name for each in fields(settings)):
            if get_origin(hints[name]) is Annotated:
                kind, meta = get_args(hints[name])[:2]
                step = 1 if kind is int else 0.001
                for bound, way in ((meta.ge, -step), (meta.le, step)):
                    if bound is not None:
                        found.append(pytest.param(settings, name, kind(bound), bound + way, id=f"{name}{way:+}"))
    return found


@pytest.mark.parametrize(("settings", "name", "at_it", "beyond"), bounds())
def test_a_setting_may_be_at_its_bound_and_not_beyond(settings: type, name: str, at_it: float, beyond: float) -> None:
    assert getattr(msgspec.convert({name: at_it}, settings), name) == at_it
    with pytest.raises(msgspec.ValidationError, match=name):
        msgspec.convert({name: beyond}, settings)
