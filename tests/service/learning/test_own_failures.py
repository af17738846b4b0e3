"""A site's own failures: what retries prove of a message decides the next verdict on it, and nothing else's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from time import process_time, tzset
from typing import Any

import pytest

from perdure.errors import NotPermitted, StateError, TooMany
from perdure.model.events import AttemptEnded, AttemptStarted, JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.output import Output
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Journalled, Judged
from perdure.service.learning import learnt_messages, outcome_store, training_store
from perdure.service.learning.corrections import corrected
from perdure.service.learning.learner import Learner
from perdure.service.learning.outcome_store import Aside, AsideIndex, JobOutcome, OutcomeStore, SetAside
from perdure.service.learning.training_store import Correction, Read, TrainingStore
from perdure.service.store.journal import Journal
from perdure.service.store.queries.learning import word_of
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import examine
from perdure.triage.learning.examples import LabelSource
from perdure.triage.learning.testimony import Outcomes
from perdure.triage.learning.verdict_changes import ChangedBy
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
        self.jobs = 0

    def fail(self, log: bytes, user: str, passes: bool | None = None) -> Verdict:
        """A job of `user` fails with `log`; run again elsewhere it passes, or fails alike. None: nobody runs it."""
        self.jobs += 1
        text = log.replace(b"{n}", b"%d" % self.jobs)
        verdict = self._attempt(1, text, user)
        if passes is not None:
            self._attempt(2, None if passes else text, user)
        return verdict

    def _attempt(self, number: int, log: bytes | None, user: str) -> Any:
        job_id = str(self.jobs)
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
def place(tmp_path: Path) -> Iterator[Site]:
    journal = Journal.open(tmp_path / "state", "c")
    yield Site(journal)
    journal.close()


def learnt_of(verdict: Verdict) -> list[str]:
    return [line.text for line in verdict.evidence if line.rule == LEARNT]


def test_three_outcomes_of_two_users_decide_the_next_verdict(journal: Journal) -> None:
    place = Site(journal)  # in each kind of database
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


@pytest.mark.parametrize(("log", "passes"), KINDS)
def test_what_two_users_saw_thrice_retries_the_job_of_a_third_and_stops_it_once_it_was_tried(
    place: Site, log: bytes, passes: bool
) -> None:
    for user in ("ada", "bob", "ada"):
        place.fail(log, user, passes=passes)
    place.learner.store.note_outcomes()
    says = "would pass when run again" if passes else "would fail again: stops jobs of these users, others' are"
    assert place.learner.messages()[0].says.startswith(says)
    assert place.fail(log, "cleo", passes=passes).label is (Label.TRANSIENT if passes else Label.UNSURE)
    for user in ("cleo", "dora", "ada"):
        assert place.fail(log, user).label is (Label.TRANSIENT if passes else Label.DETERMINISTIC)


ORDINARY = (
    TRACE + b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    TRACE + b"RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)\n",
    TRACE + b"ModuleNotFoundError: No module named 'apex'\n",
    b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
    TRACE + b"ConnectionResetError: [Errno 104] Connection reset by peer\n",
)


def confirmed(place: Site, which: AttemptId) -> bool:
    (said,) = [one for one in place.learner.store.corrections() if one.attempt == which]
    word = word_of(which.job_id, which.incarnation, said.time_s, said.transient, said.by)
    return place.learner.confirm(which, word, "root")


HOSTILE = 12  # forged passes of each


def labels(place: Site, user: str = "zoe") -> list[Label]:
    """What a user who has failed with none of them would be told of each kind now; nothing of it is kept."""
    told = []
    for n, log in enumerate([*(log for log, _ in KINDS), *ORDINARY]):
        over = Attempt(AttemptId("c", f"look{n}", 1), AttemptState.FAILED, ("n9",), 0.0, 90.0, exit_code=3, user=user)
        told.append(place.learner.judge(Output.of(log.replace(b"{n}", b"7")), over, Context()).label)
    return told


@pytest.fixture
def taught(tmp_path: Path) -> Iterator[Site]:
    """A site where three users have seen four of the kinds, each five times."""
    journal = Journal.open(tmp_path / "state", "c")
    place = Site(journal)
    for log, passes in KINDS[:4]:
        for user in ("ada", "bob", "cleo", "ada", "bob"):
            place.fail(log, user, passes)
    yield place
    journal.close()


@pytest.mark.parametrize("hostile", [("eve",), ("eve", "mallory")])
def test_forged_passes_and_words_change_no_verdict_of_others(taught: Site, hostile: tuple[str, ...]) -> None:
    before = labels(taught)
    forged = [*(log for log, passes in KINDS[:4] if not passes), *ORDINARY[:3]]
    for user in hostile:
        for n in range(HOSTILE):
            taught.fail(forged[n % len(forged)], user, passes=True)
            taught.learner.correct(AttemptId("c", str(taught.jobs), 1), True, user, for_all=False)
    taught.learner.turn()
    assert labels(taught) == before
    assert all(label is Label.TRANSIENT for label in labels(taught, "eve")[10:13])  # his own, by his word
    for user in hostile:
        taught.learner.put_aside(Aside.USER, user, "root")
    assert labels(taught, "eve") == before


def test_what_a_user_a_message_or_a_day_taught_is_undone_and_approved_again(taught: Site) -> None:
    taught_labels, (fingerprint, *_) = labels(taught), [one.fingerprint for one in taught.learner.messages()]
    asides = [(Aside.DAY, "1970-01-01"), (Aside.MESSAGE, fingerprint)]
    for kind, value in asides:
        taught.learner.put_aside(kind, value, "root")
        assert labels(taught) != taught_labels
        again = Learner(taught.learner.store, own_rules(), lambda: 7000.0)  # as after a restart
        assert again.approve(kind, value, "root")
        assert labels(taught) == taught_labels
        assert not again.approve(kind, value, "root")


def test_messages_tell_what_was_learnt_of_them_and_users_see_their_own(taught: Site) -> None:
    taught.learner.store.note_outcomes()
    every = {one.message: one for one in taught.learner.messages()}
    jam = every["frobnicator jammed: bay <n> gives no token"]
    assert (jam.passed, jam.failed, jam.users, jam.says) == (5, 0, ("ada", "bob", "cleo"), "would pass when run again")
    assert {one.users for one in taught.learner.messages("cleo")} == {("cleo",)}
    assert taught.learner.messages("zoe") == []


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ([("ada", True)], "too few yet: nothing is learnt"),
        ([("ada", False)], "too few yet: nothing is learnt"),
        ([("ada", True), ("ada", True)], learnt_messages.ONE_USERS),
        ([("ada", False)] * 3, learnt_messages.ONE_USERS),
        ([("ada", True), ("bob", False)], "they contradict each other: nothing is learnt"),
        ([("ada", True), ("ada", True), ("ada", False)], "they contradict each other: nothing is learnt"),
    ],
)
def test_what_outcomes_of_few_do_is_said_as_it_is(place: Site, seen: list[tuple[str, bool]], says: str) -> None:
    found = [JobOutcome(str(n), "~f", 0.0, user, passed, "m") for n, (user, passed) in enumerate(seen)]
    place.learner.store.outcomes.note(found)
    (told,) = place.learner.messages()
    assert told.says == says


def test_messages_of_one_user_hide_none_of_others(place: Site) -> None:
    outcomes = place.learner.store.outcomes
    outcomes.note([JobOutcome("a", "~old", 0.0, user, True, "of two") for user in ("ada", "bob")])
    outcomes.note([JobOutcome("b", "~old", 0.0, "bob", True, "of two")])
    for user in ("eve", "mallory"):
        outcomes.note(JobOutcome(f"{user}{n}", f"~{n}", 9.0, user, True, "forged") for n in range(200))
    place.learner.put_aside(Aside.USER, "eve", "root")
    assert len(place.learner.messages()) == learnt_messages.MOST_OF_ONE + 1
    assert place.learner.messages()[-1].message == "of two"
    assert len(place.learner.messages("mallory")) == 200


def test_how_much_is_set_aside_is_told(taught: Site) -> None:
    taught.learner.store.note_outcomes()
    taught.learner.correct(AttemptId("c", "1", 1), True, "ada", for_all=False)
    assert taught.learner.put_aside(Aside.USER, "ada", "root") == 8 + 1  # outcomes, and a word
    assert taught.learner.put_aside(Aside.DAY, "1970-01-01", "root") == 20 + 1
    assert taught.learner.put_aside(Aside.USER, "adda", "root") == 0


def test_outcomes_outlive_the_rows_of_their_jobs(taught: Site) -> None:
    before = labels(taught)
    taught.learner.store.note_outcomes()
    while taught.journal.prune(now=1e9, keep_days=1.0):
        pass
    assert labels(taught) == before


def test_of_one_job_the_latest_proof_counts(taught: Site) -> None:
    outcomes = taught.learner.store.outcomes
    for passed in (False, True):
        outcomes.note([JobOutcome("1", "new", 0.0, "ada", passed, "")])
    assert outcomes.by_user("new") == {"ada": Outcomes(passed=1)}


def test_one_user_crowds_out_nobody(taught: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_store, "MAX_OF_USER", 4)
    outcomes = taught.learner.store.outcomes
    outcomes.note(JobOutcome(f"e{n}", f"f{n}", 0.0, "eve", True, "") for n in range(9))
    outcomes.prune()
    kept = Counter(each.user for each in outcomes.newest())
    assert kept["eve"] == 4
    assert kept["cleo"] == 4


def test_an_operators_word_decides_and_no_owner_undoes_it(taught: Site) -> None:
    taught.fail(KINDS[8][0], "ada")
    which = AttemptId("c", str(taught.jobs), 1)
    taught.learner.correct(which, True, "ada", for_all=False)
    assert labels(taught)[8] is Label.UNSURE
    assert confirmed(taught, which)
    assert labels(taught)[8] is Label.TRANSIENT
    taught.learner.correct(which, False, "root", for_all=True)
    assert labels(taught)[8] is Label.DETERMINISTIC
    with pytest.raises(NotPermitted):
        taught.learner.correct(which, True, "ada", for_all=False)
    with pytest.raises(NotPermitted):
        taught.learner.withdraw(which, for_all=False)
    assert labels(taught)[8] is Label.DETERMINISTIC


def test_a_users_newer_word_does_not_outrank_an_operators_older_one(taught: Site) -> None:
    for now, by, transient in ((7000.0, "root", False), (8000.0, "ada", True)):
        taught.fail(KINDS[8][0], "ada")
        which = AttemptId("c", str(taught.jobs), 1)
        taught.learner.store.correct(which, transient, by, for_all=by == "root", now=now)
    taught.learner = Learner(taught.learner.store, own_rules(), lambda: 9000.0)
    assert labels(taught, "ada")[8] is Label.DETERMINISTIC


def test_words_of_users_are_not_taught_until_an_operator_confirms_them(taught: Site) -> None:
    taught.fail(KINDS[8][0], "ada")
    which = AttemptId("c", str(taught.jobs), 1)
    before = len(taught.learner.store.training_examples({}))
    taught.learner.correct(which, True, "ada", for_all=False)
    assert len(taught.learner.store.training_examples({})) == before
    assert which not in {one.attempt for one in taught.learner.store.proven()}
    assert confirmed(taught, which)
    assert len(taught.learner.store.training_examples({})) == before + 1


def test_a_roll_back_holds_until_somebody_asks_for_a_round(taught: Site) -> None:
    assert taught.learner.learn(anyway=True) is not None
    if not taught.learner.roll_back(taught.learner.store.in_use(), "root"):
        pytest.fail("no model was adopted")
    for user in ("ada", "bob", "cleo", "dora", "ada", "bob"):  # news enough for a round
        taught.fail(KINDS[4][0], user, passes=False)
    assert taught.learner.learn() is None
    again = Learner(taught.learner.store, own_rules(), lambda: 7000.0)
    assert again.is_held
    assert again.learn() is None
    assert again.learn(anyway=True) is not None
    assert not again.is_held


def test_nobody_uses_up_the_probes_of_others(place: Site) -> None:
    log = TRACE + b"acme.LatticeMismatch: the shapes of the lattice do not match\n"
    assert [place.fail(log, "eve").label for _ in range(4)] == [Label.UNSURE] * 3 + [Label.DETERMINISTIC]
    place.fail(log, "mallory")
    assert place.fail(log, "ada").label is Label.UNSURE


def test_a_roll_back_that_a_crash_cuts_short_holds_training(taught: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    taught.learner.learn(anyway=True)

    def crash(_: int) -> bool:
        raise StateError("journal", "it is gone", "Start again")

    monkeypatch.setattr(taught.learner.store, "roll_back", crash)
    with pytest.raises(StateError):
        taught.learner.roll_back(taught.learner.store.in_use(), "root")
    assert taught.learner.is_held


def test_a_word_given_beside_another_holds(taught: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request has read the corrections, and another writes one before the first takes what it read."""
    store, beside = taught.learner.store, Event()
    attempts = [AttemptId("c", str(n), 1) for n in (1, 6)]
    read = store.corrections
    later = Thread(target=lambda: taught.learner.correct(attempts[1], True, "root", for_all=True))

    def slow() -> list[Correction]:
        found = read()
        if not beside.is_set():
            beside.set()
            later.start()
            later.join(0.5)
        return found

    monkeypatch.setattr(store, "corrections", slow)
    taught.learner.correct(attempts[0], False, "root", for_all=True)
    later.join()
    assert labels(taught)[:2] == [Label.DETERMINISTIC, Label.TRANSIENT]


