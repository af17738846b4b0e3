"""The foundry: programs that fail as their entries say, and recordings of them that triage reads right."""

import gzip
import json
import socket
from collections import Counter
from importlib import resources

import pytest

from perdure.triage.foundry.cast import Program, Recording, Unproven, cast, programs, run
from perdure.triage.foundry.troubles import TROUBLES
from perdure.triage.judge import judge
from perdure.triage.verdict import Label

BY_NAME = {program.name: program for program in programs()}
FEW = ["missing-input", "shell-syntax", "port-taken", "service-503", "peer-reset", "database-locked", "worker-killed"]


def _recorded() -> list[Recording]:
    data = (resources.files("perdure.triage") / "data" / "foundry.jsonl.gz").read_bytes()
    return [Recording(**json.loads(line)) for line in gzip.decompress(data).splitlines()]


def test_there_are_many_programs_of_both_kinds() -> None:
    kinds = Counter(program.truth for program in programs())
    assert len(BY_NAME) == len(programs()) >= 80
    assert kinds[Label.TRANSIENT] >= 25
    assert {program.trouble for program in programs()} <= set(TROUBLES)


@pytest.mark.parametrize("name", FEW)
def test_a_program_fails_as_its_entry_says(name: str) -> None:
    recording = cast(BY_NAME[name])
    assert recording.exit_code != 0
    assert recording.text


def test_a_false_entry_is_unproven() -> None:
    liar = Program("liar", "x", Label.TRANSIENT, "api", "raise TypeError('always')")
    with pytest.raises(Unproven, match="program liar: is transient by its entry, but ended"):
        cast(liar)


def test_a_recording_names_no_directory_of_this_machine() -> None:
    _, text = run(BY_NAME["missing-module"], 0, present=True)
    assert "/home/user/job/train.py" in text
    assert "foundry" not in text


def test_a_trouble_that_is_gone_is_gone(tmp_path) -> None:
    with TROUBLES["port-taken"](tmp_path, False) as (extra, _), socket.socket() as free:
        free.bind(("127.0.0.1", int(extra["PORT"])))


def test_every_program_is_recorded_once_with_its_truth() -> None:
    recorded = _recorded()
    assert {r.id: r.label for r in recorded} == {p.name: p.truth.value for p in programs()}
    assert len(recorded) == len(programs())


def test_verdicts_on_the_recordings_are_mostly_right_and_few_transient_ones_are_stopped() -> None:
    verdicts = [(r.label, judge(r.text.encode())) for r in _recorded()]
    stopped = [v for truth, v in verdicts if truth == "transient" and v.label is Label.DETERMINISTIC]
    right = sum((v.p_transient > 0.5) == (truth == "transient") for truth, v in verdicts)
    assert right / len(verdicts) > 0.9
    assert len(stopped) <= 2
