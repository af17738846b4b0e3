"""Which rank stopped first, from what is seen of all: on the smallest sights that show each rule."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.hangs.culprit import finding_of
from perdure.hangs.rank_state import Frame, Life, RankState, Seen, life_of
from perdure.job.inspection import dump_of, frames_of
from perdure.job.output import Growth, OutputFiles, growth_of

BACKWARD = Frame("_engine_run_backward", "/v/lib/python3.11/site-packages/torch/autograd/graph.py", 979)
BARRIER = Frame("barrier", "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 5356)
LOADER = Frame("_try_get_data", "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 1292)
OWN = Frame("load", "/home/ada/train.py", 17)


def rank(number: int, life: Life = Life.WAITS, **more: Any) -> RankState:
    return RankState(number, "n1", life, **more)


@pytest.mark.parametrize(
    ("seen", "life", "words"),
    [
        (Seen(frames=(BACKWARD, OWN)), Life.WAITS, "train.py:17 in load, in _engine_run_backward"),
        (Seen(frames=(BACKWARD, OWN), busy_frac=1.0), Life.WORKS, "train.py:17"),
        (Seen(frames=(BACKWARD, OWN), busy_frac=1.0, has_gpu=True), Life.WAITS, "train.py:17"),
        (Seen(frames=(BARRIER, OWN), busy_frac=1.0), Life.WAITS, "in barrier"),
        (Seen(frames=(OWN,), call="futex"), Life.ELSEWHERE, "train.py:17 in load"),
        (Seen(frames=(OWN,), call="futex", has_gpu=True), Life.UNCLEAR, "train.py:17 in load"),
        (Seen(frames=(LOADER, OWN), call="poll", has_gpu=True), Life.ELSEWHERE, "in _try_get_data"),
        (Seen(frames=(OWN,), call="write", bytes_s=1e6, has_gpu=True), Life.WORKS, "train.py:17 in load"),
        (Seen(frames=(BARRIER,), bytes_s=1e6), Life.WAITS, "barrier"),
        (Seen(call="futex"), Life.UNCLEAR, "a lock or a peer"),
        (Seen(call="poll", below="its process 12 opens a file"), Life.ELSEWHERE, "its process 12 opens a file"),
        (Seen(call="futex", code="Python"), Life.ELSEWHERE, "waits for a lock, in Python"),
        (Seen(call="futex", code="libtorch_cpu.so"), Life.WAITS, "a lock or a peer, in libtorch_cpu.so"),
        (Seen(call="futex", code="libtorch_cpu.so", busy_frac=0.9), Life.WORKS, ""),
        (Seen(call="poll", code="libnccl.so.2", below="its process 12 opens a file"), Life.ELSEWHERE, "its process 12"),
        (Seen(call="poll", code="Python", frames=(BARRIER, OWN)), Life.WAITS, "in barrier"),
        (Seen(call="sleep", code="libtorch_cpu.so"), Life.ELSEWHERE, "sleeps"),
        (Seen(call="sleep"), Life.ELSEWHERE, "sleeps"),
        (Seen(call="read", target="/data/part-3"), Life.ELSEWHERE, "reads /data/part-3"),
        (Seen(call="read", target="socket"), Life.UNCLEAR, "socket"),
        (Seen(state="D"), Life.ELSEWHERE, "a disk or a file system"),
        (Seen(state="T", frames=(BACKWARD, OWN)), Life.STOPPED, "train.py:17"),
        (Seen(busy_frac=0.9), Life.WORKS, ""),
        (Seen(busy_frac=0.9, has_gpu=True), Life.UNCLEAR, ""),
    ],
)
def test_what_a_rank_is_at(seen: Seen, life: Life, words: str) -> None:
    found, where, _ = life_of(seen)
    assert (found, words in where) == (life, True)


@pytest.mark.parametrize(
    ("sights", "culprits", "words"),
    [
        ([rank(0), rank(1, Life.ELSEWHERE, where="sleeps")], [1], "sleeps; rank 0 waits for it"),
        ([rank(0, Life.DEAD, exit_code=1), rank(1), rank(2)], [0], "it ended with exit code 1; ranks 1, 2 wait for it"),
        ([rank(0), rank(1, Life.STOPPED)], [1], "is stopped"),
        ([rank(0), rank(1, Life.ENDED)], [1], "it has ended with exit code 0; rank 0 waits for it"),
        ([rank(0, Life.ELSEWHERE, where="sleeps"), rank(1, Life.ENDED)], [0], "sleeps; rank 1 has ended"),
        ([rank(0, collective="barrier"), rank(1), rank(2)], [0], "it is in barrier"),
        ([rank(0, collective="reduce"), *(rank(n, collective="barrier") for n in (1, 2))], [0], "1, 2 in barrier"),
        (
            [rank(n, collective=at) for n, at in enumerate(("reduce", "gather", "barrier", "barrier"))],
            [0, 1],
            "ranks 2, 3 in barrier",
        ),
        ([rank(0, step=8), rank(1, step=6)], [1], "its last step is 6, that of others 8"),
        ([rank(0, silent_s=20.0), rank(1, silent_s=90.0)], [1], "it fell silent first"),
        ([rank(0, silent_s=20.0), rank(1, silent_s=21.0)], [], "no rank stands out"),
        ([rank(0, collective="barrier"), rank(1, collective="backward")], [], "rank 0: barrier; rank 1: backward"),
        ([RankState(None, "n1", Life.ELSEWHERE, "train.py:3 in f")], [None], "train.py:3 in f"),
        ([], [], "none of its processes is known here"),
    ],
)  # fmt: skip
def test_who_stopped_first(sights: Sequence[RankState], culprits: Sequence[int | None], words: str) -> None:
    found = finding_of(sights, slack_s=5.0)
    assert [sight.rank for sight in found.culprits] == culprits
    assert words in found.says
    assert not found.works


def test_of_several_culprits_the_first_is_named_with_what_it_is_at_in_whatever_order_they_are_seen() -> None:
    alone = [rank(1, Life.ELSEWHERE, where="in load"), rank(3, Life.ELSEWHERE, where="in save")]
    in_collective = [rank(number, collective="all_reduce") for number in (0, 2, 4)]
    odd = [rank(1, collective="broadcast"), rank(3, collective="barrier")]
    first = "rank 1 on n1 and 1 more stopped first"
    for order in (1, -1):
        assert finding_of([*alone, *in_collective][::order]).sentence.startswith(f"{first}: in load")
        assert finding_of([*odd, *in_collective][::order]).sentence.startswith(f"{first}: it is in broadcast")


def test_of_ranks_that_were_not_seen_each_may_be_the_culprit() -> None:
    assert finding_of([rank(0, where="waits")], unseen=1).culprits == ()
    assert finding_of([rank(0, Life.ELSEWHERE), rank(1)], unseen=1).culprits[0].rank == 0


def test_while_somebody_works_it_is_no_hang_yet() -> None:
    found = finding_of([rank(0, Life.WORKS, where="train.py:9 in validate"), rank(1)])
    assert found.works
    assert found.sentence == ("rank 0 on n1 works: it still works: train.py:9 in validate; rank 1 waits for it")


@given(st.lists(st.builds(
    RankState,
    st.none() | st.integers(0, 9),
    st.just("n1"),
    st.sampled_from(Life),
    where=st.sampled_from(["", "a", "b"]),
    step=st.none() | st.integers(0, 3), silent_s=st.none() | st.floats(0, 1e6),
    collective=st.sampled_from(["", "barrier", "backward"]),
), max_size=6))  # fmt: skip
def test_whatever_is_seen_there_is_a_finding(sights: list[Any]) -> None:
    """A culprit is one that was seen, never one that only waits while another does not; works only where one works."""
    found = finding_of(sights)
    assert set(found.culprits) <= set(sights)
    assert found.works <= any(sight.life is Life.WORKS for sight in sights)
    lives = {sight.life for sight in sights}
    if Life.DEAD in lives and len(lives) > 1:
        assert {sight.life for sight in found.culprits} == {Life.DEAD}
    assert found.sentence


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.floats(0, 1e6)), min_size=2, max_size=5))
def test_of_ranks_alike_one_is_named_only_by_what_all_have_told(told: list[Any]) -> None:
    """Whoever has told no step may be the one that lies behind; whose silence is not known, the longest silent."""
    ranks = [rank(n, collective="barrier", step=step, silent_s=silent_s) for n, (step, silent_s) in enumerate(told)]
    steps, silences = zip(*told, strict=True)
    found = {sight.rank for sight in finding_of(ranks).culprits}
    if None in steps and None in silences:
        assert not found
    elif None not in steps and len(set(steps)) > 1:
        assert found == {n for n, step in enumerate(steps) if step == min(steps)}
    elif found:
        assert [silences[n] for n in found] == [max(silences)]  # type: ignore[index]


DUMP = b"""step 5
Current thread 0x00007fab37047b80 (most recent call first):
  File "/home/ada/train.py", line 17 in load
  File "/home/ada/train.py", line 44 in <module>
