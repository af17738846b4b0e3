"""The last good run: what it said as well is held against nobody."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.triage.evidence.goodrun import GoodRun
from perdure.triage.judge import judge
from perdure.triage.text.distinct import distinct_lines
from perdure.triage.text.logtext import LogText

TIMES = [f"2025-01-01 00:{i // 60 % 60:02}:{i % 60:02}" for i in range(3000)]
STEPS = "".join(f"{time} INFO step {i} loss {3 / (i + 1):.4f}\n" for i, time in enumerate(TIMES))
NOISE = "ValueError: cache /scratch/u1/{} is not writable in mode {}\n"
GOOD = GoodRun.of(LogText.of((NOISE.format("a", 3) + STEPS + "Loading train is finished\n").encode()))


def test_of_lines_that_differ_in_numbers_one_is_kept() -> None:
    kept = [line.text for line in distinct_lines(LogText.of((STEPS + "done\n" + STEPS).encode()))]
    assert len(kept) < 10
    assert b"done" in kept


@given(st.lists(st.sampled_from(["a", "b 1", "b 2", "c\rd", "", "x y"]), max_size=30))
def test_distinct_lines_keep_their_numbers_and_miss_none(lines: list[str]) -> None:
    text = LogText.of("\n".join(lines).encode())
    found = list(distinct_lines(text))
    assert [line.number for line in found] == sorted(line.number for line in found)
    assert {line.text.decode().replace("1", "2") for line in found} == {
        line.split("\r")[-1].replace("1", "2") for line in lines if line
    }


def test_another_run_of_the_same_job_is_known() -> None:
    assert GOOD.knows(b"INFO step 77777 loss 0.1")
    assert GOOD.knows(b"Loading train is finished")
    assert not GOOD.knows(b"KeyError: 'labels'")


def test_new_lines_are_found_among_thousands_and_come_one_a_template() -> None:
    log = STEPS + "".join(f"link {i} of n{i} is slow\n" for i in range(50)) + STEPS + "KeyError: 'labels'\n"
    new = GOOD.new_lines(LogText.of(log.encode()), 10)
    assert [line.text for line in new] == [b"link 0 of n0 is slow", b"KeyError: 'labels'"]
    assert [line.number for line in new] == [3001, log.count("\n")]


def test_what_the_good_run_said_as_well_is_not_the_cause() -> None:
    log = (STEPS + NOISE.format("b", 7) + "OSError: [Errno 98] Address already in use\n").encode()
    assert {e.rule for e in judge(log).evidence} == {"python-value", "port-busy"}
    assert {e.rule for e in judge(log, good=GOOD).evidence} == {"port-busy"}


def test_where_all_is_familiar_nothing_is_left_out() -> None:
    log = (STEPS + NOISE.format("b", 7)).encode()
    assert judge(log, good=GOOD).evidence == judge(log).evidence != ()


def test_the_resource_managers_word_is_never_familiar() -> None:
    word = "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
    good = GoodRun.of(LogText.of(word.encode()))
    assert judge((word + "KeyError: 'x'\n").encode(), good=good).category == "time_limit"


def test_a_good_run_is_small_and_survives_being_saved() -> None:
    saved = GOOD.save()
    assert len(saved) < 2000
    again = GoodRun.load(saved)
    assert again.save() == saved
    assert again.knows(b"INFO step 5 loss 0.3")


@pytest.mark.parametrize("data", [b"", b"x", zlib.compress(b"{}"), zlib.compress(b"[["), GOOD.save()[:-20]])
def test_what_is_no_good_run_is_told_in_one_line(data: bytes) -> None:
    with pytest.raises(InputError, match=r"^here: ") as caught:
        GoodRun.load(data, "here")
    assert "\n" not in str(caught.value)
