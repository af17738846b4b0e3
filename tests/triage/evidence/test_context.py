"""Surroundings: the same line in opposite surroundings gets opposite verdicts, and a sure cause is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.output import Output, OutputFile, OutputKind
from perdure.triage.classifiers.protocol import Reading
from perdure.triage.evidence.context import MAX_SHIFT, Context, TrainingProgress, circumstances, progress_of, shift_of
from perdure.triage.evidence.likeness import Likeness
from perdure.triage.evidence.rule import Cause
from perdure.triage.judge import NoModel, judge
from perdure.triage.verdict import Bound

TIMEOUT = (
    "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600033 milliseconds "
    "before timing out.\n"
)


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        ("epoch 2 step 1500 loss 0.3", TrainingProgress(1500, epochs=2)),
        ("Step: 12/100", TrainingProgress(12)),
        ("[iter 7] ok\niteration=9 ok", TrainingProgress(9)),
        ("{'global_step': 400}", TrainingProgress(400)),
        ("WorkNCCL(SeqNum=1, OpType=BROADCAST", TrainingProgress(None, 1)),
        ("footstep 12, SeqNumber none", TrainingProgress()),
        ("", TrainingProgress()),
    ],
)
def test_progress_is_read(text: str, progress: TrainingProgress) -> None:
    assert progress_of(text) == progress


def test_a_timeout_at_the_first_collective_is_less_of_an_accident_than_a_late_one() -> None:
    first, late = (judge(TIMEOUT.format(n).encode(), model=NoModel()) for n in (1, 100_000))
    assert first.p_transient < 0.5 < late.p_transient
    assert "collective number 1" in " ".join(e.text for e in first.evidence)


@pytest.mark.parametrize("p", [0.02, 0.99])
def test_a_sure_cause_is_left_alone(p: float) -> None:
    cause = Cause("x", "net", p, bound=Bound.SERVICE)
    assert (
        circumstances(
            cause, TrainingProgress(5000, 5000), Context(9000.0, 1, 3, (("bob", Likeness("net", "x")),), 0, True)
        )
        == ()
    )


def test_others_speak_only_of_what_is_shared() -> None:
    alike = Context(others_elsewhere=(("bob", Likeness("obj_store", "x")),))
    service, own = (Cause("x", "obj_store", 0.5, bound=bound) for bound in (Bound.SERVICE, Bound.NOTHING))
    assert shift_of(circumstances(service, TrainingProgress(), alike)) > 0
    assert circumstances(own, TrainingProgress(), alike) == ()


def test_a_full_disk_makes_an_input_output_error_lasting() -> None:
    cause = Cause("x", "fs", 0.5)
    full, roomy = (shift_of(circumstances(cause, TrainingProgress(), Context(free_bytes=b))) for b in (0, 1 << 40))
    assert full < 0 < roomy


def test_the_room_on_a_disk_is_told_in_mib() -> None:
    (found,) = circumstances(Cause("x", "fs", 0.5), TrainingProgress(), Context(free_bytes=3 << 20))
    assert "has 3 MiB free" in found.says


@given(
    st.floats(0.001, 0.999),
    st.sampled_from(["net", "fs", "shape", "unknown"]),
    st.builds(TrainingProgress, st.none() | st.integers(0, 10**9), st.none() | st.integers(0, 10**9)),
    st.builds(
        Context,
        st.none() | st.floats(0, 1e7),
        st.none() | st.integers(1, 99),
        st.integers(0, 99),
        st.lists(st.tuples(st.text(max_size=2), st.builds(Likeness, st.sampled_from(["net", "fs"])))).map(tuple),
        st.none() | st.integers(0, 2**50),
        st.none() | st.booleans(),
    ),
)
def test_the_shift_is_bounded_and_each_part_of_it_is_told(
    p: float, category: str, progress: TrainingProgress, context: Context
) -> None:
    found = circumstances(Cause("x", category, p, bound=Bound.SERVICE), progress, context)
    assert abs(shift_of(found)) <= MAX_SHIFT
    assert all(each.says for each in found)


@given(st.text(max_size=400))
def test_any_text_has_a_progress(text: str) -> None:
    progress = progress_of(text)
    assert progress.steps is None or progress.steps >= 0


def test_the_context_needs_a_cause_to_bear_on() -> None:
    assert judge(b"all is well\n", context=Context(others_on_node=5)).evidence == ()
    assert Reading("").causes == ()


def test_steps_in_another_file_than_the_error_are_steps() -> None:
    err = OutputFile("/j/7.err", b"ConnectionResetError: Connection reset by peer\n", kind=OutputKind.STDERR)
    for steps, at_the_start in ((b"step 3 loss 1.3\n", False), (b"loading the data\n", True)):
        output = Output((OutputFile("/j/7.out", steps), err))
        evidence = judge(output, context=Context(ran_s=4.0), model=NoModel()).evidence
        assert any("before any step" in each.text for each in evidence) is at_the_start