Thread 0x00007fab37047b81 (most recent call first):
  File "/home/ada/other.py", line 3 in run
"""


def test_a_dumped_stack_is_read() -> None:
    assert dump_of(DUMP) == (OWN, Frame("<module>", "/home/ada/train.py", 44))
    assert dump_of(b"step 5\nCurrent thread 0x00007fab") == ()


@given(st.binary(max_size=300))
def test_any_dump_can_be_read(noise: bytes) -> None:
    dump_of(b"Current thread 0x" + noise)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda one: st.lists(one, max_size=3)
       | st.dictionaries(st.sampled_from(["os_thread_id", "frames", "name", "line"]), one, max_size=4)))  # fmt: skip
def test_whatever_py_spy_prints_can_be_read(said: object) -> None:
    frames_of(json.loads(json.dumps(said)), 7)


@pytest.mark.parametrize(
    ("text", "growth"),
    [
        (b"perdure exec: no sign of life for 20 s: its processes are looked at\n", Growth.OTHERS),
        (b"1: perdure exec: hang: rank 1 stopped first\n", Growth.OTHERS),
        (b'Current thread 0x7f (most recent call first):\n  File "a.py", line 3 in f\n', Growth.OTHERS),
        (b"slurmstepd: error: Detected 1 oom-kill event(s)\nsrun: warning: x\n", Growth.OTHERS),
        (b"Loading weights\n", Growth.LIFE),
        (b"perdure exec: hang\nLoading weights\n", Growth.LIFE),
        (b"\r 12%|#2   | 120/1000 [00:03<00:40]", Growth.STEP),
        (b"[rank0]: step 12/100 loss 3.1\n", Growth.STEP),
        (b'{"epoch": 3, "loss": 2}\n', Growth.STEP),
        (b"Loading checkpoint shards: 100%|##| 3/3\n", Growth.LIFE),
        (b"\n\n", Growth.NONE),
    ],
)
def test_what_a_log_that_grows_says(text: bytes, growth: Growth) -> None:
    assert growth_of(text) is growth


def test_of_a_line_that_goes_on_the_beginning_says_whose_it_is() -> None:
    line = b"perdure exec: no sign of life for 20 s"
    assert growth_of(line, known=20) is Growth.OTHERS
    assert growth_of(b"Loading\n" + line, known=8) is Growth.OTHERS


def test_our_line_behind_a_bar_that_ends_no_line_is_no_life() -> None:
    """And a bar is one line for each time that it is written over."""
    bar = b"\r 12%|#2   | 1/10"
    assert growth_of(bar + b"perdure exec: no sign of life for 20 s\n", known=len(bar)) is Growth.OTHERS
    assert growth_of(bar + b" ", known=len(bar)) is Growth.STEP
    assert growth_of(bar + b"\rSaving", known=len(bar)) is Growth.LIFE
    assert growth_of(b"perdure exec: hang\n" + bar, known=0) is Growth.STEP


def test_of_a_file_that_is_found_late_all_counts_that_was_written_meanwhile(tmp_path: Path) -> None:
    old, new = tmp_path / "old.log", tmp_path / "new.log"
    old.write_text("step 1\n")
    os.utime(old, (1.0, 1.0))
    files = OutputFiles(())
    new.write_text("step 1\n")
    os.utime(new, (time.time() + 1, time.time() + 1))
    files.add([str(old)])
    assert files.look() is Growth.NONE
    files.add([str(new)])
    assert files.look() is Growth.STEP


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_log_can_be_looked_at(text: bytes, known: int) -> None:
    assert growth_of(text, known) in Growth