def test_what_is_set_aside_makes_a_round_worth_it(taught: Site) -> None:
    assert taught.learner.learn(anyway=True) is not None
    assert taught.learner.learn() is None
    taught.learner.put_aside(Aside.USER, "ada", "root")
    assert taught.learner.learn() is not None


def test_what_is_set_aside_widens_no_thresholds(taught: Site) -> None:
    assert {one.user for one in taught.learner.store.proven()} == {"ada", "bob", "cleo"}
    taught.learner.put_aside(Aside.USER, "ada", "root")
    assert {one.user for one in taught.learner.store.proven()} == {"bob", "cleo"}


def test_what_two_users_saw_of_a_named_cause_is_not_said_to_decide(taught: Site) -> None:
    for user in ("ada", "bob"):
        taught.fail(ORDINARY[1], user, passes=True)
    taught.learner.store.note_outcomes()
    assert labels(taught)[len(KINDS) + 1] is Label.DETERMINISTIC
    (shapes,) = [one for one in taught.learner.messages() if "mat1 and mat2" in one.message]
    assert shapes.says.startswith("would pass when run again, unless a rule names the cause")


def test_more_than_fits_is_not_set_aside_and_none_is_forgotten(taught: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_store, "MAX_SET_ASIDE", 2)
    for user in ("eve", "mallory"):
        taught.learner.put_aside(Aside.USER, user, "root")
    with pytest.raises(TooMany):
        taught.learner.put_aside(Aside.USER, "trudy", "root")
    taught.learner.put_aside(Aside.USER, "eve", "ada")  # is no more than before
    taught.learner.store.outcomes.put_aside(Aside.TRAINING, "", "root", 7000.0)
    assert taught.learner.is_held
    assert len(taught.learner.store.outcomes.set_aside()) == 3


