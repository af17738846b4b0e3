"""A log read once: bounded, its lines numbered, and the beginning of a storm never lost."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.triage.evidence.gather import Gatherer, gathered
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.logtext import Limits, LogText

CALM = b"".join(b"2025-01-01 00:00:01 INFO train: step %d loss 0.31\n" % i for i in range(2000))
ROOT = b"ValueError: shapes (3,4) and (5,6) not aligned\n"
STORM = [b"RuntimeError: Connection closed by peer [10.0.0.%d]:%d\n" % (i % 250, i) for i in range(20_000)]
SMALL = Limits(64 * 1024, 128 * 1024)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@given(st.binary(max_size=400), st.integers(1, 50), st.integers(1, 50), st.integers(1, 40))
def test_head_and_tail_are_kept_and_their_lines_count_from_the_top(
    data: bytes, head_bytes: int, tail_bytes: int, piece_bytes: int
) -> None:
    text = gathered(cut(data, piece_bytes), own_rules().matcher(), Limits(head_bytes, tail_bytes))
    held = sum(len(window.data) for window in text.windows)
    assert held + text.skipped_bytes == len(data)
    if not data:
        assert text.windows == ()
        return
    assert data.startswith(text.windows[0].data)
    assert data.endswith(text.windows[-1].data)
    assert len(text.windows[-1].data) >= min(tail_bytes, len(data) - len(text.windows[0].data))
    assert held <= head_bytes + tail_bytes + piece_bytes
    last = text.windows[-1]
    assert last.first_line == 1 + data[: len(data) - len(last.data)].count(b"\n")


def test_what_fits_is_read_as_if_it_had_been_in_memory() -> None:
    assert gathered(cut(CALM, 1000), own_rules().matcher()) == LogText.of(CALM)


def test_the_cause_stands_before_a_storm_that_fills_the_tail() -> None:
    before = CALM * 5
    text = gathered(cut(before + ROOT + b"".join(STORM), 50_000), own_rules().matcher(), SMALL)
    assert text.skipped_bytes > 0
    verdict = judge(text)
    assert verdict.category == "shape"
    assert [e.line for e in verdict.evidence if e.rule == "shape"] == [before.count(b"\n") + 1]


def test_a_storm_that_began_in_the_head_is_seen_from_its_beginning() -> None:
    text = gathered(cut(ROOT + b"".join(STORM), 50_000), own_rules().matcher(), SMALL)
    assert judge(text).category == "shape"


def test_what_was_survived_in_the_middle_is_not_kept() -> None:
    log = CALM * 3 + ROOT + CALM * 5 + STORM[0]
    text = gathered(cut(log, 50_000), own_rules().matcher(), SMALL)
    assert len(text.windows) == 2
    assert judge(text).category == "net"


def test_a_sign_that_two_pieces_share_is_found() -> None:
    log = CALM + ROOT + b"".join(STORM[:10_000])
    for size in (len(CALM) + 10, len(CALM) + len(ROOT) - 1):
        text = gathered(cut(log, size), own_rules().matcher(), Limits(1000, 1000))
        assert judge(text).category == "shape"


def test_memory_is_bounded_by_the_limits_and_one_piece() -> None:
    gatherer = Gatherer(own_rules().matcher(), Limits(10_000, 10_000))
    for _ in range(20):
        gatherer.feed(b"".join(STORM[:2000]))
    assert sum(len(window.data) for window in gatherer.text().windows) < 3 * len(b"".join(STORM[:2000])) + (1 << 20)
