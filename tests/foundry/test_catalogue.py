"""Logs composed after documented messages: each shows its cause, in every version of its words."""

import re
from collections import Counter
from urllib.parse import urlsplit

import numpy as np
import pytest

from foundry.compose import compose, composed, context, messages, render, slots
from foundry.program import programs
from foundry.records import CATALOGUE, published

ALL = messages()


def test_there_are_many_messages_of_both_kinds_and_no_program_has_the_name_of_one() -> None:
    kinds = Counter(message.truth for message in ALL.values())
    assert len(ALL) >= 120
    assert min(kinds.values()) >= 50
    assert not set(ALL) & {program.name for program in programs()}


@pytest.mark.parametrize("name", ALL)
def test_a_message_is_documented_and_shows_its_cause_in_every_version(name: str) -> None:
    message = ALL[name]
    page = urlsplit(message.page)
    assert (page.scheme, bool(page.netloc)) == ("https", True)
    for seed in range(12):
        record = compose(message, seed)
        assert message.shows in record.excerpt
        assert record.proof == {"page": message.page}
        assert not re.search(r"\$\w|\$\{|\{\{|\|\|", record.text), record.text


def test_the_same_seed_composes_the_same_log_and_another_seed_another() -> None:
    message = ALL["watchdog-late-collective"]
    assert compose(message, 3) == compose(message, 3)
    assert len({compose(message, seed).text for seed in range(20)}) == 20


def test_a_value_is_the_same_throughout_a_log() -> None:
    text = compose(ALL["xid-94-contained"], 5).text
    assert len(set(re.findall(r"Xid \(PCI:([\w:]+)\)", text))) == 1


def test_versions_may_hold_versions() -> None:
    rng = np.random.default_rng(0)
    seen = {render("{{a{{1||2}}||b}} $x", {"x": "!"}, rng)[0] for _ in range(60)}
    assert seen == {"a1 !", "a2 !", "b !"}


def test_context_may_be_left_out() -> None:
    rng = np.random.default_rng(0)
    seen = {len(context("after", "srun|", slots(rng), rng)) for _ in range(40)}
    assert seen == {0, 3}


def test_the_published_records_hold_each_message_once() -> None:
    assert [record for record in published() if record.origin == CATALOGUE] == list(composed())
