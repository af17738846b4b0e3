"""Step times of a training log: what each framework prints, and what else looks like it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.throughput.step_log import MOST_KEPT, StepLogError, read_step_log

BAR = b"Epoch 0:  45%%|####5     | 45/100 [00:12<00:14,  %s, loss=1.2, v_num=0]\r"
LOGS = {
    "Megatron": (
        b" iteration  10/ 100 | consumed samples: 512 | elapsed time per iteration (ms): 1234.5 | loss: 6.1 |",
        1.2345,
    ),
    "step time": (b"step 10 | loss 1.0 | step_time: 123.4ms", 0.1234),
    "PyTorch's example": (b"Epoch: [0][  10/1251]\tTime  0.213 ( 0.399)\tData  0.001 ( 0.100)", 0.213),
    "OpenMMLab": (b"Epoch [1][50/7330] lr: 1.9e-03, eta: 10:11:12, time: 0.413, data_time: 0.049, memory: 3788", 0.413),
    "Keras": (b"1875/1875 [==============================] - 4s 2ms/step - loss: 0.29", 0.002),
    "nanoGPT": (b"iter 10: loss 3.1, time 123.45ms, mfu 30.1%", 0.12345),
    "seconds a step": (b"step 20 loss 3.1 (0.51 s/step)", 0.51),
    "steps a second": (
        b"{'train_runtime': 12.3, 'train_samples_per_second': 130.1, 'train_steps_per_second': 4.0}",
        0.25,
    ),
    "progress bar": (BAR % b"4.00it/s" + BAR % b"5.00s/it", 0.25),
}


@pytest.mark.parametrize("form", LOGS)
def test_what_a_framework_prints_is_read(form: str) -> None:
    line, step_s = LOGS[form]
    found = read_step_log([b"starting\n", line, b"\ndone\n"], "train.log")
    assert (found.form, found.per_second) == (form, False)
    assert found.step_s(8, 32)[0] == pytest.approx(step_s)


@pytest.mark.parametrize(
    "line",
    [
        b"epoch=0/micro_step=10/global_step=10, CurrSamplesPerSec=128.0, MemAllocated=1GB",
        b"100 images/sec: 128.0 +/- 0.1 (jitter = 2.0)",
        b"throughput 128 samples/s",
    ],
)
def test_a_rate_of_examples_needs_gpus_and_batch(line: bytes) -> None:
    found = read_step_log([line], "train.log")
    assert found.per_second
    assert found.step_s(4, 8)[0] == pytest.approx(4 * 8 / found.values[0])


@pytest.mark.parametrize(
    ("line", "step_s"),
    [
        (b"| epoch 1 | 200/2983 batches | lr 20.00 | ms/batch 12.50 | loss 7.6 |", 0.0125),  # PyTorch's word model
        (b"Epoch 1 | Batch 20 | 12.5 batches/s | loss 2", 0.08),
        (b"iter 40: 250.0 ms/iter, loss 2", 0.25),
        (b"4.0 steps per second", 0.25),
    ],
)
def test_a_unit_behind_or_before_the_number_is_read(line: bytes, step_s: float) -> None:
    assert read_step_log([line], "train.log").values == pytest.approx([step_s])


def test_times_of_numbered_steps_are_steps_where_nothing_else_says_so() -> None:
    lines = [b"2026-01-01 23:%02d:%02d INFO step %d loss 1.0" % (i * 3 // 60, i * 3 % 60, 2 * i) for i in range(40)]
    found = read_step_log([b"\n".join(lines)], "train.log")
    assert found.form == "times of numbered steps"
    assert found.count == 39
    assert found.values == pytest.approx(1.5)


def test_clocks_without_a_date_go_over_midnight() -> None:
    found = read_step_log([b"23:59:58 step 1\n00:00:02 step 2\n00:00:06 step 3\n"], "train.log")
    assert found.values == pytest.approx([4.0, 4.0])


def test_a_restart_is_no_step() -> None:
    found = read_step_log([b"10:00:00 step 7\n10:00:02 step 8\n11:00:00 step 1\n11:00:02 step 2\n"], "train.log")
    assert found.values == pytest.approx([2.0, 2.0])


def test_bars_of_validation_and_of_data_are_not_read() -> None:
    other = [
        b"Validation DataLoader 0:  50%|##| 5/10 [00:01<00:01, 99.0it/s]",
        b"Map:  5%|# | 5/99 [00:01<00:09, 78 examples/s]",
    ]
    found = read_step_log([b"\r".join([*other, BAR % b"4.00it/s", *other])], "train.log")
    assert found.values == pytest.approx([0.25])


def test_the_log_says_where_it_ran() -> None:
    said = (
        b"using world size: 16, data-parallel-size: 16\nnnodes=2\n  micro_batch_size ................. 4\n"
        b"  global_batch_size ............... 64\nstep_time: 1 s\n"
    )
    found = read_step_log([said], "train.log")
    assert (found.gpus, found.nodes, found.batch, found.global_batch) == (16, 2, 4, 64)
    hugging = b"  Instantaneous batch size per device = 8\n  Total train batch size (w. parallel) = 32\nstep_time: 2 s"
    assert read_step_log([hugging], "train.log").batch == 8
    assert (
        read_step_log([b"All distributed processes registered. Starting with 4 processes\nstep_time 2s"], "x").gpus == 4
    )


@pytest.mark.parametrize(
    "named",
    [
        b"global_batch_size: 64",
        b"global batch size = 64",
        b"global-batch-size ............... 64",
        b"  Total train batch size (w. parallel, distributed & accumulation) = 64",
        b"Global Batch Size: 64",
    ],
)
def test_a_batch_of_all_gpus_is_not_that_of_one(named: bytes) -> None:
    found = read_step_log([b"world size: 16\n" + named + b"\nstep_time: 1 s\n"], "train.log")
    assert (found.gpus, found.batch, found.global_batch) == (16, None, 64)


@pytest.mark.parametrize("named", [b"batch_size: 8", b"batch size = 8", b"Batch-size ..... 8"])
def test_a_batch_that_says_no_more_is_that_of_one_gpu(named: bytes) -> None:
    found = read_step_log([b"world size: 16\n" + named + b"\nstep_time: 1 s\n"], "train.log")
    assert (found.batch, found.global_batch) == (8, None)


def test_the_first_tenth_is_warming_up() -> None:
    lines = [b"step_time: %d s" % (100 if i < 2 else 1) for i in range(20)]
    assert read_step_log([b"\n".join(lines)], "train.log").values.max() == 1.0


def test_of_many_steps_evenly_spaced_ones_are_kept() -> None:
    found = read_step_log((b"step_time: %d s\n" % (i + 1) for i in range(10 * MOST_KEPT)), "train.log")
    assert found.count == 10 * MOST_KEPT
    assert MOST_KEPT / 2 <= len(found.values) <= MOST_KEPT
    assert np.median(found.values) == pytest.approx(0.55 * 10 * MOST_KEPT, rel=0.01)


@given(st.binary(max_size=400), st.integers(1, 40))
def test_any_bytes_are_read_or_refused_whatever_their_pieces(data: bytes, size: int) -> None:
    pieces = [data[i : i + size] for i in range(0, len(data), size)] + [b"\nstep_time: 1 s\n"]
    assert read_step_log(pieces, "train.log").count >= 1


@pytest.mark.parametrize("data", [b"", b"no times here\n" * 5, b"step_time: 0 s\n", b"step 1\nstep 2\n"])
def test_a_log_without_step_times_is_refused(data: bytes) -> None:
    with pytest.raises(StepLogError, match=r"train\.log: no line says how long a step takes"):
        read_step_log([data], "train.log")


@pytest.mark.parametrize(
    "name", [b"Explain graph", b"Preprocessing dataset", b"Fetching 2 files", b"Extracting : xz_conda", b"Quantizing"]
)
def test_bars_that_name_something_else_than_training_are_not_read(name: bytes) -> None:
    bar = name + b":  45%|####5     | 45/100 [00:12<00:14,  4.00it/s]\r"
    with pytest.raises(StepLogError):
        read_step_log([bar], "train.log")
    assert read_step_log([bar, BAR % b"5.00s/it"], "train.log").values == pytest.approx([5.0])


@pytest.mark.parametrize("name", [b"", b"train: ", b"[rank0]: ", b"Epoch [3/9] ", b"loss 0.3 ", b"Iteration: "])
def test_bars_of_training_are_read_whatever_is_before_them(name: bytes) -> None:
    bar = name + b" 45%|####5     | 45/100 [00:12<00:14,  4.00it/s]"
    assert read_step_log([bar], "train.log").values == pytest.approx([0.25])


def test_clocks_of_whole_seconds_tell_steps_that_are_quicker() -> None:
    lines = [b"2026-01-01 10:%02d:%02d step %d" % (i * 3 // 600, i * 3 // 10 % 60, i) for i in range(1000)]
    found = read_step_log([b"\n".join(lines)], "train.log")
    assert np.mean(found.values) == pytest.approx(0.3, rel=0.05)
    assert np.median(found.values) == pytest.approx(0.3, rel=0.2)


@pytest.mark.parametrize(
    "line", [b"  Time step     : 0.1", b"step_time: 0.05 ms", b" 45%|##| 45/100 [00:00<00:00, 7619.11it/s]"]
)
def test_what_is_no_step_of_training_is_not_read(line: bytes) -> None:
    with pytest.raises(StepLogError):
        read_step_log([line], "train.log")
