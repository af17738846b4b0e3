"""Learning in the service: outcomes and persons make lessons, a person's word holds at once and for whom it may."""

from typing import Any

import pytest
from sqlalchemy import func, select

from perdure.errors import ClusterError, NotFound, StateError
from perdure.model.events import AttemptEnded, AttemptStarted, JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.output import Output
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Journalled, Judged
from perdure.service.learning import training_store
from perdure.service.learning.learner import Learner
from perdure.service.learning.outcome_store import SERVICE, Aside
from perdure.service.learning.training_store import KEPT_MODELS, Read, TrainingStore, is_corrected
from perdure.service.store.journal import Journal
from perdure.service.store.schema import terms
from perdure.triage.conformal import own_thresholds
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import examine
from perdure.triage.learning.examples import LabelSource
from perdure.triage.verdict import Label
from tests.copying import replace

JAM = b"step 10 ok\nRuntimeError: the frobnicator of bay {} has jammed\n"
SHAPE = b"Traceback (most recent call last):\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)\n"


@pytest.fixture
def store(journal: Journal) -> TrainingStore:
    return TrainingStore(journal.store, "c")


@pytest.fixture
def learner(store: TrainingStore) -> Learner:
    return Learner(store, own_rules(), lambda: 7000.0)


def write(
    journal: Journal, store: TrainingStore, job_id: str, ends: list[Any], user: str = "ada", log: bytes = JAM
) -> None:
    """A job's attempts: `ends` holds (state, node, seconds, perhaps a log) of each; failures are judged and kept."""
    state, job = ControllerState("c"), Job("c", job_id, "train", user, JobState.RUNNING, 0.0)
    effects = [Journalled(JobChanged(0.0, job))]
    for number, (end, node, seconds, *own) in enumerate(ends, 1):
        begun = 1000.0 * number
        attempt = Attempt(AttemptId("c", job_id, number), AttemptState.RUNNING, (node,), begun, user=user)
        over = replace(attempt, state=end, end_s=begun + seconds, exit_code=int(end is AttemptState.FAILED))
        effects += [Journalled(AttemptStarted(begun, attempt)), Journalled(AttemptEnded(begun + seconds, over))]
        if end is AttemptState.FAILED:
            found = examine(own[0] if own else log, over)
            effects.append(Journalled(Judged(begun + seconds, over.id, found.verdict)))
            verdict = found.verdict
            store.keep(Read(over.id, begun, user, verdict.fingerprint, verdict.category, found.reading))
    journal.record(effects, state, state)


FAILED, COMPLETED = AttemptState.FAILED, AttemptState.COMPLETED


def test_a_retry_that_passes_makes_a_lesson(journal: Journal, store: TrainingStore, learner: Learner) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0), (COMPLETED, "n2", 500.0)])
    (lesson,) = store.training_examples({rule.cause.name: rule.cause for rule in own_rules().rules})
    assert (lesson.attempt.incarnation, lesson.transient, lesson.source) == (1, True, LabelSource.OUTCOME)
    assert "frobnicator" in lesson.reading.excerpt


def test_a_job_that_once_got_past_a_failure_has_passed_it_though_it_comes_back(
    journal: Journal, store: TrainingStore
) -> None:
    ends = [(FAILED, "n1", 100.0), (FAILED, "n2", 800.0, SHAPE), (FAILED, "n3", 900.0), (FAILED, "n4", 905.0)]
    write(journal, store, "1", ends)
    store.note_outcomes()
    (outcome,) = [each for each in store.outcomes.newest() if each.fingerprint == examine(JAM).verdict.fingerprint]
    assert outcome.passed