def test_as_much_as_may_be_set_aside_makes_no_message_slow() -> None:
    found = [JobOutcome(f"{n}", "f", 86400.0 * (n % 9), f"u{n % 3}", True, "m") for n in range(9_000)]
    aside = [SetAside(Aside.USER, f"x{n}", 0.0, "root") for n in range(997)]
    aside += [SetAside(Aside.USER, "u1", 0.0, "root"), SetAside(Aside.DAY, "1970-01-01", 0.0, "root")]
    begun = process_time()
    counts = outcome_store.counted(found, AsideIndex(aside))
    assert process_time() - begun < 1.0  # 6 s where each is compared with each
    assert counts == {"u0": Outcomes(2000, 0), "u2": Outcomes(3000, 0)}
    assert outcome_store.counted(found, AsideIndex([SetAside(Aside.MESSAGE, "f", 0.0, "root")])) == {}


def test_messages_tell_which_verdicts_they_changed_also_after_a_restart(place: Site) -> None:
    log = KINDS[8][0]  # by its words alone its jobs would be stopped
    for user in ("ada", "bob", "ada", "cleo", "dora"):
        place.fail(log, user, passes=True if user in {"ada", "bob"} else None)
    learner = Learner(TrainingStore(place.journal.store, "c"), own_rules(), lambda: 7000.0)
    (told,) = learner.messages()
    assert {(one.says, one.change.by): one.jobs for one in told.changed} == {
        ("stop -> probe", ChangedBy.NEW): 2,
        ("stop -> probe", ChangedBy.OUTCOMES): 1,
        ("stop -> retry", ChangedBy.OUTCOMES): 2,
    }
    (mine,) = learner.messages("cleo")
    assert [(one.says, one.jobs) for one in mine.changed] == [("stop -> retry", 1)]
    assert (mine.users, mine.passed) == ((), 3)
    assert learner.messages("zoe") == []


