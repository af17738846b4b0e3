"""Variations keep the truth and show its cause; splits keep families apart."""

import dataclasses
import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundry import changes, chatter
from foundry.changes import CHANGES, Script, surround
from foundry.records import Record, published, read
from foundry.splits import fold, folds, split, without_framework
from foundry.vary import SIBYLLA_TIMES, Manner, augment, main, vary

RECORDS = published()
WILD = Manner(**dict.fromkeys(CHANGES, 0.9), least_lines=0, most_lines=600)
SCRIPT = Script(
    ("step 1 loss 2.0",), ("Traceback (most recent call last):", "    ^^^", "Err: x", "srun: error"), (), "Err: x"
)


@given(record=st.sampled_from(RECORDS), seed=st.integers(1, 10_000), wild=st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_variation_keeps_the_truth_and_shows_its_cause(record: Record, seed: int, wild: bool) -> None:
    varied = vary(record, seed, WILD if wild else None)
    assert varied.shows in varied.excerpt
    assert varied.id == f"{record.program}~{seed}"
    unchanged = ("program", "family", "source", "origin", "label", "category", "pair", "proof", "rationale")
    assert [getattr(varied, name) for name in unchanged] == [getattr(record, name) for name in unchanged]
    assert 1 <= varied.first_line <= varied.last_line <= varied.text.count("\n") + 1


@pytest.mark.parametrize("index", [0, len(RECORDS) // 2, -1])
def test_the_same_seed_gives_the_same_record_and_others_differ(index: int) -> None:
    record = RECORDS[index]
    assert vary(record, 7, WILD) == vary(record, 7, WILD)
    assert len({vary(record, seed).text for seed in range(1, 30)}) == 29


def test_a_variation_of_a_variation_is_refused() -> None:
    with pytest.raises(ValueError, match="an original"):
        vary(vary(RECORDS[0], 1), 2)
    with pytest.raises(ValueError, match="seed 0"):
        vary(RECORDS[0], 0)


def test_each_change_has_its_chance_in_a_manner() -> None:
    chances = {field.name for field in dataclasses.fields(Manner)} - {"least_lines", "most_lines"}
    assert chances == set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_keeps_the_line_that_shows_the_cause(name: str) -> None:
    for seed in range(20):
        changed = CHANGES[name](SCRIPT, np.random.default_rng(seed))
        assert changed.shows in changed.failure[changed.key]


def test_what_each_change_does() -> None:
    rng = np.random.default_rng(1)
    assert "    ^^^" not in changes.older_tracebacks(SCRIPT, rng).failure
    assert len(changes.deepen(SCRIPT, rng).failure) >= len(SCRIPT.failure) + 2
    assert len(changes.launched(SCRIPT, rng).failure) > len(SCRIPT.failure)
    assert all(line.endswith("\r") for line in changes.windows_ends(SCRIPT, rng).failure)
    spread = [changes.spread(SCRIPT, np.random.default_rng(seed)).failure for seed in range(20)]
    assert {len(lines) // len(SCRIPT.failure) for lines in spread} == {1, 2, 3, 4}
    assert all(sum("Err: x" in line for line in lines) == len(lines) // len(SCRIPT.failure) for lines in spread)


def test_another_wording_is_followed_by_the_words_that_show_the_cause() -> None:
    refused = Script((), ("OSError: [Errno 111] Connection refused",), (), "[Errno 111] Connection refused")
    said = {changes.reword(refused, np.random.default_rng(seed)) for seed in range(20)}
    assert len({script.failure for script in said}) == 3
    assert all(script.shows in script.failure[0] for script in said)


def test_ordinary_lines_are_as_many_as_asked_for() -> None:
    rng = np.random.default_rng(0)
    counts = [len(surround(SCRIPT, rng, 1000, 50_000).before) for _ in range(10)]
    assert min(counts) >= 1000
    assert max(counts) <= 50_000 + 20


def test_before_the_first_step_no_steps_are_invented() -> None:
    early = Script(("Loading the model",), ("ImportError",), (), "ImportError")
    lines = surround(early, np.random.default_rng(3), 300, 300).before
    assert not [line for line in lines if "loss" in line and "skipping" not in line and "loss scale" not in line]


@given(style=st.integers(0, 2**32), step=st.integers(0, 10**6))
def test_an_ordinary_line_is_one_line(style: int, step: int) -> None:
    for line in (chatter.line(style, step, step + 10), chatter.loading(style, step)):
        assert line
        assert "\n" not in line


def test_sibyllas_augmentation_makes_4468_of_256() -> None:
    originals = RECORDS[:256]
    made = list(augment(originals, SIBYLLA_TIMES, manner=Manner(most_lines=0)))
    assert len(made) == 4468
    assert made[:256] == list(originals)
    assert len({record.id for record in made}) == 4468
    assert set(Counter(record.program for record in made).values()) == {17, 18}


def test_the_command_writes_what_the_functions_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "d.jsonl.gz", tmp_path / "out.jsonl.gz"
    data.write_bytes(gzip.compress("".join(json.dumps(dataclasses.asdict(r)) + "\n" for r in RECORDS[:5]).encode()))
    assert main(["--data", str(data), "--out", str(out), "--times", "3", "--seed", "2", "--lines", "0", "50"]) == 0
    assert list(read(out)) == list(augment(RECORDS[:5], 3, 2, Manner(least_lines=0, most_lines=50)))
    assert "5 originals, 15 records" in capsys.readouterr().out


def test_no_family_is_learnt_from_and_judged() -> None:
    pairs = [split(RECORDS), *folds(RECORDS), *((a, b) for _, a, b in without_framework(RECORDS))]
    for learnt, judged in pairs:
        assert not {record.family for record in learnt} & {record.family for record in judged}
    for learnt, judged in pairs[:1]:
        assert sorted(record.id for record in [*learnt, *judged]) == sorted(record.id for record in RECORDS)


def test_the_published_split_judges_both_kinds_and_every_origin() -> None:
    learnt, judged = split(RECORDS)
    for part in (learnt, judged):
        assert {(record.label, record.origin) for record in part} == {
            (label, origin) for label in ("deterministic", "transient") for origin in ("measured", "catalogue")
        }
    assert 0.2 < len(judged) / len(RECORDS) < 0.4
    assert all({record.transient for record in part} == {True, False} for _, part in folds(RECORDS))


def test_each_record_is_judged_once_and_its_variations_with_it() -> None:
    judged = [record.id for _, part in folds(RECORDS) for record in part]
    assert sorted(judged) == sorted(record.id for record in RECORDS)
    assert fold(vary(RECORDS[0], 1).family) == fold(RECORDS[0].family)
