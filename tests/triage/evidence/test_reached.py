"""How far an attempt came, what it saved last and what is lost, by the words that frameworks use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.output import Output
from perdure.triage.evidence.reached import reached
from perdure.triage.verdict import Reached

STEPS = [f"step {n}/1000 loss 0.5" for n in range(1, 101)]


def of(*lines: str) -> Reached | None:
    return reached(Output.of("\n".join(lines).encode()))


@pytest.mark.parametrize(
    ("line", "name", "step"),
    [
        ("Saved checkpoint to runs/a/step-80.pt", "runs/a/step-80.pt", 80),
        ("[INFO] saved checkpoints/last.pt", "checkpoints/last.pt", 80),
        ("Saving model checkpoint to output/checkpoint-80", "output/checkpoint-80", 80),  # transformers
        ("[2026-01-02 03:04:05,678] [INFO] [torch_checkpoint_engine.py:23:save] [Torch] Saved "
         "ckpt/global_step80/mp_rank_00_model_states.pt.", "ckpt/global_step80/mp_rank_00_model_states.pt.", 80),
        ("  successfully saved checkpoint from iteration      80 to ckpts/gpt", "checkpoint", 80),  # Megatron
        ("Epoch 3, global step 80: 'loss' reached 0.1, saving model to '/x/epoch=3-step=80.ckpt' as top 1",
         "/x/epoch=3-step=80.ckpt", 80),  # Lightning
    ],
)  # fmt: skip
def test_the_last_checkpoint_is_known_by_what_frameworks_print(line: str, name: str, step: int) -> None:
    found = of(*STEPS[:80], line, *STEPS[80:], "RuntimeError: x")
    assert found is not None
    assert (found.step, found.first_step, found.checkpoint, found.saved_step) == (100, 1, name, step)
    assert found.lost_frac == pytest.approx(0.2)
    assert "came to step 100; saved " in found.words(10.0)
    assert "about 20% of its steps are lost, 2 GPU-h" in found.words(10.0)


def test_what_was_saved_at_its_last_step_lost_nothing() -> None:
    found = of(*STEPS, "checkpoint saved at step 100", "RuntimeError: x")
    assert found is not None
    assert found.words(10.0).endswith("; none of its steps is lost")


def test_a_checkpoint_that_was_being_written_when_all_ended_is_none() -> None:
    found = of(*STEPS[:50], "Saving checkpoint to a/step-50.pt", *STEPS[50:], "Saving checkpoint to a/step-100.pt")
    assert found is not None
    assert (found.saved_step, found.checkpoint) == (50, "a/step-50.pt")


@pytest.mark.parametrize(
    "line",
    ["failed to write checkpoint a/step-90.pt: saved nothing", "Checkpoints will be saved to ckpt/", "resumed: a-7.pt"],
)
def test_what_was_not_saved_is_no_checkpoint(line: str) -> None:
    found = of(*STEPS, line)
    assert found is not None
    assert (found.checkpoint, found.lost_frac) == ("", 1.0)
    assert found.words(10.0).endswith("its log names no checkpoint; all its steps seem lost, 10 GPU-h")


def test_a_log_without_steps_tells_nothing() -> None:
    assert of("hello", "RuntimeError: x") is None


@given(st.lists(st.sampled_from([*STEPS[:5], "saved x/step-3.pt", "saving a.pt", "\0\x1b["]) | st.text(), max_size=30))
def test_any_log_is_read(lines: list[str]) -> None:
    found = reached(Output.of("\n".join(lines).encode("utf-8", "surrogatepass")))
    assert found is None or found.lost_frac is None or 0.0 <= found.lost_frac <= 1.0
