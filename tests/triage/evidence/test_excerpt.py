"""Reduction: what is left of a log tells of its failure, however much stands around it."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.triage.evidence.excerpt import MAX_LINES, SIZE_BYTES, Excerpt, excerpt, last_block
from perdure.triage.evidence.goodrun import GoodRun
from perdure.triage.evidence.rules import own_rules
from perdure.triage.text.logtext import LogText

FAILURE = "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\nKeyError: 'labels'\n"
CALM = "".join(f"2025-01-01 00:00:01 INFO train: step {i} loss {3 / (i + 1):.4f} of {i * 7}\n" for i in range(25_000))
ADVICE = "CUDA kernel errors might be asynchronously reported at some other API call\n"


def reduced(log: str, good: GoodRun | None = None) -> Excerpt:
    text = LogText.of(log.encode())
    return excerpt(text, last_block(own_rules().hits(text)), good)


def test_a_short_log_is_left_whole_but_for_what_says_nothing() -> None:
    log = "\x1b[32mstart\x1b[0m\n" + ADVICE + "\r 10%|#  | 1/10 [00:01<00:09]\n[rank0]: step 1\n" + FAILURE
    assert reduced(log).text.split("\n") == ["start", "step 1", *FAILURE.splitlines()]


def test_a_failure_under_thousands_of_calm_lines_stays() -> None:
    for log in (CALM + FAILURE, CALM + FAILURE + CALM, FAILURE + CALM):
        found = reduced(log)
        assert FAILURE.strip() in found.text
        assert sum(len(line.text) + 1 for line in found.lines) <= SIZE_BYTES
        assert len(found.lines) <= MAX_LINES


def test_lines_keep_their_numbers_and_their_order() -> None:
    found = reduced(CALM + FAILURE + CALM)
    numbers = [line.number for line in found.lines]
    assert numbers == sorted(numbers)
    assert next(line.number for line in found.lines if line.text.startswith(b"KeyError")) == 25_003


def test_ranks_that_say_the_same_are_one_line_with_the_ranks_counted() -> None:
    log = "".join(f"[rank{rank}]: {line}\n" for line in FAILURE.splitlines() for rank in range(40))
    found = reduced(log)
    assert found.text.split("\n") == [line.strip() for line in FAILURE.splitlines()]
    assert all(line.times == 40 and sorted(map(int, line.ranks)) == list(range(40)) for line in found.lines)


def test_what_a_good_run_never_said_stays_and_nothing_else_of_the_middle() -> None:
    good = GoodRun.of(LogText.of(CALM.encode()))
    found = reduced(CALM + "fabric: link 3 flaps\n" + CALM + FAILURE, good)
    assert "fabric: link 3 flaps" in found.text
    assert "fabric: link 3 flaps" not in reduced(CALM + "fabric: link 3 flaps\n" + CALM + FAILURE).text


@given(st.binary(max_size=500), st.integers(0, 3))
def test_no_bytes_make_it_fail_or_grow(data: bytes, copies: int) -> None:
    text = LogText.of(data * 10**copies)
    found = excerpt(text, own_rules().hits(text))
    assert len(found.text.encode()) <= 3 * SIZE_BYTES  # a byte that is not UTF-8 becomes three
    assert len({line.text for line in found.lines}) == len(found.lines)
