"""Ordinary output of a training program, in several manners; also copied beside each program of the foundry.

Words that look like trouble and are none ("error_rate", "retries 0", a warning) are part of it on purpose.
"""

import os
import sys
from collections.abc import Iterator
from typing import TextIO

MARK = "\x1e"
"""Ends each ordinary line when programs are recorded, so that the lines that tell of the failure are known."""

STYLES = 14


def line(style: int, step: int, count: int) -> str:
    """The line of one step in manner `style` (taken modulo `STYLES`); the numbers hang on `step` alone."""
    loss = 2.3 / (1 + step % 997) + 0.1 + (step * 7919 % 100) / 1e4
    wall = f"{10 + step // 3600 % 12:02d}:{step // 60 % 60:02d}:{step % 60:02d}"
    tenths = 11 + step * 31 % 9
    tokens = 41_000 + step * 131 % 900
    bar = "#" * (20 * step // max(1, count)) + " " * (20 - 20 * step // max(1, count))
    manners = (
        lambda: f"step {step} loss {loss:.4f}",
        lambda: f"2025-03-02 {wall},120 INFO train: it {step} loss={loss:.3f} lr=1e-3 error_rate=0.31",
        lambda: f"| {step:5d} | {loss:8.4f} | 0.{tenths} s |",
        lambda: f"\r{step / max(1, count):4.0%}|{bar}| {step}/{count} [00:0{step % 9}<00:09,  1.{step % 9}it/s]",
        lambda: f'{{"step": {step}, "loss": {loss:.4f}, "retries": 0}}',
        lambda: f"[rank{step % 4}]: step={step} loss={loss:.4f} grad_norm=0.{tenths}",
        lambda: (
            f" [2025-03-02 {wall}] iteration {step:8d}/{count:8d} | consumed samples: {step * 512:12d} | elapsed time "
            f"per iteration (ms): {tenths * 37.5:.1f} | learning rate: 1.5E-04 | global batch size:   512 | lm loss: "
            f"{loss:.6E} | loss scale: 65536.0 | grad norm: 0.{tenths} | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |"
        ),
        lambda: f"{{'loss': {loss:.4f}, 'grad_norm': 0.{tenths}, 'learning_rate': 4.9e-05, 'epoch': {step / 100:.2f}}}",
        lambda: (
            f"Epoch {step // 100}:  {step % 100:2d}%|{'█' * (step % 100 // 10):10s}| {step % 100}/100 "
            f"[00:{step % 60:02d}<00:42, 2.{step % 9}it/s, v_num=3, train_loss={loss:.3f}]"
        ),
        lambda: (
            f"{step % 469}/469 [==============>...............] - ETA: {step % 60}s - loss: {loss:.4f} - accuracy: "
            f"0.{9000 + step % 900}"
        ),
        lambda: (
            f"2025-03-02 {wall} | INFO | train_inner | epoch 001: {step:6d} / {count} loss={loss:.3f}, "
            f"ppl={2**loss:.2f}, wps={tokens}, ups=2.{tenths}, num_updates={step}, gnorm=0.{tenths}, clip=0, oom=0"
        ),
        lambda: f"{step:8d}   300.{tenths}    -4713.{tokens % 1000:03d}   0.0    -4701.{step % 1000:03d}    1.{tenths}",
        lambda: (
            f"[2025-03-02 {wall},120] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.0001], "
            f"mom=[(0.9, 0.95)]"
        ),
        lambda: (
            f"I0302 {wall}.120000 4711 metric_writer.py:104] completed step: {step}, seconds: 1.{tenths}, "
            f"TFLOP/s/device: 201.{tenths}, Tokens/s/device: {tokens}.0, total_weights: 65536, loss: {loss:.3f}"
        ),
    )
    return manners[style % STYLES]()


def greeting(style: int) -> tuple[str, ...]:
    """What a job prints before it begins."""
    return (
        ("job started on n1, python 3.11",),
        (
            "2025-03-02 10:11:12,345 INFO main: seed 17, 4 workers, batch 32, timeout=1800s",
            "2025-03-02 10:11:13,007 WARNING data: cache is cold, the first epoch will be slower",
        ),
        ("=" * 60, " model: 3 layers, 12,416 parameters", "=" * 60),
        ("Loading `train` is finished", "Loading `validation` is finished"),
        ("/home/user/env/lib/x.py:17: FutureWarning: `old` is deprecated, use `new`", "  warnings.warn("),
        ("[rank0]: world size 4, backend gloo",),
        (
            "using world size: 16, data-parallel size: 4, tensor-model-parallel size: 4",
            "> initializing torch distributed ...",
            "> setting random seeds to 1234 ...",
        ),
        (
            "***** Running training *****",
            "  Num examples = 64,000",
            "  Num Epochs = 3",
            "  Total optimization steps = 3000",
        ),
        (
            "GPU available: False, used: False",
            "  | Name  | Type       | Params",
            "0 | model | Sequential | 12.4 K",
            "12.4 K    Trainable params",
        ),
        ("Found 60000 images belonging to 10 classes.", "Epoch 1/10"),
        ("2025-03-02 10:11:12 | INFO | fairseq_cli.train | num. shared model params: 64,012,288",),
        (
            "Setting up Verlet run ...",
            "   Step          Temp          E_pair         E_mol          TotEng         Press",
        ),
        ("[2025-03-02 10:11:12,120] [INFO] [comm.py:637:init_distributed] cdb=None", "Adam Optimizer #0 is created."),
        ("I0302 10:11:12.120000 4711 train.py:88] Running with 16 devices, 0 of them failed so far",),
    )[style % STYLES]


def loading(style: int, item: int) -> str:
    """A line of what is done before the first step, in manner `style` (taken modulo `STYLES`)."""
    part, size = item % 4096, 12 + item * 37 % 80
    return (
        f"loading shard {part} of 4096 ({size} MB)",
        f"2025-03-02 10:{part // 60 % 60:02d}:{part % 60:02d},120 INFO data: indexed {part * 1000} rows, 0 failed",
        f"Map (num_proc=8): {part * 100 // 4096:3d}%|{'#' * (part * 10 // 4096):10s}| {part}/4096 [00:0{part % 9}]",
        f"tokenizing part-{part:05d}.jsonl ... done in 0.{size} s",
    )[style % STYLES % 4]


def _own_style() -> int:
    return int(os.environ.get("CHATTER", "0")) % STYLES


def say(text: str, stream: TextIO | None = None) -> None:
    """Print an ordinary line."""
    print(text + os.environ.get("CHATTER_MARK", ""), file=stream or sys.stdout, flush=True)


def greet() -> None:
    """Print what a job prints before it begins."""
    for text in greeting(_own_style()):
        say(text)


def steps(count: int = 12) -> Iterator[int]:
    """Yield the numbers of the steps and print a line for each."""
    greet()
    for step in range(count):
        say(line(_own_style(), step, count))
        yield step