def test_a_verdict_that_is_judged_again_is_counted_once_and_as_it_was_given(place: Site) -> None:
    """A service that is killed between keeping what it read and writing the verdict judges again."""
    log = KINDS[8][0].replace(b"{n}", b"7")
    for user in ("ada", "bob", "ada"):
        place.fail(log, user, passes=True)
    over = Attempt(AttemptId("c", "again", 1), AttemptState.FAILED, ("n9",), 0.0, 90.0, exit_code=3, user="eve")
    for _ in range(2):
        assert place.learner.judge(Output.of(log), over, Context()).label is Label.TRANSIENT
    assert [one.jobs for one in place.learner.messages("eve")[0].changed] == [1]
    place.learner.put_aside(Aside.MESSAGE, place.learner.messages()[0].fingerprint, "root")
    place.learner.correct(over.id, False, "root", for_all=True)
    assert place.learner.judge(Output.of(log), over, Context()).label is Label.DETERMINISTIC
    assert place.learner.messages("eve") == []


def test_a_word_that_changes_verdicts_is_told_of_its_message(place: Site) -> None:
    log = KINDS[0][0]
    place.fail(log, "ada")
    place.learner.correct(AttemptId("c", "1", 1), False, "root", for_all=True)
    place.fail(log, "bob")
    (told,) = place.learner.messages()
    assert (told.message, told.passed, told.users) == ("frobnicator jammed: bay <n> gives no token", 0, ())
    assert [(one.says, one.change.by, one.jobs) for one in told.changed] == [("probe -> stop", ChangedBy.PERSON, 1)]


