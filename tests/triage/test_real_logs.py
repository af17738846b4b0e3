"""Real excerpts, where they are at hand."""

from pathlib import Path

import pytest

from perdure.triage.judge import judge
from perdure.triage.labelled import LabelledLog, read_logs
from perdure.triage.verdict import Label
from tests.conftest import require


@pytest.fixture(scope="module")
def examples(data_dir: Path | None) -> list[LabelledLog]:
    path = require("data", data_dir, "no real logs here") / "failure-logs" / "train.jsonl"
    require("data", path.exists(), "no real logs here")
    return read_logs(path)


def test_most_are_told_and_few_transient_ones_are_stopped(examples: list[LabelledLog]) -> None:
    verdicts = [(example.transient, judge(example.text.encode())) for example in examples]
    right = sum((verdict.p_transient > 0.5) == transient for transient, verdict in verdicts)
    stopped = sum(transient and verdict.label is Label.DETERMINISTIC for transient, verdict in verdicts)
    assert right / len(verdicts) > 0.9
    assert stopped <= 0.06 * sum(transient for transient, _ in verdicts)


def test_evidence_is_a_line_of_the_log(examples: list[LabelledLog]) -> None:
    for example in examples:
        lines = example.text.split("\n")
        for evidence in (e for e in judge(example.text.encode()).evidence if e.line):  # 0: stands in no log
            assert 1 <= evidence.line <= len(lines)
            assert evidence.text[-20:].strip()[-8:] in lines[evidence.line - 1].replace("\x1b[0m", "")
