"""``perdure speed --from-log``: what is read is said, what is not known has wide intervals, bad input is one line."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import main
from perdure.throughput.layout_speed import LayoutSpeed
from tests.throughput.test_layout_fit import TRUE


def write_log(path: Path, model: LayoutSpeed, nodes: int, gpus: int, batch: int) -> str:
    step_ms = 1e3 * float(model.step_s(nodes, gpus, batch))
    lines = [f"world_size: {gpus}", f"nnodes: {nodes}", f"micro_batch_size: {batch}"]
    path.write_text("\n".join([*lines, *(f"step_time: {step_ms * (1 + 0.01 * (i % 3)):.6g} ms" for i in range(30))]))
    return str(path)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["speed", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_logs_of_some_layouts_tell_another(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = [(1, 1, 8), (1, 1, 32), (1, 4, 16), (1, 8, 16), (2, 8, 16), (2, 16, 32), (4, 16, 16), (4, 32, 16)]
    logs = [write_log(home / f"{i}.log", TRUE, *each) for i, each in enumerate(where)]
    words = [word for log in logs for word in ("--from-log", log)]
    found = asked(capsys, *words, "--nodes", "3", "--gpus-per-node", "4", "--batch", "16")
    (row,) = found["settings"]
    true = float(TRUE.step_s(3, 12, 16))
    assert row["step_s"] == pytest.approx(true, rel=0.1)
    assert row["step_s_80_percent"][0] < true < row["step_s_80_percent"][1]
    assert row["known_by"] == "steps seen"
    assert found["logs"][4]["gpus"] == 8


def test_what_was_never_seen_is_said_and_wide(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(home / "one.log", TRUE, 1, 1, 16)
    assert main(["speed", "--from-log", log, "--nodes", "1,4"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{log}: 30 steps (step time), ")
    assert "1 GPU of 1 node, batch 16 a GPU" in said
    assert "assumption: never seen on several nodes" in said
    one, four = asked(capsys, "--from-log", log, "--nodes", "1,4", "--batch", "16")["settings"]
    widths = [row["step_s_80_percent"][1] / row["step_s_80_percent"][0] for row in (one, four)]
    assert widths[0] < 1.2 < 2 < widths[1]


def test_waiting_that_a_profiler_told_is_fitted_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two GPUs compute in less time than one, so that their step is shorter although they wait."""
    (home / "one.log").write_text("step_time: 200 ms\n")
    (home / "two.log").write_text("step_time: 190 ms\n")
    words = ["--from-log", f"{home}/one.log,batch=8", "--gpus-per-node", "4", "--from-log"]
    blind, told = (
        asked(capsys, *words, f"{home}/two.log,gpus=2,batch=8{waiting}")["settings"][0]["waiting_s"]
        for waiting in ("", ",waiting=40.5")
    )
    assert blind < 0.02
    assert 0.03 < told < 0.1


def test_layers_of_a_model_take_the_place_of_the_assumption(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(home / "one.log", TRUE, 1, 1, 16)
    words = ("--from-log", log, "--nodes", "4", "--gpu", "v100", "--link", "10G", "--transport", "tcp", "--model")
    small, large = (asked(capsys, *words, model)["settings"][0]["step_s"] for model in ("resnet18", "vgg19"))
    assert large > 1.5 * small


def test_a_compressed_log_is_read(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = home / "train.log.gz"
    packed.write_bytes(gzip.compress(b"step_time: 250 ms\n" * 9))
    (row,) = asked(capsys, "--from-log", f"{packed},gpus=2,batch=8", "--nodes", "1")["settings"]
    assert row["step_s"] == pytest.approx(0.25, rel=0.01)
    assert row["gpus"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from-log", "none.log"), "none.log: cannot be read (No such file or directory)."),
        (("--from-log", "."), ".: is not a regular file."),
        (("--from-log", ""), "--from-log: it is empty."),
        (("--from-log", "train.log"), "train.log: it does not say its batch."),
        (("--from-log", "train.log,batch=0"), "train.log: batch=0 is no number of them."),
        (("--from-log", "train.log,nodes=4,gpus=2,batch=8"), "train.log: 2 GPUs are fewer than its 4 nodes."),
        (("--from-log", "no.log,batch=8"), "no.log: no line says how long a step takes,"),
        (("--from-log", "train.log,batch=8", "--step-ms", "3"), "--step-ms: the logs say how long steps take."),
        (("--from-log", "train.log,batch=8", "--model", "vgg19"), "--gpu: it is missing."),
        (("--gpu", "v100"), "--model: it is missing."),
        (
            ("--from-log", "train.log,batch=8,waiting=0"),
            "train.log: 0 ms of waiting are not within its steps of 250 ms",
        ),
        (("--from-log", "train.log,batch=8,waiting=251"), "train.log: 251 ms of waiting are not within its steps"),
        (("--from-log", "train.log,batch=8,waiting=1e3"), "--from-log: 'waiting=1e3' is not nodes=N,"),
        (
            ("--from-log", "train.log,gpu=8,batch=8"),
            "--from-log: 'gpu=8' is not nodes=N, gpus=N, batch=N or waiting=MS.",
        ),
        (
            ("--from-log", "train.log,batch=8", "--model", "vgg19", "--gpu", "v100", "--link", "10G,25G"),
            "--link: it has several values.",
        ),
    ],
)
def test_bad_input_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(home)
    (home / "train.log").write_text("step_time: 250 ms\n")
    (home / "no.log").write_text("nothing\n")
    assert main(["speed", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"perdure: {said}")


def test_a_global_batch_is_divided_among_gpus_and_one_slow_step_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["world_size: 4", "global_batch_size: 64", *["step_time: 250 ms"] * 20, "step_time: 9 s"]
    (home / "train.log").write_text("\n".join(lines))
    (log,) = asked(capsys, "--from-log", str(home / "train.log"), "--nodes", "1")["logs"]
    assert (log["batch"], log["step_s"]) == (16, 0.25)


def test_a_few_examples_a_second_are_told_with_their_digits(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "train.log").write_text("step_time: 8 s\n")
    assert main(["speed", "--from-log", f"{home / 'train.log'},batch=1", "--nodes", "1"]) == 0
    assert re.search(r"8,000 ms +7,534-8,495 +0\.125 +100%", capsys.readouterr().out)
