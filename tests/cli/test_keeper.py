"""A keeper that takes over a chain of which more was done than its directory says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.backends.slurm.tools import Tools
from perdure.cli import keeper
from perdure.cli.chain_journal import ChainJournal, KeptChain, LinkPlan
from perdure.cli.keep_judge import judge_link
from perdure.cli.keep_outlook import Outlook
from perdure.cli.keep_plan import Deciding
from perdure.cli.keeper import Keeper
from perdure.cli.lookout import Look
from perdure.succession.chain_state import ChainSpec, JobChain, Strategy

NOW_S = 1_600_000_000.0


class Site:
    """A Slurm that takes every job, and of which a look may be an earlier one."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.now, self.submitted, self.seen = NOW_S, 0, Look(None, 0.0)
        patch.setattr("time.time", lambda: self.now)
        patch.setattr(keeper, "submit", self.submit)
        journal = ChainJournal.of({"PERDURE_KEEP_DIR": str(home)}, "c")
        self.kept = begun(journal, home)
        lookout: Any = self
        deciding = Deciding(lambda *_: Outlook(None, ()))
        self.keeper = Keeper(
            journal, lookout, Tools(), deciding, judge_link, lambda *_: None, lambda _: False
        )  # fmt: skip

    def look(self, _: float) -> Look:
        return self.seen

    def submit(self, *_: object) -> str:
        self.submitted += 1
        return str(self.submitted)

    def round_after(self, seconds: float, seen: Look) -> None:
        self.now += seconds
        self.seen = seen
        self.keeper._round(self.kept)


def begun(journal: ChainJournal, home: Path) -> KeptChain:
    kept = journal.make("train")
    spec = ChainSpec(
        kept.id, f"{kept.id}.ab", "train", str(home / "train.sh"), str(home), "mira", NOW_S, 600.0,
        strategy=Strategy.NONE, planner="reactive",
    )  # fmt: skip
    kept.write(JobChain(spec))
    plan = LinkPlan((("time", "10", ("--time", "10")),), 0, ("/bin/sh", "train.sh"))
    (kept.path / "plan.json").write_bytes(msgspec.json.encode(plan))
    (kept.path / "environment.json").write_text("{}")
    return kept


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in ("HOME", "PERDURE_KEEP_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    return Site(tmp_path, monkeypatch)


def test_only_a_look_since_the_takeover_shows_all_jobs_of_such_a_chain(place: Site) -> None:
    """An earlier look may lack a job whose submission nobody wrote down: a second one would be submitted."""
    place.kept.fall_behind()
    assert place.keeper._taken(place.kept) is not None
    for seen in (Look(None, 0.0), Look((), NOW_S - 1.0), Look(None, NOW_S + 5.0)):
        place.round_after(10.0, seen)
        assert place.kept.is_behind()
        assert not place.submitted
    place.round_after(10.0, Look((), NOW_S))
    place.round_after(10.0, Look((), NOW_S + 45.0))
    assert place.submitted == 1
    assert not place.kept.is_behind()


def test_a_chain_that_was_written_needs_no_look_to_go_on(place: Site) -> None:
    assert place.keeper._taken(place.kept) is not None
    place.round_after(10.0, Look((), NOW_S - 1.0))
    place.round_after(10.0, Look((), NOW_S - 1.0))
    assert place.submitted == 1