def test_jobs_with_the_same_message_are_counted_once_each_and_each_other_user_once(
    journal: Journal, store: TrainingStore
) -> None:
    fingerprint = examine(JAM).verdict.fingerprint
    assert store.jobs_like(fingerprint, "ada", "1") == 1
    for job_id, user in (("1", "ada"), ("2", "ada"), ("3", "bob"), ("4", "bob")):
        write(journal, store, job_id, [(FAILED, "n1", 100.0), (FAILED, "n2", 110.0)], user)
    told = [store.jobs_like(fingerprint, *whose) for whose in (("ada", "1"), ("ada", "9"), ("bob", "3"), ("cleo", "9"))]
    assert told == [3, 4, 3, 3]
    assert store.jobs_like("none", "ada", "1") == 1


def test_the_same_failure_elsewhere_makes_two(journal: Journal, store: TrainingStore) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0), (FAILED, "n2", 110.0)], log=SHAPE)
    causes = {rule.cause.name: rule.cause for rule in own_rules().rules}
    lessons = store.training_examples(causes)
    assert [lesson.transient for lesson in lessons] == [False, False]
    assert lessons[0].reading.causes
    assert store.training_examples({})[0].reading.causes == ()  # a rule that is gone teaches nothing more


def test_a_failure_that_nobody_retried_teaches_nothing(journal: Journal, store: TrainingStore) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    assert store.training_examples({}) == []


def test_a_persons_word_outranks_the_outcome_and_holds_at_once(
    journal: Journal, store: TrainingStore, learner: Learner
) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0), (COMPLETED, "n2", 500.0)])
    attempt = AttemptId("c", "1", 1)
    before = examine(JAM).verdict
    learner.correct(attempt, False, "grace", for_all=True)
    (lesson,) = store.training_examples({})
    assert (lesson.transient, lesson.source) == (False, LabelSource.PERSON)
    after = learner.corrected(before, "anybody")
    assert after.label is Label.DETERMINISTIC
    assert "grace said of job 1" in after.evidence[0].text
    assert learner.withdraw(attempt)
    assert learner.corrected(before, "anybody") == before
    assert not learner.withdraw(attempt)


def test_a_users_word_holds_for_his_own_jobs_only(journal: Journal, store: TrainingStore, learner: Learner) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "ada", for_all=False)
    verdict = examine(JAM).verdict
    assert learner.corrected(verdict, "ada").label is Label.TRANSIENT
    assert learner.corrected(verdict, "eve") == verdict


def test_a_word_that_is_not_for_all_holds_for_the_user_whose_job_it_was_whoever_said_it(
    journal: Journal, store: TrainingStore, learner: Learner
) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=False)
    verdict = examine(JAM).verdict
    assert learner.corrected(verdict, "ada").label is Label.TRANSIENT
    assert learner.corrected(verdict, "grace") == verdict


def test_a_word_on_one_attempt_is_taken_back_and_no_other(
    journal: Journal, store: TrainingStore, learner: Learner
) -> None:
    attempts = [AttemptId("c", job_id, number) for job_id in ("1", "11") for number in (1, 2)]
    for job_id in ("1", "11"):
        write(journal, store, job_id, [(FAILED, "n1", 100.0), (FAILED, "n2", 100.0)])
    for attempt in attempts:
        learner.correct(attempt, True, "grace", for_all=True)
    assert learner.withdraw(attempts[1])
    assert {said.attempt for said in store.corrections()} == {*attempts} - {attempts[1]}


def test_what_was_never_judged_cannot_be_corrected(learner: Learner) -> None:
    with pytest.raises(NotFound, match="job 9"):
        learner.correct(AttemptId("c", "9", 1), True, "ada", for_all=True)


def test_a_round_is_taught_when_there_is_news_and_survives_a_restart(
    journal: Journal, store: TrainingStore, learner: Learner
) -> None:
    assert learner.learn() is None
    for n in range(6):
        write(journal, store, str(n), [(FAILED, "n1", 100.0), (COMPLETED, "n2", 500.0)], f"u{n}", JAM + b"x" * n)
    term = learner.learn()
    assert term is not None
    assert term.adopted
    assert term.offered == 6
    assert learner.learn() is None  # no news since
    again = Learner(store, own_rules(), lambda: 8000.0)
    reading = examine(JAM).reading
    assert again.model.log_odds(reading) == pytest.approx(learner.model.log_odds(reading), abs=1e-6)
    assert again.model.log_odds(reading) > again.base.log_odds(reading)


