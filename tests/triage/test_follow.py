"""A running job's log: trouble is told while the job runs, once, and silence is judged by what is usual."""

import json
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.triage.evidence.rules import own_rules
from perdure.triage.follow import MAX_PARTIAL_BYTES, FollowAlarm, Follower, FollowTrouble, Patience

SIGNS = own_rules().matcher()
PATIENCE = Patience(silent_times=4.0, silent_at_least_s=20.0, silent_unknown_s=500.0, nan_lines=3, storm_lines=10.0)


def follower() -> Follower:
    return Follower(SIGNS, PATIENCE)


def steady(follower: Follower, seconds: int, every_s: int = 1, start_s: int = 0) -> list[FollowTrouble]:
    """Feed a step each `every_s`; ticks come each second."""
    told = []
    for now in range(start_s, start_s + seconds):
        if now % every_s == 0:
            told += follower.feed(b"step %d loss 0.31\n" % now, float(now))
        told += follower.tick(float(now))
    return [alarm.trouble for alarm in told]


def silent(follower: Follower, start_s: int, seconds: int) -> list[float]:
    """When a hang is told, in seconds since the last line."""
    told = [a for now in range(start_s, start_s + seconds) for a in follower.tick(float(now))]
    assert all(alarm.trouble is FollowTrouble.HANG for alarm in told)
    return [alarm.at_s - start_s + 1 for alarm in told]


@pytest.mark.parametrize(("every_s", "after_s"), [(1, 21), (30, 121), (100, 401)])
def test_a_hang_is_told_after_so_many_times_the_usual_silence(every_s: int, after_s: int) -> None:
    job = follower()
    assert steady(job, 40 * every_s + 1, every_s) == []
    assert silent(job, 40 * every_s + 1, 1000) == [after_s]


def test_regular_long_silences_are_no_hang() -> None:
    job = follower()
    told: list[object] = []
    for epoch in range(12):  # 100 quick steps, then a minute for a checkpoint
        told += steady(job, 100, 1, epoch * 160)
        told += job.feed(b"saved\n", epoch * 160 + 100.0)
        if epoch >= 1:  # the first is a surprise
            told += silent(job, epoch * 160 + 101, 59)
    assert told == []


def test_a_silence_of_long_ago_is_forgotten() -> None:
    job = follower()
    job.feed(b"start\n", 0.0)
    job.feed(b"data are there\n", 3000.0)
    steady(job, 2100, 1, 3001)
    assert silent(job, 5101, 1000) == [21]


def test_before_anything_is_known_patience_is_longer() -> None:
    job = follower()
    job.catch_up(b"start\n", 0.0)
    assert [alarm.at_s for now in range(1000) for alarm in job.tick(float(now))] == [501.0]


def test_a_hang_that_ends_can_be_told_again() -> None:
    job = follower()
    steady(job, 50)
    assert silent(job, 50, 30) == [21]
    job.feed(b"step\n", 80.0)
    assert silent(job, 81, 400) == [125]  # 4 times the silence that was seen