def forge(place: Site, days: range = range(8)) -> None:
    """On eight days others fail alike with ten messages, and eve has each pass."""
    outcomes = [
        JobOutcome(f"{user}{day}{n}", f"~{n}", day * 86400.0, user, user == "eve", f"message {n}")
        for day in days
        for n in (day % 5, day % 5 + 5)
        for user in ("ada", "bob", "cleo", "eve")
    ]
    place.learner.store.outcomes.note(outcomes)


def test_users_whom_others_contradict_are_set_aside_by_the_service(place: Site) -> None:
    forge(place)
    place.fail(KINDS[0][0], "eve")
    place.learner.correct(AttemptId("c", "1", 1), False, "eve", for_all=False)
    place.learner.turn()
    (held,) = place.learner.store.outcomes.set_aside()
    assert (held.kind, held.value, held.by) == (Aside.USER, "eve", "perdure")
    assert held.reason == "of 10 messages at least 3 other users each saw the opposite"
    assert "eve" not in place.learner.store.outcomes.by_user("~1")
    again = place.learner = Learner(place.learner.store, own_rules(), lambda: 8 * 86400.0)
    assert place.fail(KINDS[0][0], "eve").label is Label.DETERMINISTIC  # their word on their own jobs stays
    assert again.approve(Aside.USER, "eve", "root")
    again.turn()
    assert [one.kind for one in again.store.outcomes.set_aside()] == [Aside.TRUSTED]
    assert "eve" in again.store.outcomes.by_user("~1")