def test_a_word_that_was_taught_and_is_taken_back_is_news(
    journal: Journal, store: TrainingStore, learner: Learner
) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=True)
    assert learner.learn().persons == 1
    assert learner.learn() is None
    assert learner.withdraw(AttemptId("c", "1", 1))
    unlearnt = learner.learn()
    assert unlearnt is not None
    assert unlearnt.persons == 0


def test_a_roll_back_returns_to_the_model_before(journal: Journal, store: TrainingStore, learner: Learner) -> None:
    assert not learner.roll_back(0)
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=True)
    assert learner.learn().adopted
    assert learner.roll_back(store.in_use())
    reading = examine(JAM).reading
    assert learner.model.log_odds(reading) == learner.base.log_odds(reading)


def test_an_order_to_roll_back_that_comes_twice_goes_back_one_model(
    journal: Journal, store: TrainingStore, learner: Learner
) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=True)
    for _ in range(2):
        assert learner.learn(anyway=True).adopted
    newest = store.in_use()
    assert learner.roll_back(newest)
    with pytest.raises(ClusterError, match=f"is that of training run {newest - 1} by now, not that of .* run {newest}"):
        learner.roll_back(newest)
    assert store.in_use() == newest - 1
    assert learner.roll_back(newest - 1)
    with pytest.raises(ClusterError, match="is the one that came with Perdure by now"):
        learner.roll_back(newest - 1)
    assert not learner.roll_back(0)


def test_few_models_are_kept(journal: Journal, store: TrainingStore, learner: Learner) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=True)
    for _ in range(KEPT_MODELS + 3):
        assert learner.learn(anyway=True).adopted
    with journal.store.reading() as db:
        assert db.scalar(select(func.count(terms.c.model))) == KEPT_MODELS


def test_what_a_person_set_aside_the_service_does_not_set_aside_in_its_own_name(store: TrainingStore) -> None:
    outcomes = store.outcomes
    outcomes.put_aside(Aside.USER, "ada", "root", 1.0)
    outcomes.put_aside(Aside.USER, "bob", SERVICE, 2.0, "contradicted")
    outcomes.put_aside(Aside.USER, "ada", SERVICE, 3.0, "contradicted")
    outcomes.put_aside(Aside.USER, "bob", "root", 4.0)
    told = [(one.value, one.by, one.reason, one.time_s) for one in outcomes.set_aside()]
    assert told == [("bob", "root", "", 4.0), ("ada", "root", "", 1.0)]


def test_rounds_that_led_to_no_model_drive_out_none(journal: Journal, store: TrainingStore, learner: Learner) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=True)
    result = learner.learn()
    assert result is not None
    for _ in range(KEPT_MODELS + 1):
        store.note_round(replace(result, adopted=False), "", None, 9000.0)
    assert store.model() is not None
    assert store.in_use() == 1


def test_readings_are_bounded_and_corrected_ones_stay(
    journal: Journal, store: TrainingStore, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_store, "MAX_READINGS", 2)
    for n in range(5):
        write(journal, store, str(n), [(FAILED, "n1", 100.0)], log=JAM if n else SHAPE)
    learner.correct(AttemptId("c", "0", 1), True, "grace", for_all=True)
    assert store.prune() == 2
    assert len(store.training_examples({})) == 1


def test_of_more_readings_than_are_looked_at_the_newest_prove_something(
    journal: Journal, store: TrainingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_store, "MAX_RECENT", 2)
    monkeypatch.setattr(training_store, "MAX_TAUGHT", 3)
    for n in range(5):
        write(journal, store, str(n), [(FAILED, "n1", 100.0), (COMPLETED, "n2", 100.0)])
    for message, known in ((examine(JAM).verdict.fingerprint, {"3", "4"}), (None, {"2", "3", "4"})):
        store.note_outcomes(message)
        assert {outcome.job_id for outcome in store.outcomes.newest()} == known


