"""How soon a site's own kinds of failure are decided rightly: counts of outcomes, beside a fixed model and a refit.

    python -m benchmarks.site_learning [--kinds 60] [--seed 1] [--out TABLE.md]

Kinds of failure that no rule knows arrive over time at a site of 30 users, and occur again and again; the line of one
kind in six differs each time. What is not stopped is run again on another node: what passes by nature passes nine times
in ten, and what does not fails alike.
Labels come from those retries alone. Each way to decide sees the same failures, with the retries that its own
verdicts earned:

- *fixed model*: what comes with Perdure, and nothing learnt;
- *nightly refit*: every `A_DAY` failures the model is trained again on what retries proved, by Perdure's own round;
- *classifier alone, nightly refit*: the same without rules, caps and gate; its probability decides. That is the
  published idea (Sibylla, USENIX ATC 2022): a classifier learns new kinds from few labels, which retries give;
- *counts of outcomes*: of each message, by user, weighed with the verdict by Bayes, beside the nightly round.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.random import Generator

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.classifiers.linear import own_model
from perdure.triage.classifiers.protocol import Example, Model
from perdure.triage.conformal import own_thresholds
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import examine
from perdure.triage.labelled import read_replayed
from perdure.triage.learning.examples import LabelSource, TrainingExample
from perdure.triage.learning.testimony import Outcomes, decided, weighed
from perdure.triage.learning.update import update_model
from perdure.triage.verdict import Label, Verdict

DATA = Path(__file__).resolve().parents[1] / "src" / "perdure" / "triage" / "data"
USERS = 30
A_DAY = 60  # failures
MOST = 12  # occurrences of a kind
AFTER = (0, 1, 2, 3, 5, 10)
VARIED = 6  # of one kind in so many, the line names something else each time: no count helps
NAMES = ("amber", "birch", "cobalt", "delta", "ember", "fjord", "garnet", "heron", "indigo", "jasper", "krill", "larch")
PASSES = 0.9  # of retries of what passes by nature

THINGS = (
    "frobnicator",
    "vault",
    "lattice",
    "beam",
    "quark store",
    "flux gate",
    "tracer",
    "ledger",
    "plasma cell",
    "rotor",
)
DEEDS = ("jammed", "gives no token", "is out of phase", "was not aligned", "refuses the shard", "lost its seat",
         "is frozen", "wants another key", "has drifted", "was not primed")  # fmt: skip
_RAISED = 'Traceback (most recent call last):\n  File "/home/u/run.py", line 7, in <module>\n'
SHAPES = (
    "{thing} {deed}: bay {n}",
    _RAISED + "{name}Fault: {thing} {n} {deed}",
    "ERROR site.{thing}: unit {n} {deed}",
    _RAISED + "RuntimeError: {thing} {n} {deed}",
    "[{thing}] E{code} {deed}, giving up\nsrun: error: n1: task 0: Exited with exit code 3",
)


@dataclass(frozen=True)
class Kind:
    """A kind of failure of a site: how it is told, and whether a retry passes by nature."""

    number: int
    text: str
    passes: bool

    def log(self, n: int) -> bytes:
        steps = "".join(f"step {at} loss {2.0 / at:.3f}\n" for at in range(1, 6))
        name = NAMES[n * 7919 % len(NAMES)] + NAMES[n * 104729 % len(NAMES)].title()
        return f"loading\n{steps}{self.text.format(n=n, name=name)}\n".encode()


def kinds(count: int, rng: Generator) -> list[Kind]:
    """Different kinds, half of which pass."""
    pairs = [(thing, deed) for thing in THINGS for deed in DEEDS]
    found = []
    for number, at in enumerate(rng.permutation(len(pairs))[:count]):
        thing, deed = pairs[int(at)]
        shape = SHAPES[number % len(SHAPES)]
        name = thing.title().replace(" ", "")
        if number % VARIED == 0:  # its line names something else each time
            deed += " for {name}"
        text = shape.format(thing=thing, deed=deed, name=name, code=4000 + number, n="{n}")
        found.append(Kind(number, text, bool(rng.random() < 0.5)))
    return found


def stream(count: int, rng: Generator) -> list[tuple[Kind, str]]:
    """Failures in the order in which they come, each with its user: a kind begins somewhen, and comes `MOST` times."""
    times = []
    for kind in kinds(count, rng):
        begins = rng.random() * count
        times += [(begins + rng.exponential(6.0), kind) for _ in range(MOST)]
    times.sort(key=lambda pair: pair[0])
    return [(kind, f"u{int(USERS * rng.random() ** 2)}") for _, kind in times]  # some users run much


@dataclass
class Way:
    """A way to decide, and what it has learnt."""

    name: str
    counts: bool
    refits: bool
    alone: bool = False  # the classifier decides
    model: Model = field(default_factory=own_model)
    seen: dict[str, dict[str, Outcomes]] = field(default_factory=dict)
    jobs: dict[str, dict[str, int]] = field(default_factory=dict)  # by message and user
    examples: list[TrainingExample] = field(default_factory=list)
    right: dict[int, list[str]] = field(default_factory=dict)  # by how often the kind had been seen

    def meet(self, n: int, kind: Kind, user: str, before: int, luck: float) -> None:
        """Judge a failure, and learn what the retry shows that the verdict earns."""
        attempt = Attempt(AttemptId("c", str(n), 1), AttemptState.FAILED, ("n1",), 0.0, 90.0, exit_code=3, user=user)
        found = examine(kind.log(n), attempt, None, self.model)
        verdict, which = found.verdict, found.verdict.fingerprint
        of_message = self.jobs.setdefault(which, {})
        of_message[user] = of_message.get(user, 0) + 1
        if self.alone:
            p = 1.0 / (1.0 + math.exp(-self.model.log_odds(found.reading)))
            verdict = replace(verdict, p_transient=p, label=own_thresholds().label(p))
        if self.counts:
            verdict = self._counted(verdict, user, found.named)
        self.right.setdefault(before, []).append(_score(verdict, kind))
        if verdict.label is Label.DETERMINISTIC:
            return
        passed = kind.passes and luck < PASSES
        if kind.passes and not passed:  # it failed by chance once more: not at the same point, which proves nothing
            return
        by_user = self.seen.setdefault(which, {})
        had = by_user.get(user, Outcomes())
        by_user[user] = Outcomes(had.passed + passed, had.failed + (not passed))
        told = (attempt.id, float(n), user, which, found.reading, passed, LabelSource.OUTCOME)
        self.examples.append(TrainingExample(*told))

    def _counted(self, verdict: Verdict, user: str, named: bool) -> Verdict:
        seen = weighed(self.seen.get(verdict.fingerprint, {}), user, named)
        jobs = self.jobs[verdict.fingerprint]
        told = jobs[user] + sum(other != user for other in jobs)
        return decided(verdict, seen, told, own_thresholds(), named)

    def sleep(self, known: list[Example], day: int) -> None:
        """The nightly round."""
        if self.alone:
            self.model = own_model().update([*(each.for_model for each in self.examples), *known])
        elif self.refits:
            self.model, _ = update_model(own_model(), self.model, self.examples, known, turn=day)


def _score(verdict: Verdict, kind: Kind) -> str:
    if verdict.label is Label.UNSURE:
        return "unsure"
    return "right" if (verdict.label is Label.TRANSIENT) == kind.passes else "wrong"


def table(ways: list[Way]) -> Iterator[str]:
    """The share rightly decided, and wrongly, by how often the kind had been seen."""
    yield "| decided by | " + " | ".join(f"seen {n} times" for n in AFTER) + " |"
    yield "|---" * (len(AFTER) + 1) + "|"
    for way in ways:
        cells = []
        for n in AFTER:
            scores = way.right[n]
            right, wrong = (scores.count(word) / len(scores) for word in ("right", "wrong"))
            cells.append(f"{right:.0%} ({wrong:.0%} wrong)")
        yield f"| {way.name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    known = read_replayed(
        (DATA / "replayed.jsonl.gz").read_bytes(), {rule.cause.name: rule.cause for rule in own_rules().rules}
    )
    ways = [
        Way("fixed model", counts=False, refits=False),
        Way("nightly refit", counts=False, refits=True),
        Way("classifier alone, nightly refit", counts=False, refits=True, alone=True),
        Way("counts of outcomes, and the refit", counts=True, refits=True),
    ]
    before: dict[int, int] = {}
    started = time.process_time()
    for n, (kind, user) in enumerate(stream(asked.kinds, rng), 1):
        luck = rng.random()
        for way in ways:
            way.meet(n, kind, user, before.get(kind.number, 0), luck)
        before[kind.number] = before.get(kind.number, 0) + 1
        if n % A_DAY == 0:
            for way in ways:
                way.sleep(known, n // A_DAY)
    head = f"{asked.kinds} kinds of failure, each {MOST} times, {USERS} users, seed {asked.seed}"
    text = "\n".join(
        [
            "Made by `make bench-site-learning` (`python -m benchmarks.site_learning`) on two cores of an AMD EPYC; "
            "its input is made of the seed. What learning costs: [learning_cost.md](learning_cost.md).\n",
            f"{head}. In the column *seen n times* each kind counts once: its next failure after n earlier ones. What "
            "is neither right nor wrong is unsure, and gets the one probing retry. The line of one kind in six differs "
            "each time: no count can learn that.\n",
            *table(ways),
        ]
    )
    print(text, f"\n{time.process_time() - started:.0f} CPU s")
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
