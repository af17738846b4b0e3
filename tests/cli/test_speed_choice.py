"""``perdure speed --or``: which ends first, by given waits or the queue's, and one line for bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import when_answer
from perdure.cli.main import main
from perdure.cli.speed_choice import choice_of, length
from perdure.throughput.first_to_end import GpuChoice, TimeSpread, by_end, chance_before
from perdure.waits.queue import Queue
from tests.cli.test_when_job import NODES, NOW_S, PARTITIONS, job, site_of

USUAL = ("--model", "resnet50", "--gpu", "v100", "--batch", "64", "--work")


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["speed", *words, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["choices"]
    return found


def test_few_gpus_now_win_a_short_job_and_many_later_a_long_one(capsys: pytest.CaptureFixture[str]) -> None:
    either = ("--or", "8 GPUs now", "--or", "16 GPUs in 5 hours")
    short = asked(capsys, *USUAL, "2 epochs of 1,281,167", *either)
    long = asked(capsys, *USUAL, "200 epochs of 1,281,167", *either)
    assert [row["gpus"] for row in short] == [8, 16]
    assert [row["gpus"] for row in long] == [16, 8]
    assert short[0]["chance_before_next"] > 0.9
    assert short[1]["wait"]["median_s"] == 5 * 3600
    assert short[0]["end"]["median_s"] == pytest.approx(short[0]["run"]["median_s"])


def test_work_in_steps_is_that_of_the_first_choice(capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, *USUAL, "1000 steps", "--or", "8 GPUs now", "--or", "16 gpus in 30 m")
    eight, sixteen = sorted(rows, key=lambda row: int(row["gpus"]))
    assert sixteen["run"]["median_s"] == pytest.approx(eight["run"]["median_s"] / 2, rel=0.1)


def test_logs_of_the_job_say_how_fast_it_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "a.log").write_text("step_time: 500 ms\n" * 9)
    words = ("--from-log", f"{home / 'a.log'},gpus=8,batch=32", "--work", "7200 steps")
    rows = asked(capsys, *words, "--or", "8 GPUs now", "--or", "4 GPUs in 1 h")
    assert rows[0]["run"]["median_s"] == pytest.approx(3600, rel=0.02)
    assert main(["speed", *words, "--or", "8 GPUs now", "--or", "4 GPUs in 1 h"]) == 0
    assert "8 GPUs now ends first with a chance of " in capsys.readouterr().out


@pytest.mark.usefixtures("says_nothing_of_compiling")
def test_without_a_time_the_queue_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    del home
    monkeypatch.setattr(when_answer, "live_queue", lambda: (Queue(NOW_S, (job("1"),), NODES, PARTITIONS), site_of()))
    rows = asked(capsys, *USUAL, "1000 steps", "--or", "1 GPU now", "--or", "4 GPUs")
    four = next(row for row in rows if row["gpus"] == 4)
    assert four["wait"]["low_s"] <= four["wait"]["median_s"] <= four["wait"]["high_s"]
    assert four["wait"]["high_s"] > 0


def test_chances_add_up_and_a_certain_choice_is_certain() -> None:
    now = GpuChoice("now", 8, TimeSpread(0, 0, 0), TimeSpread(90, 100, 110))
    later = GpuChoice("later", 16, TimeSpread(20, 40, 90), TimeSpread(45, 50, 55))
    assert [each.name for each in by_end([now, later])] == ["later", "now"]
    assert chance_before(now, later) + chance_before(later, now) == pytest.approx(1)
    assert chance_before(later, now) == pytest.approx(0.59, abs=0.05)
    fixed = GpuChoice("fixed", 8, TimeSpread(0, 0, 0), TimeSpread(100, 100, 100))
    sooner = GpuChoice("sooner", 8, TimeSpread(0, 0, 0), TimeSpread(99, 99, 99))
    assert (chance_before(fixed, sooner), chance_before(sooner, fixed), chance_before(fixed, fixed)) == (0, 1, 0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--or", "8 GPUs now"), "--or: there is one choice."),
        (("--or", "8 GPUs now", "--or", "many"), "--or: 'many' is no choice."),
        (("--or", "0 GPUs now", "--or", "1 GPU"), "--or: '0 GPUs now' is no choice."),
        (
            ("--or", "8 GPUs now", "--or", "12 GPUs now", "--gpus-per-node", "8"),
            "--or: 12 GPUs are no whole nodes of 8.",
        ),
        (("--or", "8 GPUs now", "--or", "9 GPUs now", "--work", "soon"), "--work: 'soon' is no work."),
        (("--or", "8 GPUs now", "--or", "9 GPUs now", "--work", ""), "--work: it is missing."),
        (
            ("--or", "8 GPUs now", "--or", "9 GPUs now", "--gpus-per-node", "4,8"),
            "--gpus-per-node: it has several values.",
        ),
        (("--or", "8 GPUs now", "--or", "9 GPUs now", "--gpu", "v100,a100"), "--gpu: it has several values."),
        (("--or", "8 GPUs now", "--or", "9 GPUs now", "--batch", "8,16"), "--batch: it has several values."),
        (("--or", "8 GPUs now", "--or", "9 GPUs now", "--link", "9G,10G"), "--link: it has several values."),
        (("--or", "8 GPUs now", "--or", "9 GPUs now", "--work", "1e99 steps"), "--work: '1e99 steps' is 5.12e+101 ex"),
        (("--or", "8 GPUs now", "--or", "9 GPUs now", "--work", "0 steps"), "--work: '0 steps' is 0 examples."),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    assert main(["speed", *USUAL, "100 steps", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"perdure: {said}")


def test_errors_with_one_cause_cancel_out(capsys: pytest.CaptureFixture[str]) -> None:
    slow = GpuChoice("slow", 8, TimeSpread(0, 0, 0), TimeSpread(80, 100, 120))
    quick = GpuChoice("quick", 16, TimeSpread(0, 0, 0), TimeSpread(72, 90, 108))
    assert chance_before(quick, slow) < 0.7
    assert chance_before(quick, slow, one_cause=True) > 0.99
    either = ("--or", "8 GPUs now", "--or", "9 GPUs now")
    rows = asked(capsys, *USUAL, "2 epochs of 1,281,167", *either)
    assert rows[0]["chance_before_next"] > 0.99  # the same estimate for both


def test_it_says_what_it_takes_the_choices_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--transport", "rdma", "--link", "25G", "--or", "8 GPUs now", "--or", "16 GPUs in 5 hours")
    assert main(["speed", *USUAL, "90 epochs of 1,281,167", *words]) == 0
    said = capsys.readouterr().out
    assert "Taken: v100, a batch of 64 on each GPU, 25G rdma between nodes of 1." in said
    assert re.search(r"8 GPUs now +0s +1\dh \d+m +", said)


def test_racks_slow_choices_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--racks", "8", "--oversubscription", "64", "--or", "16 GPUs now", "--or", "32 GPUs now")
    far, near = (asked(capsys, *USUAL, "9 epochs of 1,281,167", *given) for given in (words, words[4:]))
    assert far[0]["run"]["median_s"] > near[0]["run"]["median_s"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0s"), (59.4, "59s"), (59.6, "1m"), (3599, "59m 59s"), (9000, "2h 30m"), (4e5, "4d 15h")]
)
def test_a_length_of_time_has_two_units(seconds: float, said: str) -> None:
    assert length(seconds) == said


@pytest.mark.parametrize(("wait", "wait_s"), [("90 s", 90), ("30 min", 1800), ("5 hours", 18000), ("2 d", 172800)])
def test_a_wait_is_read_in_its_unit(wait: str, wait_s: float) -> None:
    assert choice_of(f"16 GPUs in {wait}").wait_s == wait_s


def test_of_two_that_end_together_the_one_with_fewer_gpus_is_first() -> None:
    run = TimeSpread(90, 100, 110)
    wide, narrow = (GpuChoice(str(gpus), gpus, TimeSpread(0, 0, 0), run) for gpus in (16, 8))
    assert by_end([wide, narrow])[0] is narrow


def test_gpus_of_a_choice_fill_whole_nodes(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    one_node = asked(
        capsys,
        *USUAL,
        "3e8 examples",
        "--gpus-per-node",
        "8",
        "--link",
        "1G",
        "--or",
        "8 GPUs now",
        "--or",
        "1 GPU now",
    )
    assert one_node[0]["gpus"] == 8  # one node of 8 uses no network
    for name, nodes, gpus, step in (("one", 1, 8, 500), ("two", 2, 16, 900)):
        (home / f"{name}.log").write_text(f"nnodes: {nodes}\nworld_size: {gpus}\nstep_time: {step} ms\n" * 9)
    logs = [word for name in ("one", "two") for word in ("--from-log", f"{home / name}.log,batch=32")]
    rows = asked(capsys, *logs, "--work", "3600 steps", "--or", "12 GPUs now", "--or", "8 GPUs now")
    twelve = next(row for row in rows if row["gpus"] == 12)
    assert twelve["run"]["median_s"] > 3600 * 0.7  # on two nodes