def test_training_runs_are_counted_from_the_first(journal: Journal, store: TrainingStore, learner: Learner) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=True)
    assert store.rounds() == 0
    for number in (1, 2, 3):
        learner.learn(anyway=True)
        assert (store.rounds(), store.in_use()) == (number, number)
    assert learner.roll_back(3)
    assert (store.rounds(), store.in_use()) == (3, 2)


def test_a_corrected_message_that_is_printed_again_and_again_fills_nothing(
    journal: Journal, store: TrainingStore, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_store, "MAX_READINGS", 2)
    for n in range(6):
        write(journal, store, str(n), [(FAILED, "n1", 100.0)], user="eve")
    learner.correct(AttemptId("c", "0", 1), True, "eve", for_all=False)
    assert store.prune() == 3
    assert store.jobs_like(learner.store.corrections()[0].fingerprint, "eve", "9") == 4


def test_of_more_readings_than_are_taught_the_newest_are(
    journal: Journal, store: TrainingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_store, "MAX_TAUGHT", 2)
    for n in range(5):
        write(journal, store, str(n), [(FAILED, "n1", 100.0)])
        store.correct(AttemptId("c", str(n), 1), True, "grace", for_all=True, now=float(n))
    assert {lesson.attempt.job_id for lesson in store.training_examples({})} == {"3", "4"}


def test_a_failure_is_judged_kept_and_answered_though_the_notebook_is_full(
    learner: Learner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 9.0, exit_code=1, user="ada")
    assert learner.judge(Output.of(SHAPE), attempt, Context()).label is Label.DETERMINISTIC

    def full(read: Any) -> None:
        raise StateError("journal.db", "cannot be written: disk full", "Free some space")

    monkeypatch.setattr(learner.store, "keep", full)
    assert learner.judge(Output.of(SHAPE), attempt, Context()).label is Label.DETERMINISTIC
    assert "is not kept" in caplog.text


def test_a_damaged_model_is_not_used(
    journal: Journal, store: TrainingStore, learner: Learner, caplog: pytest.LogCaptureFixture
) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)])
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=True)
    term = learner.learn()
    assert term is not None
    store.note_round(term, "x", b"garbage", 1.0)
    assert Learner(store, own_rules(), lambda: 1.0).model is learner.base
    assert "model that came with Perdure" in caplog.text


UNSAID = b"gadget {}: error: unrecognized arguments: --bay {}\n"


def test_stops_that_pass_when_run_again_widen_what_the_service_probes(journal: Journal, store: TrainingStore) -> None:
    before = Learner(store, own_rules(), lambda: 7000.0)
    assert before.promise.thresholds == own_thresholds()
    for n in range(9):
        log = UNSAID.replace(b"{}", b"%d" % n)
        assert examine(log).verdict.label is Label.DETERMINISTIC
        write(journal, store, str(n), [(FAILED, "n1", 100.0), (COMPLETED, "n1", 500.0)], f"u{n}", log)
    before.turn()
    after = Learner(store, own_rules(), lambda: 7000.0)  # as after a restart
    for learner in (before, after):
        assert learner.promise.is_widened
        assert learner.promise.thresholds.transient_from < own_thresholds().transient_from
        assert "9 of 9 failures that passed when run again had been stopped" in learner.promise.says


def test_a_persons_word_counts_as_an_outcome_and_what_it_decided_does_not(
    journal: Journal, store: TrainingStore, learner: Learner
) -> None:
    write(journal, store, "1", [(FAILED, "n1", 100.0)], log=SHAPE)
    learner.correct(AttemptId("c", "1", 1), True, "grace", for_all=True)
    (found,) = store.proven()
    assert (found.transient, found.p_transient) == (True, examine(SHAPE).verdict.p_transient)
    assert is_corrected(learner.corrected(examine(SHAPE).verdict, "ada"))
    assert not is_corrected(examine(SHAPE).verdict)
