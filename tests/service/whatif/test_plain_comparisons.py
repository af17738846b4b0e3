"""Comparisons are kept, found and counted as lists would, over random changes; which one promised a policy's gain."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from perdure.errors import ClusterError, NotFound, TooMany
from perdure.service.access.auth import Identity, Role
from perdure.service.whatif import comparison_store
from perdure.service.whatif.comparison import COMPARISON, HISTORY, Comparison, Progress, Stage, Summary, Trouble
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.comparison_store import ANSWERS, SUMMARY, ComparisonStore
from perdure.service.whatif.policy_promise import latest_of, promise_of
from perdure.service.whatif.question import ComparisonQuestion
from perdure.service.whatif.settings import WhatifSettings
from tests.copying import replace
from tests.service.whatif_world import figures

ASK = ComparisonQuestion(cluster="2x8", policies=("fifo", "srtf"))
OVER = (Stage.DONE, Stage.FAILED, Stage.CANCELLED, Stage.BROKEN_OFF)
KEEP, MOST = 2, 4


def made(number: int, owner: str, stage: Stage, policies: tuple[str, ...] = ("fifo", "srtf")) -> Comparison:
    """Later ones do not come later in a directory."""
    ask = ASK.model_copy(update={"policies": policies})
    return Comparison(f"{2**64 - 1 - number:016x}", owner, HISTORY, ask, stage, float(number))


@pytest.mark.parametrize("seed", range(4))
def test_comparisons_are_kept_as_a_list_would(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_store, "MAX_KEPT", MOST)
    rng, known = random.Random(seed), list[Comparison]()
    store = ComparisonStore(tmp_path, KEEP, 0.0)
    for step in range(60):
        match rng.randrange(8):
            case 0 if known:
                gone = rng.choice(known)
                store.remove(gone.id)
                known.remove(gone)
            case 1:
                found, known = known, []
                for one in found:
                    known.append(one)
                    if not one.stage.is_over:
                        trouble = comparison_store._BROKEN
                        known[-1] = replace(one, stage=Stage.BROKEN_OFF, ended_s=float(step), trouble=trouble)
                        known = room_for(known, one.owner)
                store = ComparisonStore(tmp_path, KEEP, float(step))
            case 2 | 3 if known:
                at = rng.randrange(len(known))
                known[at] = replace(known[at], stage=rng.choice(OVER))
                store.put(known[at])
                known = room_for(known, known[at].owner)
            case _:
                new = made(step, rng.choice(("mira", "jonas", "eve")), rng.choice((Stage.WAITING, *OVER)))
                store.put(new)
                known = room_for([*known, new], new.owner)
        assert store.all() == tuple(known[::-1])
        assert sorted(folder.name for folder in tmp_path.iterdir()) == sorted(one.id for one in known)


def room_for(known: list[Comparison], owner: str) -> list[Comparison]:
    """Those that stay: unfinished ones, and of what is over the latest of an owner, and of all."""
    over = [one for one in known if one.stage.is_over]
    gone = over[: max(0, len(over) - MOST)]
    mine = [one for one in over if one.owner == owner]
    gone += mine[: max(0, len(mine) - KEEP)]
    return [one for one in known if one not in gone]


def test_only_the_files_of_an_answer_are_taken_in_and_given_out(tmp_path: Path) -> None:
    store, found, work = (
        ComparisonStore(tmp_path / "kept", KEEP, 0.0),
        made(1, "mira", Stage.RUNNING),
        tmp_path / "work",
    )
    store.put(found)
    work.mkdir()
    (tmp_path / "secret").write_text("secret")
    (work / SUMMARY).write_text("{}")
    (work / "other.txt").write_text("other")
    (work / ANSWERS[1]).symlink_to(tmp_path / "secret")
    store.take_answers(found.id, work)
    assert store.answer(found.id, SUMMARY) == b"{}"
    for name in (ANSWERS[1], "other.txt", comparison_store.RECORD, "../secret"):
        with pytest.raises(NotFound):
            store.answer(found.id, name)
    assert sorted(path.name for path in work.iterdir()) == sorted([ANSWERS[1], "other.txt"])


def test_a_folder_that_holds_another_comparison_is_none(tmp_path: Path) -> None:
    store = ComparisonStore(tmp_path, KEEP, 0.0)
    found = made(1, "mira", Stage.DONE)
    store.put(found)
    (tmp_path / found.id).rename(tmp_path / f"{5:016x}")
    assert ComparisonStore(tmp_path, KEEP, 0.0).all() == ()
    assert list(tmp_path.iterdir()) == []


MIRA, JONAS, OPERATOR = Identity("mira", Role.VIEWER), Identity("jonas", Role.VIEWER), Identity("root", Role.OPERATOR)


@pytest.fixture
def queue(tmp_path: Path) -> ComparisonQueue:
    return ComparisonQueue(tmp_path, "sqlite://", "atlas", WhatifSettings(queue=3), lambda: 5.0)


def test_the_queue_ends_where_the_setting_says_and_a_viewer_has_one(queue: ComparisonQueue) -> None:
    first = queue.ask(ASK, MIRA)
    with pytest.raises(TooMany, match="one of yours"):
        queue.ask(ASK, MIRA)
    second, third = queue.ask(ASK, OPERATOR), queue.ask(ASK, JONAS)
    with pytest.raises(TooMany, match="3 wait already"):
        queue.ask(ASK, OPERATOR)
    assert [queue.ahead_of(one.id) for one in (first, second, third)] == [0, 1, 2]
    queue._progress["another"] = Progress(phase="reading")  # as one that runs
    assert [queue.ahead_of(one.id) for one in (first, second, third)] == [1, 2, 3]
    assert queue.ahead_of("another") == 0
    assert queue.visible_to(MIRA) == (first,)
    assert queue.visible_to(OPERATOR) == (third, second, first)
    with pytest.raises(NotFound):
        queue.find(first.id, JONAS)
    with pytest.raises(ClusterError, match="not over yet"):
        queue.remove(first.id, MIRA)
    queue.cancel(first.id, MIRA)
    assert queue.find(first.id, MIRA).stage is Stage.CANCELLED
    assert [queue.ahead_of(one.id) for one in (second, third)] == [1, 2]
    with pytest.raises(ClusterError, match="over already"):
        queue.cancel(first.id, MIRA)
    queue.ask(ASK, MIRA)


def test_the_latest_of_the_sites_history_with_both_promised_it(queue: ComparisonQueue) -> None:
    both = ("slurm", "las")
    fits = made(3, "mira", Stage.DONE, both)
    later = made(4, "mira", Stage.DONE, both)
    uploaded = replace(later, created_s=9.0, ask=later.ask.model_copy(update={"upload": "u1"}))
    failed = replace(later, created_s=8.0, stage=Stage.FAILED)
    halves = [made(number, "mira", Stage.DONE, (name, "fifo")) for number, name in ((7, "slurm"), (6, "las"))]
    others = [failed, uploaded, *halves]
    assert latest_of([later, *others, fits], "las") == later
    assert latest_of([fits, *others], "las") == fits
    assert latest_of(others, "las") is None
    queue.store.put(later)
    assert promise_of(queue, "las") is None  # its answer was lost
    own, wanted = figures("slurm"), figures("las")
    own = own.model_copy(update={"wait_s": own.wait_s.model_copy(update={"mean": 50.0})})
    summary = Summary(jobs=12, gpus=16, format="", left_out={}, notes=[], compared=[own, wanted], pictures=[])
    (queue.store._home / later.id / SUMMARY).write_text(summary.model_dump_json())
    promise = promise_of(queue, "las")
    assert promise is not None
    assert tuple(getattr(promise, name) for name in promise.__struct_fields__[:3]) == (later.id, 4.0, 12)
    assert tuple(getattr(promise, name) for name in promise.__struct_fields__[3:]) == (9000.0, 9000.0, 50.0, 9000.0)


def test_what_earlier_releases_stored_is_read() -> None:
    """They called a trouble's `fix` by another name, and knew neither the 95th percentile nor sentences."""
    one = replace(made(1, "mira", Stage.FAILED), trouble=Trouble(where="trace", what="it is empty", fix="Name another"))
    told = json.loads(COMPARISON.encode(one))
    assert told["trouble"].pop("fix") == told["trouble"]["mend"]
    assert COMPARISON.of(told) == one
    summary = Summary(jobs=1, gpus=2, format="own", left_out={}, notes=[], compared=[figures("fifo")], pictures=[])
    told = summary.model_dump(exclude={"says", "missing"})
    for each in told["compared"]:
        del each["jct_s"]["p95"], each["wait_s"]["p95"]
    assert Summary.model_validate(told) == summary