def test_a_user_who_was_let_count_again_is_judged_by_what_they_teach_since(place: Site) -> None:
    forge(place)
    outcomes = place.learner.store.outcomes
    outcomes.put_aside(Aside.USER, "eve", "root", 0.0)
    assert outcomes.contradicted() == []
    outcomes.approve(Aside.USER, "eve", "root", 8 * 86400.0)
    assert outcomes.contradicted() == []
    forge(place, range(8, 10))
    assert outcomes.contradicted() == []  # all of two days
    forge(place, range(10, 16))
    assert [one.user for one in outcomes.contradicted()] == ["eve"]


def test_a_clock_that_ran_ahead_shields_nobody(place: Site) -> None:
    """A user is let count again in a year to come; then the clock is set back, and they forge on."""
    forge(place)
    outcomes = place.learner.store.outcomes
    outcomes.put_aside(Aside.USER, "eve", "root", 0.0)
    assert outcomes.approve(Aside.USER, "eve", "root", 400 * 86400.0)
    assert outcomes.contradicted() == []  # what they taught before is not held against them
    forge(place, range(8, 16))
    assert [one.user for one in outcomes.contradicted()] == ["eve"]


def test_no_reason_of_the_service_replaces_an_operators_word(place: Site) -> None:
    outcomes = place.learner.store.outcomes
    for by, reason in (("perdure", "why"), ("root", ""), ("perdure", "why")):
        outcomes.put_aside(Aside.USER, "eve", by, 0.0, reason)
    (held,) = outcomes.set_aside()
    assert (held.by, held.reason, held.is_automatic) == ("root", "", False)


WORDS = 30  # of each hostile viewer; `make bench-learning-cost` has 500


def test_words_of_hostile_viewers_move_no_verdict_of_others_and_are_undone_at_once(taught: Site) -> None:
    hostile = ("eve", "mallory")
    before, own = labels(taught), labels(taught, "eve")
    logs = [*(log for log, _ in KINDS), *ORDINARY]
    over = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n9",), 0.0, 90.0, exit_code=3)
    found = [examine(log.replace(b"{n}", b"7"), over) for log in logs]
    for n in range(WORDS):
        for user in hostile:
            which = replace(over, id=AttemptId("c", f"{user}{n}", 1), user=user)
            taught.learner.store.keep(Read.of(which, found[n % len(found)], 7000.0))
            taught.learner.store.correct(which.id, before[n % len(logs)] is not Label.TRANSIENT, user, False, 7000.0)
    taught.learner.turn()  # takes no word either
    taught.learner = Learner(taught.learner.store, own_rules(), lambda: 7000.0)
    assert labels(taught) == before
    assert labels(taught, "eve") != own
    assert all(one.source is not LabelSource.PERSON for one in taught.learner.store.training_examples({}))
    for user in hostile:
        taught.learner.put_aside(Aside.USER, user, "root")
    assert [one for one in taught.learner._corrections if one.by in hostile] == []
    taught.fail(KINDS[0][0], "ada", passes=True)
    assert taught.learner.learn(anyway=True) is not None
    assert labels(taught) == before


def test_of_a_message_that_many_have_few_excerpts_are_kept(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_store, "KEPT_OF_MESSAGE", 4)
    over = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n9",), 0.0, 90.0, exit_code=3)
    found = examine(KINDS[0][0], over)
    for n in range(6):
        place.learner.store.keep(Read.of(replace(over, id=AttemptId("c", f"{n}", 1), user=f"u{n}"), found, 7000.0))
    with place.journal.engine.connect() as db:
        kept = db.exec_driver_sql("SELECT count(*), count(packed) FROM readings").one()
    assert tuple(kept) == (6, 4)


def test_what_users_of_another_cluster_saw_counts_only_there(place: Site) -> None:
    there = OutcomeStore(place.journal.store, "other")
    there.note([JobOutcome("1", "~f", 0.0, "eve", True, "m")])
    assert place.learner.store.outcomes.by_user("~f") == {}
    assert there.by_user("~f") == {"eve": Outcomes(passed=1)}


