"""What a program says last that ends itself: ``sys.exit("config.yaml: ...")``."""

import pytest

from perdure.backends.script import ends_with_test
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import Output
from perdure.triage.evidence.ending import ending
from perdure.triage.evidence.last_word import ended_itself
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Label
from tests.copying import replace

ENDED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 9.0, exit_code=1)
SRUN = "srun: error: n1: task 0: Exited with exit code 1\n"


@pytest.mark.parametrize("after", ["", "\n", SRUN])
@pytest.mark.parametrize(
    "line",
    [
        "config.yaml: unknown optimiser 'adamx'",
        "conf/train.toml:12: lr must be positive",
        "bad value for the option batch size: -1",
        "the environment variable DATA_ROOT is not set",
    ],
)
def test_what_it_says_is_wrong_with_its_configuration_is_the_cause(line: str, after: str) -> None:
    verdict = judge(f"loading\n{line}\n{after}".encode(), ENDED)
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "config")
    assert [(each.line, each.text) for each in verdict.evidence] == [(2, line)]
    assert verdict.fingerprint


@pytest.mark.parametrize(
    ("log", "attempt"),
    [
        ("config.yaml: loaded\n", ENDED),
        ("config.yaml: unknown key lr2, ignored\n", ENDED),
        ("step 7 loss 0.3\nconfig.yaml: unknown key lr2\n", ENDED),  # what worked is configured rightly
        ("config.yaml: unknown key lr2\nreading data\n", ENDED),
        ("config.yaml: unknown key lr2\n", replace(ENDED, exit_code=137)),
        ("config.yaml: unknown key lr2\n", replace(ENDED, exit_code=0, signal=9)),
        ("config.yaml: unknown key lr2\n", None),
    ],
)
def test_other_last_lines_prove_nothing(log: str, attempt: Attempt | None) -> None:
    assert judge(log.encode(), attempt).label is Label.UNSURE


def test_who_ends_itself_does_not_just_stop() -> None:
    text = LogText.of(b"loading\nbye for now\n")
    verdict = judge(text, ENDED)
    said = "the program ended itself with exit code 1; its log ends with 'loading', 'bye for now'"
    assert ending(text, verdict, ENDED) == said
    assert "just stops" in ending(text, verdict)  # by a log alone that is not known
    steps = LogText.of(b"loading\nstep 9 loss 0.1\n")
    assert "just stops" in ending(steps, judge(steps, ENDED), ENDED)


def test_who_ends_itself_in_unknown_words_is_said_to_have_ended_itself() -> None:
    said = judge(b"loading\nno GPUs requested, refusing\n", ENDED).summary
    assert said == "the program ended itself with exit code 1, and no rule knows why by its log"
    for log, attempt in ((b"", ENDED), (b"loading\n", replace(ENDED, exit_code=137)), (b"loading\n", None)):
        assert "ended itself" not in judge(log, attempt).summary


@pytest.mark.parametrize(
    ("script", "is_test"),
    [
        ("srun train\n[ -f notes ] && cp notes out", True),
        ("python x\n[[ -n $X ]] && echo hi  # done", True),
        ("python x\ntest -s results.json", False),  # asked for as the job's result
        ("[ $A = 5 ] && srun train", False),  # that may have failed without a word
        ("python x\n[ -f a ] && cp a b || echo no", False),
        ("set -e\npython x\n[ -f a ] && cp a b", False),
        ("python x || exit 1\n[ -f a ] && cp a b", False),
        ("cat <<END\n[ -f a ] && cp a b", False),
        ("", False),
    ],
)
def test_a_last_test_that_is_false_is_the_exit_code(script: str, is_test: bool) -> None:
    assert ends_with_test(script.encode()) is is_test
    output = replace(Output.of(b"epoch 3: loss 0.2\nsaved model to out.pt\n"), ends_with_test=is_test)
    verdict = judge(output, ENDED)
    assert ("a test that was false" in verdict.summary) is is_test
    assert (verdict.label is Label.DETERMINISTIC) is is_test
    assert "a test" not in judge(output, replace(ENDED, exit_code=2)).summary
    failed = replace(Output.of(b"KeyError: 'lr'\n"), ends_with_test=is_test)
    assert judge(failed, ENDED).category == "index"


@pytest.mark.parametrize(("code", "signal", "is_own"), [(0, 0, False), (1, 0, True), (125, 0, True), (126, 0, False),
                                                        (255, 0, False), (1, 9, False)])  # fmt: skip
def test_codes_that_are_a_shells_or_stand_for_a_signal_are_no_programs_choice(
    code: int, signal: int, is_own: bool
) -> None:
    assert ended_itself(replace(ENDED, exit_code=code, signal=signal)) is is_own
