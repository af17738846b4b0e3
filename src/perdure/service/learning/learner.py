"""The learner: has the model in use, and retrains it when the site has learnt something."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import resources

from perdure.errors import ClusterError, PerdureError, TooMany
from perdure.model.clean_text import clean
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job
from perdure.model.output import Output
from perdure.service.learning.corrections import corrected
from perdure.service.learning.good_runs import GoodRuns
from perdure.service.learning.learnt_messages import LearntMessage, learnt_messages, message_of_words, without_outcomes
from perdure.service.learning.outcome_store import SERVICE, Aside, AsideIndex, SetAside
from perdure.service.learning.training_store import Correction, Read, TrainingStore
from perdure.triage.classifiers.linear import own_model
from perdure.triage.classifiers.protocol import Example, Model
from perdure.triage.classifiers.registry import load_model
from perdure.triage.conformal import Thresholds, own_thresholds
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.goodrun import GoodRun
from perdure.triage.evidence.matching import RuleBook
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import Finding, Weights, examine
from perdure.triage.labelled import read_replayed
from perdure.triage.learning.examples import LabelSource, TrainingExample
from perdure.triage.learning.promise import PromiseCheck, check
from perdure.triage.learning.testimony import decided, weighed
from perdure.triage.learning.update import RoundResult, update_model
from perdure.triage.learning.verdict_changes import change_of
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Verdict

log = logging.getLogger("perdure")

MIN_NEWS = 5
"""Examples from outcomes, new or set aside, that make a training round worth it; a person's word always does."""