def test_of_a_user_with_many_outcomes_the_newest_stay_though_others_wrote_since(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_store, "MAX_OF_USER", 4)
    outcomes = place.learner.store.outcomes
    for user in ("eve", "ada"):
        outcomes.note(JobOutcome(f"{user}{n}", "~f", 0.0, user, True, "") for n in range(9))
    outcomes.prune()
    assert sorted(each.job_id for each in outcomes.newest()) == [
        f"{user}{n}" for user in ("ada", "eve") for n in range(5, 9)
    ]


def test_whom_an_operator_let_count_again_last_is_remembered(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_store, "MAX_SET_ASIDE", 2)
    outcomes = place.learner.store.outcomes
    for now, user in enumerate(("ada", "bob", "cleo")):
        outcomes.put_aside(Aside.USER, user, "root", float(now))
        assert outcomes.approve(Aside.USER, user, "root", float(now))
    assert [(one.kind, one.value) for one in outcomes.set_aside()] == [(Aside.TRUSTED, "cleo"), (Aside.TRUSTED, "bob")]


def test_a_day_begins_in_utc_whatever_the_clock_of_the_machine_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", "Asia/Tokyo")
        tzset()
        told = outcome_store.start_of("1970-01-02"), outcome_store.day_of(86400.0)
    tzset()
    assert told == (86400.0, "1970-01-02")


def test_words_of_a_user_who_counts_again_hold_again_at_once(place: Site) -> None:
    place.fail(KINDS[8][0], "eve")
    place.learner.correct(AttemptId("c", "1", 1), True, "eve", for_all=False)
    assert labels(place, "eve")[8] is Label.TRANSIENT
    place.learner.put_aside(Aside.USER, "eve", "root")
    assert labels(place, "eve")[8] is Label.UNSURE
    place.learner.approve(Aside.USER, "eve", "root")
    assert labels(place, "eve")[8] is Label.TRANSIENT


def test_a_confirmed_word_outranks_a_newer_one_that_is_not(place: Site) -> None:
    for now, transient in ((7000.0, False), (8000.0, True)):
        place.fail(KINDS[8][0], "ada")
        place.learner.store.correct(AttemptId("c", str(place.jobs), 1), transient, "ada", False, now)
    assert confirmed(place, AttemptId("c", "1", 1))
    assert labels(place, "ada")[8] is Label.DETERMINISTIC


def test_an_operators_word_in_place_of_a_confirmed_one_is_confirmed_by_nobody(place: Site) -> None:
    place.fail(KINDS[8][0], "ada")
    which = AttemptId("c", "1", 1)
    place.learner.correct(which, True, "ada", for_all=False)
    assert confirmed(place, which)
    place.learner.correct(which, False, "sue", for_all=True)
    (said,) = place.learner.store.corrections()
    assert (said.by, said.confirmed_by, said.for_all) == ("sue", "", True)


def test_a_message_that_was_merely_new_is_not_listed(place: Site) -> None:
    place.fail(KINDS[8][0], "ada")
    assert place.learner.store.changes()
    assert place.learner.messages() == []


def test_a_job_that_failed_twice_is_one_job_whose_verdict_changed(place: Site) -> None:
    place.fail(KINDS[8][0], "bob", passes=False)
    place.learner.store.note_outcomes()
    (told,) = place.learner.messages()
    assert [(one.says, one.jobs) for one in told.changed] == [("stop -> probe", 1)]


def test_a_corrected_verdict_says_so_and_is_no_hearsay(place: Site) -> None:
    verdict = place.fail(KINDS[8][0], "ada")
    said = Correction(AttemptId("c", "1", 1), 0.0, "ada", verdict.fingerprint, True, "ada", for_all=False)
    found = corrected(replace(verdict, hearsay=True), [said], "ada")
    assert (found.label, found.hearsay) == (Label.TRANSIENT, False)
    assert found.summary.endswith("; corrected by a person: transient")
