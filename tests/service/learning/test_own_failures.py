"""A site's own failures: what retries prove of a message decides the next verdict on it, and nothing else's."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.model.events import AttemptEnded, AttemptStarted, JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.output import Output
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Journalled, Judged
from perdure.service.learning.learner import Learner
from perdure.service.learning.training_store import TrainingStore
from perdure.service.store.journal import Journal
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.rules import own_rules
from perdure.triage.verdict import LEARNT, Label, Verdict
from tests.copying import replace

TRACE = b'Traceback (most recent call last):\n  File "/home/u/train.py", line 7, in <module>\n'
SRUN = b"srun: error: n1: task 0: Exited with exit code 3\n"
JAM = b"frobnicator jammed: bay {n} gives no token\n"
KINDS: tuple[tuple[bytes, bool], ...] = (  # whether a retry passes
    (JAM, True),
    (b"[FLUXCAP] E4411 plasma coupling {n} out of phase, giving up\n", False),
    (b"vaultd: seat {n} is taken by session 88{n}\n" + SRUN, True),
    (b"ERROR tracer: beam {n} was not aligned\n", False),
    (TRACE + b"BadShard: shard {n} has odd parts\n", False),
    (TRACE + b"acme.store.TokenSpent: no token left in bucket {n}\n", True),
    (TRACE + b"acme.errors.QuarkMismatch: expected {n} quarks, got 5\n" + SRUN, False),
    (TRACE + b"RuntimeError: the frobnicator of bay {n} has jammed\n", True),
    (TRACE + b"WarpError: invalid lattice for site {n}\n", True),
    (TRACE + b"LatticeError: the frozen lattice {n} differs\n", False),
)


class Site:
    """A service's journal and learner, in which jobs fail and are retried."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.learner = Learner(TrainingStore(journal.store, "c"), own_rules(), lambda: 7000.0)
        self._jobs = 0

    def fail(self, log: bytes, user: str, passes: bool | None = None) -> Verdict:
        """A job of `user` fails with `log`; run again elsewhere it passes, or fails alike. None: nobody runs it."""
        self._jobs += 1
        text = log.replace(b"{n}", b"%d" % self._jobs)
        verdict = self._attempt(1, text, user)
        if passes is not None:
            self._attempt(2, None if passes else text, user)
        return verdict

    def _attempt(self, number: int, log: bytes | None, user: str) -> Any:
        job_id = str(self._jobs)
        state, job = ControllerState("c"), Job("c", job_id, "train", user, JobState.RUNNING, 0.0)
        begun = 1000.0 * number
        run = Attempt(AttemptId("c", job_id, number), AttemptState.RUNNING, (f"n{number}",), begun, user=user)
        end = AttemptState.FAILED if log is not None else AttemptState.COMPLETED
        over = replace(run, state=end, end_s=begun + 100, exit_code=3 if log is not None else 0)
        effects = [Journalled(JobChanged(0.0, job)), Journalled(AttemptStarted(begun, run))]
        effects.append(Journalled(AttemptEnded(begun + 100, over)))
        verdict = None
        if log is not None:
            verdict = self.learner.judge(Output.of(log), over, Context())
            effects.append(Journalled(Judged(begun + 100, over.id, verdict)))
        self.journal.record(effects, state, state)
        return verdict


@pytest.fixture
def place(journal: Journal) -> Site:
    return Site(journal)


def learnt_of(verdict: Verdict) -> list[str]:
    return [line.text for line in verdict.evidence if line.rule == LEARNT]


def test_three_outcomes_of_two_users_decide_the_next_verdict(place: Site) -> None:
    assert place.fail(JAM, "ada", passes=True).label is Label.UNSURE
    assert place.fail(JAM, "bob", passes=True).label is Label.UNSURE
    place.fail(JAM, "ada", passes=True)
    verdict = place.fail(JAM, "eve")
    assert verdict.label is Label.TRANSIENT
    assert learnt_of(verdict)[0].startswith("learnt from 3 outcomes here, of 2 users")


@pytest.mark.parametrize(("log", "passes"), KINDS)
def test_each_new_kind_is_decided_rightly_from_the_fourth_on(place: Site, log: bytes, passes: bool) -> None:
    for user in ("ada", "bob", "cleo"):
        first = place.fail(log, user, passes=passes)
        assert first.label is not Label.DETERMINISTIC or not passes
    for user in ("dora", "ada"):
        verdict = place.fail(log, user, passes=passes)
        assert verdict.label is (Label.TRANSIENT if passes else Label.DETERMINISTIC)
