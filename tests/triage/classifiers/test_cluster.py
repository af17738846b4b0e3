"""The clustering baseline: like joins like, and the nearest cluster answers."""

import numpy as np

from perdure.triage.classifiers.cluster import CLUSTER
from perdure.triage.classifiers.protocol import Example, Reading

TEXTS = {
    "connection to the peer was lost by the network": True,
    "TypeError: unexpected keyword argument given": False,
    "CUDA error: uncorrectable ECC error encountered": True,
}


def _examples(copies: int = 6) -> list[Example]:
    return [
        Example(f"{i}.{n}", f"{i}.{n}", transient, Reading(f"{text} {n}"))
        for i, (text, transient) in enumerate(TEXTS.items())
        for n in range(copies)
    ]


def test_texts_that_differ_in_numbers_alone_are_one_cluster() -> None:
    model = CLUSTER.fit(_examples())
    assert model.counts.tolist() == [[0, 6], [6, 0], [0, 6]]


def test_a_cluster_of_one_kind_is_surer_than_a_mixed_one_and_a_near_text_surer_than_a_far_one() -> None:
    pure = CLUSTER.fit(_examples())
    lost = Reading("connection to the peer was lost by the network 7")
    mixed = pure.update([Example("n", "n", False, lost)] * 3)
    assert 0 < mixed.log_odds(lost) < pure.log_odds(lost)
    far = Reading("connection of the wire was cut by the workmen")
    assert abs(pure.log_odds(far) - pure.offset) < abs(pure.log_odds(lost) - pure.offset)


def test_what_is_like_nothing_leaves_only_the_offset() -> None:
    model = CLUSTER.fit(_examples())
    assert np.isclose(model.log_odds(Reading("")), model.offset)


def test_something_new_leads_a_cluster_of_its_own() -> None:
    model = CLUSTER.fit(_examples())
    new = Reading("the frobnicator has jammed")
    updated = model.update([Example("n", "n", True, new)])
    assert len(updated.counts) == len(model.counts) + 1
    assert updated.log_odds(new) > model.log_odds(new)
