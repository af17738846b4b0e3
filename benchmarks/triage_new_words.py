"""How right catalogue and grammar are on lines that no rule knows:

    python -m benchmarks.triage_new_words

Each line that a rule must match (its `yes`) is read as if that rule did not exist, so by words that were not written
for it. These lines are harder than those that come up: a rule is mostly written where catalogue and grammar fail. What
may stop a job by itself (`[proven]` in `grammar.toml`) is decided by the second table. It takes seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from perdure.triage.catalogue import KnownMessage, own_catalogue
from perdure.triage.conformal import own_thresholds
from perdure.triage.evidence.rule import Cause
from perdure.triage.evidence.rules import own_rules
from perdure.triage.grammar import BY, PASSING, own_grammar
from perdure.triage.text.clean import tidy
from perdure.triage.unnamed import UNKNOWN
from perdure.triage.verdict import CauseRole

NOT_A_CAUSE = frozenset({UNKNOWN, "cancelled", "killed"})
"""Categories that say that something ended and not why: no other words are asked to say the same."""

PASSES = 0.45
"""From this chance of its rule on a line counts as one whose stop is wrong."""


Key = TypeVar("Key", bound=Hashable)


class ReadAnew(Struct, frozen=True):
    """A line, the cause that its rule names, and what was read without it."""

    line: str
    truth: Cause
    known: KnownMessage | None

    @property
    def category(self) -> str:
        return self.known.category if self.known else UNKNOWN

    @property
    def by(self) -> str:
        if self.known is None:
            return "nothing"
        return BY if self.known.by == BY else "catalogue"

    @property
    def is_right(self) -> bool:
        return self.category == self.truth.category

    @property
    def passes(self) -> bool:
        return self.truth.p_transient >= PASSES

    @property
    def may_stop(self) -> bool:
        """Whether it is read as what a retry rarely passes."""
        known = self.known
        return known is not None and known.p_transient < min(PASSING, own_thresholds().transient_from)

    @property
    def stops(self) -> bool:
        """Whether a job is stopped for it."""
        return self.known is not None and self.may_stop and self.known.proven


def read_anew() -> list[ReadAnew]:
    """All lines of rules that name a cause."""
    causes = (rule for rule in own_rules().rules if rule.cause.role is CauseRole.ROOT)
    named = (rule for rule in causes if rule.cause.category not in NOT_A_CAUSE)
    return [ReadAnew(line, rule.cause, _known(tidy(line.encode()))) for rule in named for line in rule.yes]


def _known(line: bytes) -> KnownMessage | None:
    """As `unnamed` reads a line that is known to tell of a failure."""
    catalogue, grammar = own_catalogue(), own_grammar()
    if (listed := catalogue.find(line)) is not None:
        return listed
    if (parsed := grammar.parse(line, asserted=True)) and (read := grammar.means(parsed)).category != UNKNOWN:
        return read
    return catalogue.find(line, general=True)


def speaker_of(one: ReadAnew) -> str:
    """What kind of speaker the grammar heard."""
    speaker = one.known.speaker if one.known else ""
    if speaker in own_grammar().file.proven.classes:
        return "an exception of wrong code"
    if speaker.endswith(("Error", "Exception", "Failure", "Fault")):
        return "another exception"
    return "a program" if speaker else "nobody named"


def by_reader(lines: Sequence[ReadAnew]) -> Iterator[str]:
    yield (
        "| read by | lines | category right | read as lasting | of these pass | stop the job | of these pass |\n"
        + "|---" * 7
        + "|"
    )
    for name, some in sorted(_groups(lines, lambda one: one.by).items()):
        yield f"| {name} | {_figures(some)}"
    yield f"| all | {_figures(lines)}\n"


def by_speaker(lines: Sequence[ReadAnew]) -> Iterator[str]:
    """What the grammar read as lasting, by who spoke and by the category."""
    lasting = [one for one in lines if one.by == BY and one.may_stop]
    yield "| speaker | category | read as lasting | of these pass | stops |\n" + "|---" * 5 + "|"
    for (speaker, category), some in sorted(_groups(lasting, lambda one: (speaker_of(one), one.category)).items()):
        passing, stops = sum(one.passes for one in some), sum(one.stops for one in some)
        yield f"| {speaker} | {category} | {len(some)} | {passing} | {stops} |"


def _groups(lines: Sequence[ReadAnew], key: Callable[[ReadAnew], Key]) -> dict[Key, list[ReadAnew]]:
    groups = defaultdict[Key, list[ReadAnew]](list)
    for one in lines:
        groups[key(one)].append(one)
    return groups


def _figures(lines: Sequence[ReadAnew]) -> str:
    lasting, stopped = [one for one in lines if one.may_stop], [one for one in lines if one.stops]
    right = sum(one.is_right for one in lines) / max(1, len(lines))
    counts = (len(lasting), sum(one.passes for one in lasting), len(stopped), sum(one.passes for one in stopped))
    return f"{len(lines)} | {right:.3f} | " + " | ".join(map(str, counts)) + " |"


def main() -> None:
    """Print both tables."""
    lines = read_anew()
    print("Made by `python -m benchmarks.triage_new_words`.\n")
    for line in (*by_reader(lines), *by_speaker(lines)):
        print(line)


if __name__ == "__main__":
    main()
