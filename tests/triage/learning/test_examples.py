"""Which examples a model is trained on: persons outrank outcomes, and every user is capped."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.model.identity import AttemptId
from perdure.triage.classifiers.protocol import Reading
from perdure.triage.learning.examples import ExampleCaps, LabelSource, TrainingExample, select_examples
from tests.copying import replace


def lesson(
    n: int,
    transient: bool = True,
    user: str = "ada",
    fingerprint: str = "",
    source: LabelSource = LabelSource.OUTCOME,
    time_s: float = 0.0,
) -> TrainingExample:
    mark = fingerprint or f"f{n}"
    return TrainingExample(AttemptId("c", str(n), 1), time_s, user, mark, Reading(f"error {mark}"), transient, source)


def test_a_person_outranks_the_outcome_of_the_same_attempt() -> None:
    said = lesson(1, transient=False, source=LabelSource.PERSON)
    assert select_examples([replace(said, transient=True, source=LabelSource.OUTCOME, time_s=9.0), said]) == [said]


def test_a_person_outranks_outcomes_of_what_looks_alike() -> None:
    said = lesson(1, transient=False, fingerprint="f", source=LabelSource.PERSON)
    alike = lesson(2, transient=True, fingerprint="f")
    agreeing = lesson(3, transient=False, fingerprint="f")
    assert select_examples([alike, said, agreeing]) == [said, agreeing]


def test_contradictory_outcomes_teach_nothing() -> None:
    assert select_examples([lesson(1, True, fingerprint="f"), lesson(2, False, fingerprint="f")]) == []


def test_the_latest_word_of_a_person_counts() -> None:
    first, second = lesson(1, True, source=LabelSource.PERSON), lesson(1, False, source=LabelSource.PERSON, time_s=5.0)
    assert select_examples([first, second]) == [second]


def test_of_what_persons_say_of_what_looks_alike_the_latest_word_decides_on_outcomes() -> None:
    first = lesson(1, True, fingerprint="f", source=LabelSource.PERSON)
    second = lesson(2, False, fingerprint="f", source=LabelSource.PERSON, time_s=5.0)
    outcomes = [lesson(3, True, fingerprint="f"), lesson(4, False, fingerprint="f")]
    assert select_examples([*outcomes, first, second]) == [second, first, outcomes[1]]


def test_one_user_teaches_at_most_his_share() -> None:
    crowd = [lesson(n, user=f"u{n % 80}") for n in range(400)]
    flood = [lesson(1000 + n, user="mallory", time_s=1.0) for n in range(400)]
    users = Counter(kept.user for kept in select_examples([*crowd, *flood], ExampleCaps(per_user=50)))
    assert users["mallory"] == 50
    assert len(users) == 81
    few = select_examples([*crowd[:80], *flood])
    assert sum(kept.user == "mallory" for kept in few) == 16  # a fifth of what the others have


def test_one_fingerprint_is_taught_a_few_times_only() -> None:
    examples = [lesson(n, fingerprint="f", user=f"u{n}") for n in range(40)]
    assert len(select_examples(examples)) == ExampleCaps().per_fingerprint


@given(
    st.lists(
        st.builds(
            lesson,
            st.integers(1, 12),
            st.booleans(),
            st.sampled_from(["ada", "bob"]),
            st.sampled_from(["", "f", "g"]),
            st.sampled_from(list(LabelSource)),
            st.floats(0, 9),
        ),
        max_size=20,
    )
)
def test_each_attempt_is_taught_once_and_persons_always(lessons: list[Any]) -> None:
    kept = select_examples(lessons)
    attempts = [one.attempt for one in kept]
    assert len(attempts) == len(set(attempts))
    assert {one.attempt for one in lessons if one.source is LabelSource.PERSON} <= set(attempts)
