"""Many senders to one under DCQCN: known queues, the fixed point of small marks, pauses, and links of other rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perdure.throughput.incast import DcqcnSettings, _integrate, incast, small_mark_queue

RATE = 5e9  # 40 Gbit/s


@pytest.mark.parametrize(("senders", "queue_kb"), [(2, 20), (4, 42), (8, 94)])
def test_few_senders_settle_to_the_known_queue_and_fill_the_link(senders: int, queue_kb: float) -> None:
    found = incast(senders, RATE, counted_from_s=0.1)
    assert found.queue_bytes / 1e3 == pytest.approx(queue_kb, abs=0.6)
    assert found.most_queue_bytes == pytest.approx(found.queue_bytes, rel=0.01)
    assert found.utilisation > 0.998
    assert found.pause_share == 0.0


def test_sixteen_senders_swing_about_where_every_packet_is_marked() -> None:
    found = incast(16, RATE, counted_from_s=0.1)
    assert found.queue_bytes / 1e3 == pytest.approx(186, abs=1)
    assert found.most_queue_bytes > 200e3
    assert found.utilisation > 0.998


@pytest.mark.parametrize(("senders", "too_high"), [(2, 0.14), (4, 0.20), (8, 0.27)])
def test_the_fixed_point_of_rare_marks_is_above_the_queue(senders: int, too_high: float) -> None:
    settled = incast(senders, RATE, counted_from_s=0.1).queue_bytes
    assert small_mark_queue(senders, RATE) / settled - 1 == pytest.approx(too_high, abs=0.01)


def test_the_fixed_point_is_met_where_marks_are_rarer_still() -> None:
    rare = replace(DcqcnSettings(), rise_bytes_per_s=5e4)
    settled = incast(2, RATE, rare, duration_s=1.0, counted_from_s=0.8).queue_bytes
    excess = settled - rare.k_min
    assert excess == pytest.approx(small_mark_queue(2, RATE, rare) - rare.k_min, rel=0.06)


def test_a_burst_of_many_pauses_them_and_a_queue_is_never_negative() -> None:
    few, many = (incast(senders, RATE, duration_s=0.01) for senders in (2, 64))
    assert few.pause_share < many.pause_share < 1
    assert many.most_queue_bytes >= DcqcnSettings().pause_at
    assert (many.queue >= 0).all()


def test_switches_of_a_faster_link_hold_more() -> None:
    slow, fast = (incast(4, rate, counted_from_s=0.1).queue_bytes for rate in (RATE, 2.5 * RATE))
    assert slow < fast < 2.5 * slow


def test_plain_python_integrates_as_the_compiled_code_does() -> None:
    queue, sent, paused = np.zeros(3000), np.zeros(3000), np.zeros(3000, np.bool_)
    s = DcqcnSettings()
    _integrate(4, 5e6, s.cut_s, s.forget_s, s.fast_rounds, 1e4, s.timer_s, 5e3, s.gain, 5.0, 200.0, s.p_max, 4, 400.0,
               queue, sent, paused)  # fmt: skip
    assert queue * 1000 == pytest.approx(incast(4, RATE, duration_s=0.003).queue, rel=1e-9, abs=1e-6)
