"""Training: deterministic, honest in its folds, clear about bad input."""

import hashlib
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from foundry.left_out import LeftOut
from foundry.records import published
from foundry.train import TABLES, held_out, main, promise, variations
from perdure.errors import InputError
from perdure.triage.classifiers.linear import LINEAR, read_model
from perdure.triage.classifiers.protocol import Reading
from perdure.triage.classifiers.regression import group_folds
from perdure.triage.conformal import ALPHA_TRANSIENT, Thresholds, read_thresholds
from perdure.triage.evidence.rule import WrittenFrom
from perdure.triage.evidence.rules import own_rules
from perdure.triage.labelled import LabelledLog, read_logs
from tests.copying import replace

WORDS = {True: "connection to the peer was lost", False: "wrong argument given to the call"}


def _examples(count: int = 24) -> list[LabelledLog]:
    return [LabelledLog(str(i), f"g{i % 8}", i % 3 == 0, f"Error: {WORDS[i % 3 == 0]} {i}\n" * 3) for i in range(count)]


def _write(path: Path, examples: list[LabelledLog]) -> Path:
    label = {True: "transient", False: "deterministic"}
    rows = (
        {"id": e.id, "source": f"{e.group}@abc:x.log", "label": label[e.transient], "text": e.text} for e in examples
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_command_is_deterministic_and_writes_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = _write(tmp_path / "d.jsonl", _examples())
    for name in ("a.npz", "b.npz"):
        assert main(["--data", str(data), "--out", str(tmp_path / name), "--folds", "4"]) == 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    card = json.loads((tmp_path / "a.json").read_text())
    assert card["examples"]["real"] == {"deterministic": 16, "transient": 8}
    assert "in 4 folds" in card["cross_validation"]["what"]
    assert read_model(tmp_path / "a.npz").log_odds(Reading("Error: connection to the peer was lost")) > 0
    assert "24 examples" in capsys.readouterr().out


def test_thresholds_name_the_command_and_what_they_come_from(tmp_path: Path) -> None:
    data, out = _write(tmp_path / "d.jsonl", _examples()), tmp_path / "t.json"
    told = set()
    for _ in range(2):
        main(["--data", str(data), "--out", str(tmp_path / "a.npz"), "--folds", "4", "--thresholds", str(out)])
        told.add(out.read_text())
    (text,) = told
    found = json.loads(text)
    assert found["command"] == "python -m foundry.train --data d.jsonl --out a.npz --thresholds t.json"
    assert found["inputs"]["d.jsonl"] == hashlib.sha256(data.read_bytes()).hexdigest()
    assert set(found["inputs"]) == {"d.jsonl", *TABLES}
    assert read_thresholds(text, "t.json").transient_from == found["transient_from"]


def test_what_is_shipped_is_the_outcome_of_one_command() -> None:
    """`make thresholds`; whoever changes the foundry's records or the model alone is told here."""
    shipped = resources.files("perdure.triage") / "data"
    found, card = (json.loads((shipped / name).read_text("utf-8")) for name in ("thresholds.json", "linear.json"))
    assert found["command"] == card["command"]
    assert card["promise"]["transient_stopped_at_most"] == ALPHA_TRANSIENT
    assert card["sha256"] == hashlib.sha256((shipped / "linear.npz").read_bytes()).hexdigest()
    assert set(found["inputs"]) == {"train.jsonl", "foundry.jsonl.gz", *TABLES}
    foundry = hashlib.sha256((shipped / "foundry.jsonl.gz").read_bytes()).hexdigest()
    assert found["inputs"]["foundry.jsonl.gz"] == foundry


def test_groups_are_never_split() -> None:
    groups = [e.group for e in _examples()]
    seen = np.zeros(len(groups), dtype=int)
    for test in group_folds(groups, 4):
        inside, outside = ({g for g, t in zip(groups, test, strict=True) if t == side} for side in (True, False))
        assert not inside & outside
        seen += test
    assert (seen == 1).all()


def test_what_was_learnt_holds_for_groups_not_seen() -> None:
    examples = _examples()
    score = held_out(LINEAR, [log.example for log in examples])
    assert ((score > 0) == np.array([e.transient for e in examples])).all()


def test_variations_are_learnt_beside_their_originals_and_stay_in_their_families() -> None:
    foundry = [LabelledLog(r.id, r.source, r.transient, r.text) for r in published()[:3]]
    varied = variations([*foundry, *_examples(2)], 2)
    assert [v.id for v in varied] == [f"{log.id}~{seed}" for log in foundry for seed in (1, 2)]
    assert [v.group for v in varied] == [log.group for log in foundry for _ in range(2)]


def test_a_variation_never_teaches_who_judges_its_family() -> None:
    """Learnt by heart, the variations' wrong labels would turn every score round."""
    examples = [log.example for log in _examples()]
    liars = [replace(e, id=f"{e.id}~1", transient=not e.transient) for e in examples for _ in range(3)]
    mine = [liar for liar in liars if liar.group == "g0"]
    seen, alone = (held_out(LINEAR, examples, beside=beside) for beside in (mine, ()))
    of_g0 = np.array([e.group == "g0" for e in examples])
    assert (seen[of_g0] == alone[of_g0]).all()
    assert (seen[~of_g0] != alone[~of_g0]).any()


def test_thresholds_err_seldom_on_groups_that_they_were_not_made_from() -> None:
    logs = [LabelledLog(str(i), f"g{i}", i < 100, "") for i in range(300)]
    p = np.where([log.transient for log in logs], 0.9, 0.1)
    p[[0, 1]], p[[100, 101]] = 0.05, 0.95
    cut, errors = promise(logs, p)
    assert cut == Thresholds(0.9, 0.1)
    assert errors == {"real": {"transient_stopped": 0.02, "deterministic_retried": 0.01, "unsure": 0.0}}


def test_a_rule_that_only_the_judged_group_motivated_does_not_judge_it() -> None:
    """What documentation says of a message was written without the log, and stays."""
    of_log, of_pages = b"server: bind() failed", b"Job was active longer than specified deadline"
    names = {"port-busy": WrittenFrom.LOG, "k8s-deadline": WrittenFrom.DOCUMENTATION}
    assert {rule.cause.name: rule.written_from for rule in own_rules().rules if rule.cause.name in names} == names

    def found(others: bytes) -> list[str]:
        rules = LeftOut(["a", "b"], [of_log + b"\n" + of_pages, others]).without_motivated_by("a", WrittenFrom.LOG)
        return [rule.cause.name for line in (of_log, of_pages) if (rule := rules.match(line)) is not None]

    assert found(b"all is well") == ["k8s-deadline"]
    assert found(of_log) == ["port-busy", "k8s-deadline"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "d.jsonl:2: not a labelled log"),
        ("[]", "d.jsonl:2: not a labelled log"),
        ('{"id": 1, "source": "a", "text": "x"}', "d.jsonl:2: 'label' is missing"),
        ('{"id": 1, "source": "a", "text": "x", "label": "maybe"}', "not a labelled log"),
        ('{"id": 1, "source": "a", "text": "x", "label": "unsure"}', "an unsure record teaches nothing"),
    ],
)
def test_a_bad_record_is_named_by_its_line(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": 1, "source": "a", "text": "x", "label": "transient"}\n' + line + "\n")
    with pytest.raises(InputError) as caught:
        read_logs(path)
    assert words in str(caught.value)


def test_one_label_alone_teaches_nothing() -> None:
    with pytest.raises(InputError, match="one label"):
        LINEAR.fit([log.example for log in _examples() if log.transient])
