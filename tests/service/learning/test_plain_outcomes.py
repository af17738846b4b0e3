"""Outcomes and what is set aside are kept as two lists would keep them, over random changes by two clusters."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from perdure.errors import TooMany
from perdure.service.learning import outcome_store
from perdure.service.learning.outcome_store import (
    Aside,
    AsideIndex,
    JobOutcome,
    OutcomeStore,
    SetAside,
    counted,
    day_of,
)
from perdure.service.store.journal import Journal
from perdure.triage.learning.testimony import Outcomes

DAY_S = 86_400.0
USERS, MESSAGES = ("ada", "bob", "eve"), ("f", "g")
MOST, MOST_OF_USER, MOST_ASIDE = 9, 5, 3


class PlainOutcomes:
    """The rows of one cluster, oldest first."""

    def __init__(self) -> None:
        self.rows: list[JobOutcome] = []
        self.aside: dict[tuple[Aside, str], SetAside] = {}

    def note(self, new: JobOutcome) -> None:
        for at, row in enumerate(self.rows):
            if (row.job_id, row.fingerprint) == (new.job_id, new.fingerprint):
                self.rows[at] = JobOutcome(row.job_id, row.fingerprint, row.time_s, row.user, new.passed, row.message)
                return
        self.rows.append(new)

    def counts(self, row: JobOutcome) -> bool:
        marks = {(Aside.USER, row.user), (Aside.MESSAGE, row.fingerprint), (Aside.DAY, day_of(row.time_s))}
        return not marks & set(self.aside)

    def by_user(self, fingerprint: str) -> dict[str, Outcomes]:
        found = {}
        rows = [row for row in self.rows if row.fingerprint == fingerprint and self.counts(row)]
        for user in {row.user for row in rows}:
            passed = [row.passed for row in rows if row.user == user]
            found[user] = Outcomes(sum(passed), len(passed) - sum(passed))
        return found

    def prune(self) -> int:
        before = len(self.rows)
        for user in USERS:
            mine = [row for row in self.rows if row.user == user]
            gone = mine[: max(0, len(mine) - MOST_OF_USER)]
            self.rows = [row for row in self.rows if row not in gone]
        self.rows = self.rows[-MOST:]
        return before - len(self.rows)


def changed(store: OutcomeStore, plain: PlainOutcomes, rng: random.Random, now: float) -> None:
    """One change, of both."""
    kind, day = rng.choice((Aside.USER, Aside.MESSAGE, Aside.DAY)), day_of(DAY_S * rng.randrange(3))
    value = {Aside.USER: rng.choice(USERS), Aside.MESSAGE: rng.choice(MESSAGES), Aside.DAY: day}[kind]
    match rng.randrange(10):
        case 0:
            assert store.prune() == plain.prune()
        case 1 | 2:
            reason = rng.choice(("", "contradicted"))
            about = SetAside(kind, value, now, "root", reason)
            had = plain.aside.get((kind, value))
            known = [one for one in plain.aside.values() if one.kind is not Aside.TRUSTED]
            if had is None and len(known) >= MOST_ASIDE:
                with pytest.raises(TooMany):
                    store.put_aside(kind, value, "root", now, reason)
                return
            store.put_aside(kind, value, "root", now, reason)
            if had is None or not reason:  # a person's word outranks the service's
                plain.aside[kind, value] = about
        case 3:
            was = plain.aside.pop((kind, value), None)
            assert store.approve(kind, value, "root", now) is (was is not None)
            if was is not None and kind is Aside.USER:
                newest = max((row.seq for row in store.newest()), default=0)
                plain.aside[Aside.TRUSTED, value] = SetAside(Aside.TRUSTED, value, now, "root", "", newest)
        case _:
            time_s = rng.choice((0.0, DAY_S - 1e-3, DAY_S, 2 * DAY_S, rng.random() * 3 * DAY_S))
            new = JobOutcome(str(rng.randrange(12)), rng.choice(MESSAGES), time_s, rng.choice(USERS),
                             rng.random() < 0.5, f"torn at {now}")  # fmt: skip
            store.note([new])
            plain.note(new)


@pytest.mark.parametrize("seed", range(4))
def test_outcomes_are_kept_as_lists_would(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_store, "MAX_OUTCOMES", MOST)
    monkeypatch.setattr(outcome_store, "MAX_OF_USER", MOST_OF_USER)
    monkeypatch.setattr(outcome_store, "MAX_SET_ASIDE", MOST_ASIDE)
    rng = random.Random(seed)
    with closing(Journal.open(tmp_path, "atlas")) as journal:
        both = [(OutcomeStore(journal.store, name), PlainOutcomes()) for name in ("atlas", "zz")]
        for step in range(45):
            changed(*rng.choice(both), rng, float(step))
            for store, plain in both:
                assert store.newest(100) == plain.rows[::-1]
                assert store.newest(3) == plain.rows[::-1][:3]
                latest = sorted(plain.aside.values(), key=lambda one: -one.time_s)
                assert store.set_aside() == latest
                index = AsideIndex(store.set_aside())
                for message in MESSAGES:
                    assert store.by_user(message) == plain.by_user(message)
                    of_message = [row for row in plain.rows if row.fingerprint == message]
                    assert counted(of_message, index) == plain.by_user(message)