def test_bars_that_are_redrawn_are_signs_of_life() -> None:
    job = follower()
    for now in range(400):
        assert job.feed(b"\r %d%%|###  | %d/400 [00:01<00:09]" % (now // 4, now), float(now)) == []


@pytest.mark.parametrize(
    "line",
    ["loss: nan", "step 3 loss=nan lr 0.1", "{'loss': nan, 'lr': 1}", "train/loss NaN", "Loss: tensor(nan, device=0)",
     "loss inf", "loss -inf", "lm loss: nan", "mse_loss = inf"],
)  # fmt: skip
def test_losses_that_stay_nan_are_told_once(line: str) -> None:
    job = follower()
    told = [job.feed(f"{line}\n".encode(), float(now)) for now in range(6)]
    assert [[alarm.trouble for alarm in alarms] for alarms in told] == [[], [], [FollowTrouble.NAN], [], [], []]
    assert told[2][0].text == line
    assert told[2][0].line == 3


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_losses_that_stay_nan_in_one_bar_are_counted_by_its_pictures(end: str) -> None:
    for times, told in ((2, []), (3, ["3 times"]), (9, ["3 times"])):
        alarms = follower().feed(f"loss nan{end}".encode() * times + b"\n", 0.0)
        assert [(alarm.text, alarm.says.partition(", ")[2][:7]) for alarm in alarms] == [("loss nan", x) for x in told]


@pytest.mark.parametrize(
    "lines",
    [
        ["loss nan", "loss 0.3"] * 5,
        ["loss nan", "loss nan", "loss .3"] * 5,
        ["nan_count 0"] * 9,
        ["loss: 0.3 (nans skipped: 2)"] * 9,
        ["loss_info written"] * 9,
        ["glossary nan"] * 9,
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_loss_that_recovers_or_a_word_alike_is_not_told(lines: list[str], end: str) -> None:
    """Also where a bar is redrawn: each picture counts as a line does."""
    assert follower().feed((end.join(lines) + "\n").encode(), 0.0) == []


def test_a_storm_of_errors_is_told_once_and_again_after_it_was_calm() -> None:
    job = follower()
    line = b"ConnectionError: no answer from the store\n"
    first = [job.feed(line, now / 10) for now in range(60)]
    assert [a.trouble for alarms in first for a in alarms] == [FollowTrouble.STORM]
    assert steady(job, 300, 1, 10) == []
    assert [a.trouble for a in job.feed(line * 12, 400.0)] == [FollowTrouble.STORM]


def test_errors_now_and_then_are_no_storm() -> None:
    job = follower()
    assert [job.feed(b"ConnectionError: x\n", 60.0 * i) for i in range(100)] == [[]] * 100


def test_what_was_written_before_is_not_told_but_counts() -> None:
    job = follower()
    job.catch_up(b"ConnectionError: x\n" * 100 + b"loss nan\n" * 2, 0.0)
    assert [alarm.trouble for alarm in job.feed(b"loss nan\n", 1.0)] == [FollowTrouble.NAN]


LINE = st.sampled_from([b"step 1 loss 0.3\n", b"loss nan\n", b"TypeError: x\n", b"\r 3%", b"a\r\n", b"no end", b"\xff"])


@given(st.lists(LINE, max_size=40), st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_how_it_is_cut_into_pieces_changes_nothing(lines: list[bytes], sizes: list[int]) -> None:
    data, whole, cut = b"".join(lines), follower(), follower()
    told = whole.feed(data, 1.0)
    pieces, at = [], 0
    while at < len(data):
        pieces.append(data[at : at + sizes[len(pieces) % len(sizes)]])
        at += len(pieces[-1])
    parts = [alarm for piece in pieces for alarm in cut.feed(piece, 1.0)]
    assert [(a.trouble, a.line) for a in parts] == [(a.trouble, a.line) for a in told]
    assert cut.offset == whole.offset


AFTER_S = st.sampled_from([0.0, 1.0, 15.0, 70.0, 600.0])  # silence between: none, usual, or long enough to be told
QUIET = b""  # nothing was written


def told_at(job: Follower, now: float, line: bytes, unread: bytes = b"") -> list[FollowAlarm]:
    return [*job.tick(now), *(job.feed(unread + line, now) if line else [])]


STEP = (b"step 1 loss 0.3\n", 1.0)


@example([STEP, (QUIET, 600.0), (QUIET, 1.0)], 2)  # a hang that was told
@example([*[STEP] * 9, (QUIET, 15.0), (QUIET, 15.0)], 10)  # a silence that is usual no more
@example([(b"loss nan\n", 1.0)] * 5, 2)
@example([(b"loss nan\n", 1.0)] * 5, 4)
@example([(b"TypeError: x\n", 1.0)] * 14, 6)
@example([(b"TypeError: x\n", 1.0)] * 14, 13)
@given(st.lists(st.tuples(st.one_of(LINE, st.just(QUIET)), AFTER_S), max_size=40), st.integers(0, 40))
def test_one_that_was_saved_goes_on_where_it_stood(steps: list[tuple[bytes, float]], at: int) -> None:
    job = follower()
    when = list(accumulate(after_s for _, after_s in steps))
    rest = [(now, line) for now, (line, _) in zip(when, steps, strict=True)]
    for now, line in rest[:at]:
        told_at(job, now, line)
    again = Follower.of_state(json.loads(json.dumps(job.state())), SIGNS, PATIENCE)
    unread = b"".join(line for line, _ in steps[:at])[job.offset :]
    for now, line in rest[at:]:
        assert told_at(again, now, line, unread) == told_at(job, now, line)
        unread = b"" if line else unread
    if not unread:
        assert again.state() == job.state()


def test_a_line_without_an_end_is_held_in_bounded_memory() -> None:
    job = follower()
    for i in range(100):
        job.feed(b"x" * 50_000, float(i))
    assert len(job._partial) <= MAX_PARTIAL_BYTES
    assert job.offset + len(job._partial) == 5_000_000


def test_a_log_that_begins_anew_is_counted_anew() -> None:
    job = follower()
    job.feed(b"a\nb\nc", 0.0)
    job.restart()
    job.feed(b"loss nan\n" * 3, 1.0)
    assert (job.offset, job.state()["line"]) == (27, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"offset": -1},
        {"offset": "x"},
        {"gaps": None},
        {"storm": float("nan")},
        {"line": None},
        {"offset": float("inf")},
        {"nans": float("inf")},
        {"storm": float("inf")},
    ],
)
def test_what_is_no_state_is_told_in_one_line(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"^here: "):
        Follower.of_state({**follower().state(), **change}, SIGNS, source="here")
