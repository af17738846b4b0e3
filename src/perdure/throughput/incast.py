"""Many senders to one receiver under DCQCN: what their rates, the switch's queue and its pauses settle to.

A fluid model, integrated by Euler's steps of a microsecond. The switch marks packets with probability 0 below `k_min`,
up to `p_max` at `k_max`, and 1 above it; a sender that hears of a mark cuts its rate, and raises it by a byte counter
and a timer. With p and R as they were tau_star before:

    dq/dt     = sum R - C
    dalpha/dt = g / tau' ((1 - (1 - p)^(tau' R)) - alpha)
    dT/dt     = -(T - R) / tau (1 - (1 - p)^(tau R)) + R_AI R p ((1 - p)^(F B) / ((1 - p)^-B - 1)
                                                               + (1 - p)^(F S R) / ((1 - p)^-(S R) - 1))
    dR/dt     = -R alpha / (2 tau) (1 - (1 - p)^(tau R)) + (T - R) / 2 R p (1 / ((1 - p)^-B - 1)
                                                                          + 1 / ((1 - p)^-(S R) - 1))

Rates are in packets a second there, T is the target rate, and S the timer's period. All senders are alike, so that one
stands for all. Where the queue reaches `pause_at`, the switch pauses them all until it falls below it (PFC).

Source: Y. Zhu et al., "Congestion control for large-scale RDMA deployments" (DCQCN), SIGCOMM 2015; Y. Zhu et al.,
"ECN or delay", CoNEXT 2016, for the fluid model. The fixed point at small p is derived in `small_mark_queue`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perdure.throughput.speed import Floats

STEP_S = 1e-6
_PACKET = 1000.0  # bytes
_LARGEST = 700.0  # that an exponential takes
_RATE = 5e9  # bytes a second: of the default settings


@dataclass(frozen=True, slots=True)
class DcqcnSettings:
    """Settings of senders and switch; bytes, seconds, bytes a second. The defaults are for 40 Gbit/s."""

    cut_s: float = 50e-6  # tau: senders cut at most so often
    forget_s: float = 55e-6  # tau'
    fast_rounds: float = 5.0  # F
    counter_bytes: float = 10e6  # B
    timer_s: float = 55e-6
    rise_bytes_per_s: float = 40e6 / 8  # R_AI
    gain: float = 1 / 256  # g
    k_min: float = 5e3
    k_max: float = 200e3
    p_max: float = 0.01
    delay_s: float = 4e-6  # tau_star
    pause_at: float = 400e3

    def at_rate(self, bytes_per_s: float) -> DcqcnSettings:
        """The same for a link of another rate: switches are set in proportion to it."""
        factor = bytes_per_s / _RATE
        names = ("k_min", "k_max", "pause_at", "rise_bytes_per_s")
        return replace(self, **{name: getattr(self, name) * factor for name in names})


@dataclass(frozen=True, slots=True)
class IncastResult:
    """What becomes of an incast: means and extremes from the instant on that was asked for."""

    queue_bytes: float
    most_queue_bytes: float
    utilisation: float  # of the receiver's link
    pause_share: float  # of the time in which senders are paused
    queue: Floats  # (n_steps,) bytes, every microsecond


def incast(
    senders: int,
    bytes_per_s: float,
    settings: DcqcnSettings | None = None,
    duration_s: float = 0.2,
    counted_from_s: float = 0.0,
) -> IncastResult:
    """Let so many senders send to one receiver over a link of this rate, each from line rate on.

    Counted from the start it is a burst of a step; from later on, what the network settles to.
    """
    steps = round(duration_s / STEP_S)
    s = settings or DcqcnSettings().at_rate(bytes_per_s)
    queue, sent, paused = np.zeros(steps), np.zeros(steps), np.zeros(steps, np.bool_)
    _compiled()(
        senders, bytes_per_s / _PACKET, s.cut_s, s.forget_s, s.fast_rounds, s.counter_bytes / _PACKET, s.timer_s,
        s.rise_bytes_per_s / _PACKET, s.gain, s.k_min / _PACKET, s.k_max / _PACKET, s.p_max, round(s.delay_s / STEP_S),
        s.pause_at / _PACKET, queue, sent, paused,
    )  # fmt: skip
    first = round(counted_from_s / STEP_S)
    queue *= _PACKET
    return IncastResult(
        float(queue[first:].mean()), float(queue[first:].max()), float(sent[first:].mean()),
        float(paused[first:].mean()), queue,
    )  # fmt: skip


def small_mark_queue(senders: int, bytes_per_s: float, settings: DcqcnSettings | None = None) -> float:
    """The queue at the fixed point, bytes, as long as marks are rare: p^3 = R_AI N^2 (1/B + N/(S C))^2 / (tau' C^2).

    It follows from the equations above with dR = dT = dalpha = 0 to the first order of p, where alpha = p tau' R and
    T - R = R alpha / (tau (1/B + 1/(S R))). The true queue is below it, the more so the more senders there are.
    """
    rate, s = bytes_per_s / _PACKET, settings or DcqcnSettings().at_rate(bytes_per_s)
    rises = 1 / (s.counter_bytes / _PACKET) + senders / (s.timer_s * rate)
    p = (s.rise_bytes_per_s / _PACKET * (senders * rises) ** 2 / (s.forget_s * rate**2)) ** (1 / 3)
    return float(s.k_min + p / s.p_max * (s.k_max - s.k_min))


_Integrate = Callable[..., None]


@cache
def _compiled() -> _Integrate:
    """The integration, compiled where numba is installed (extra `sim`), else as plain Python."""
    if find_spec("numba") is None:
        return _integrate
    import numba

    try:
        return cast("_Integrate", numba.njit(cache=True)(_integrate))
    except RuntimeError:  # no folder that a cache can be written to
        return cast("_Integrate", numba.njit(_integrate))


def _integrate(
    senders: int, capacity: float, cut: float, forget: float, fast: float, counter: float, timer: float, rise: float,
    gain: float, k_min: float, k_max: float, p_max: float, delay: int, pause_at: float,
    queue: Floats, sent: Floats, paused: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Euler's steps; packets and packets a second. Fills queue, the share of the link that is used, and pauses."""
    rate = target = capacity
    alpha, q = 1.0, 0.0
    rates, marks = np.full(delay + 1, capacity), np.zeros(delay + 1)
    for i in range(len(queue)):
        p = 0.0 if q <= k_min else (p_max * (q - k_min) / (k_max - k_min) if q <= k_max else 1.0)
        at = i % (delay + 1)
        rates[at], marks[at] = rate, p
        before = (i + 1) % (delay + 1)
        r, p = rates[before], min(marks[before], 1 - 1e-9)
        if i < delay:
            r, p = capacity, 0.0
        stopped = q >= pause_at
        arriving = 0.0 if stopped else senders * rate
        leaving = capacity if q > 0 or arriving >= capacity else arriving
        q = max(0.0, q + STEP_S * (arriving - leaving))
        queue[i], sent[i], paused[i] = q, leaving / capacity, stopped
        log = np.log1p(-p)
        cuts = -np.expm1(log * cut * r)
        if p > 0:
            by_bytes = r * p / np.expm1(min(-log * counter, _LARGEST))
            by_time = r * p / np.expm1(min(-log * timer * r, _LARGEST))
            fast_bytes, fast_time = np.exp(log * fast * counter), np.exp(log * fast * timer * r)
        else:  # the limits as p goes to 0
            by_bytes, by_time = r / counter, 1 / timer
            fast_bytes = fast_time = 1.0
        alpha += STEP_S * gain / forget * (-np.expm1(log * forget * r) - alpha)
        more = -(target - rate) / cut * cuts + rise * (fast_bytes * by_bytes + fast_time * by_time)
        change = -rate * alpha / (2 * cut) * cuts + (target - rate) / 2 * (by_bytes + by_time)
        target = min(max(target + STEP_S * more, 1.0), capacity)
        rate = min(max(rate + STEP_S * change, 1.0), capacity)
