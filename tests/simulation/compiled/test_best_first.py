"""A heap that is built at once and taken from the top, against a sorted list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.simulation.compiled.best_first import nobody_ranked
from tests.simulation.compiled.in_python import in_python

best_first = in_python("best_first")


@settings(max_examples=50)
@given(st.lists(st.integers(0, 4), max_size=20), st.randoms(use_true_random=False))
def test_jobs_come_out_by_key_and_of_equal_ones_by_label(keys: list[int], shuffle: object) -> None:
    labels = list(range(len(keys)))
    shuffle.shuffle(labels)  # type: ignore[attr-defined]
    ranked = nobody_ranked(len(keys) + 1)  # the last place belongs to nobody, and would come first
    ranked[-1].key = -1.0
    for i, (key, label) in enumerate(zip(keys, labels, strict=True)):
        ranked[i].key, ranked[i].label, ranked[i].row = key, label, 100 + i
    best_first.rank(ranked, len(keys))
    out = [int(best_first.take_best(ranked, many)) - 100 for many in range(len(keys), 0, -1)]
    assert out == sorted(range(len(keys)), key=lambda i: (keys[i], labels[i]))