class Learner:
    """Keeps what is read, applies what persons said, and holds the model. Safe to share between threads."""

    def __init__(
        self, store: TrainingStore, rules: RuleBook, clock: Callable[[], float], good_runs: GoodRuns | None = None
    ) -> None:
        """`good_runs` are what failures are compared with; None: with nothing."""
        self.store = store
        self._good_runs = good_runs
        self._rules = rules
        self._causes = {rule.cause.name: rule.cause for rule in rules.rules}
        self._clock = clock
        self._turn = threading.Lock()  # one training round at a time
        self._words = threading.Lock()  # so that no older view of the corrections replaces a newer one
        self.base: Model = own_model()
        self.model: Model = self._latest()
        self._corrections: tuple[Correction, ...] = self._standing()
        self.promise = PromiseCheck()
        self._watch_promise()

    def _latest(self) -> Model:
        data = self.store.model()
        if data is None:
            return self.base
        try:
            return load_model(data, "the model that was learnt")
        except PerdureError as err:
            log.warning("%s Using the model that came with Perdure.", err)
            return self.base

    def judge(self, output: Output, attempt: Attempt, context: Context) -> Verdict:
        """The verdict on a failed attempt by its log, the model in use and what persons said; keeps what was read."""
        good = self._good_run(attempt.id)
        promise = self.promise
        weights = Weights(thresholds=promise.thresholds)
        found = examine(output, attempt, context, self.model, self._rules, weights, good)
        learnt_from = promise.applied(self._learnt(found, attempt, promise.thresholds))
        verdict = self.corrected(learnt_from, attempt.user)
        change = change_of(promise.applied(found.verdict), verdict)
        try:
            self.store.keep(Read.of(attempt, found, self._clock(), change))
        except PerdureError as err:  # no reason to leave the failure unanswered
            log.warning("%s: what was read is not kept: %s", attempt.id, err)
        return verdict

    def _learnt(self, found: Finding, attempt: Attempt, thresholds: Thresholds) -> Verdict:
        """The verdict after what retries of the same message proved here; one that is new here is probed."""
        verdict, fingerprint, user = found.verdict, found.verdict.fingerprint, attempt.user
        if not fingerprint:
            return verdict
        try:
            self.store.note_outcomes(fingerprint)
            seen = weighed(self.store.outcomes.by_user(fingerprint), user, found.named)
            jobs = self.store.jobs_like(fingerprint, user, attempt.id.job_id)
        except PerdureError as err:
            log.warning("judged without what was learnt of its message: %s", err)
            return verdict
        return decided(verdict, seen, jobs, thresholds, found.named)

    def study(self, output: Output, job: Job) -> None:
        """Keep what the log of a good run of `job` said. Raises `StateError` where that cannot be written."""
        if self._good_runs is not None:
            self._good_runs.keep(job.user, job.name, GoodRun.of(LogText.of_output(output)), self._clock())

    def _good_run(self, attempt: AttemptId) -> GoodRun | None:
        try:
            return self._good_runs.of(attempt) if self._good_runs is not None else None
        except PerdureError as err:  # as above
            log.warning("%s: judged without its job's good run: %s", attempt, err)
            return None

    def corrected(self, verdict: Verdict, user: str) -> Verdict:
        """The verdict after what persons said of failures that look alike."""
        return corrected(verdict, self._corrections, user)

    def correct(self, attempt: AttemptId, transient: bool, by: str, for_all: bool) -> Correction:
        """Take a person's word; it holds at once. Raises `NotFound`."""
        said = self.store.correct(attempt, transient, by, for_all, self._clock())
        self._take_words()
        return said

    def _take_words(self) -> None:
        with self._words:
            self._corrections = self._standing()

    def _standing(self) -> tuple[Correction, ...]:
        """The corrections that hold: an operator's, and those of users whose words an operator has not set aside."""
        aside = AsideIndex(one for one in self.store.outcomes.set_aside() if not one.is_automatic)
        return tuple(
            said
            for said in self.store.corrections()
            if said.is_of_operator or not aside.holds(said.by, said.fingerprint, said.time_s)
        )

    def confirm(self, attempt: AttemptId, word: str, by: str) -> bool:
        """Let a user's word on a failure, as it was seen, hold for all, and be taught. False: no correction was stored.

        Raises `ClusterError` where it is another word by now.
        """
        found = self.store.confirm(attempt, word, by)
        self._take_words()
        return found

    def put_aside(self, kind: Aside, value: str, by: str) -> int:
        """Learn nothing of a user, a message or a day, and unlearn what was learnt of it: now, but for the model.

        The model forgets it in its next round. Returns of how many outcomes and users' words that is.
        """
        self.store.outcomes.put_aside(kind, value, by, self._clock())
        self._take_words()
        index = AsideIndex([SetAside(kind, clean(value), 0.0, by)])
        words = [said for said in self.store.corrections() if not said.is_of_operator]
        held = [index.holds(said.by, said.fingerprint, said.time_s) for said in words]
        held += [index.holds(each.user, each.fingerprint, each.time_s) for each in self.store.outcomes.newest()]
        return sum(held)

    def approve(self, kind: Aside, value: str, by: str) -> bool:
        """Let what was put aside count again. False: it was not put aside."""
        found = self.store.outcomes.approve(kind, value, by, self._clock())
        self._take_words()
        return found

    def messages(self, of_user: str = "") -> list[LearntMessage]:
        """The messages of which something was learnt; of one user's jobs where one is named."""
        outcomes, changes = self.store.outcomes, self.store.changes(of_user)
        told = learnt_messages(outcomes.newest(), outcomes.set_aside(), of_user, changes)
        rest = without_outcomes(told, changes)
        told += [message_of_words(which, *said, changes[which]) for which, said in self.store.latest_of(rest).items()]
        return sorted(told, key=lambda one: -one.time_s)

    def withdraw(self, attempt: AttemptId, for_all: bool = True) -> bool:
        """Take a correction back; an operator's only `for_all`. False: no correction was stored."""
        found = self.store.withdraw(attempt, for_all)
        self._take_words()
        return found

    def learn(self, anyway: bool = False) -> RoundResult | None:
        """One training round, if there is news (or `anyway`): its result, None without one.

        After a roll-back there is none until somebody asks for one.
        """
        with self._turn:
            if anyway:
                self.store.outcomes.approve(Aside.TRAINING, "", "", self._clock())
            elif self.is_held:
                return None
            examples = self.store.training_examples(self._causes)
            digest = _digest(examples)
            if not anyway and not self._is_news(examples, digest):
                return None
            model, result = update_model(self.base, self.model, examples, self.known, turn=self.store.rounds())
            self.store.note_round(result, digest, model.save() if result.adopted else None, self._clock())
            self.model = model
            return result

    def turn(self) -> None:
        """What is due every now and then: note outcomes, train, hold verdicts against them, delete what is oldest."""
        self.store.note_outcomes()
        self._set_aside_contradicted()
        result = self.learn()
        if result is not None:
            adopted = "adopted" if result.adopted else "not adopted"
            log.info("trained on %d examples: %s (%s)", result.lessons, adopted, result.reason)
        self._watch_promise()
        self.store.prune()
        self.store.outcomes.prune()

    def _set_aside_contradicted(self) -> None:
        """Learn nothing more from users whom others contradict on message after message; their own words stay."""
        for one in self.store.outcomes.contradicted():
            try:
                self.store.outcomes.put_aside(Aside.USER, one.user, SERVICE, self._clock(), one.says)
            except TooMany as err:
                log.warning("what user %s taught is not set aside: %s", one.user, err)
                return
            log.warning(
                "what user %s taught is set aside: %s; undo: perdure learn --approve user=NAME", one.user, one.says
            )

    def _watch_promise(self) -> None:
        """Hold verdicts against their outcomes; from now on thresholds that would have kept the promise decide."""
        try:
            found = check(own_thresholds(), self.store.proven(), self._clock())
        except PerdureError as err:  # those in use stay
            log.warning("verdicts are not held against their outcomes: %s", err)
            return
        if found.thresholds != self.promise.thresholds:
            log.warning("thresholds of verdicts %s: %s", "widened" if found.is_widened else "as installed", found.says)
        self.promise = found

    @property
    def is_held(self) -> bool:
        """Whether a model was taken back, and none is trained until somebody asks for it."""
        return any(one.kind is Aside.TRAINING for one in self.store.outcomes.set_aside())

    def roll_back(self, number: int, by: str = "") -> bool:
        """Use the model before that of training round `number`, and hold training. False: 0, Perdure's own, is in use.

        Raises `ClusterError` where another model is in use by now: an order that comes twice goes back one model.
        """
        with self._turn:
            if (used := self.store.in_use()) != number:
                told = f"that of training run {used}" if used else "the one that came with Perdure"
                what = f"the model in use is {told} by now, not that of training run {number}"
                raise ClusterError("rollback", what, "Look again: perdure learn")
            if not used:
                return False
            self.store.outcomes.put_aside(Aside.TRAINING, "", by, self._clock())  # first: a crash must not lose it
            found = self.store.roll_back(used)
            self.model = self._latest()
            return found

    def _is_news(self, examples: Sequence[TrainingExample], digest: str) -> bool:
        last = self.store.last_round()
        persons = any(example.source is LabelSource.PERSON for example in examples)
        if last is None:
            return persons or len(examples) >= MIN_NEWS
        digest_before, result = last
        grown = len(examples) - int(result["offered"])
        return digest_before != digest and (abs(grown) >= MIN_NEWS or persons or result["persons"] > 0)

    @cached_property
    def known(self) -> Sequence[Example]:
        """The labelled failures that are replayed in each update, and evaluate it: the foundry's programs."""
        path = resources.files("perdure.triage") / "data" / "replayed.jsonl.gz"
        return read_replayed(path.read_bytes(), {rule.cause.name: rule.cause for rule in own_rules().rules})


def _digest(examples: Sequence[TrainingExample]) -> str:
    said = sorted(f"{each.attempt}\0{each.transient}\0{each.source}" for each in examples)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()
