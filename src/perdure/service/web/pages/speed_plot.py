"""How a job scales, as a picture: examples a second against GPUs, both on axes of doublings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

WIDTH, HEIGHT = 640.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 14.0, 14.0, 40.0
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """Examples a second on so many GPUs, between the ends of the interval."""

    gpus: int
    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class SpeedLine:
    """A line as it is drawn: its points and its band, as SVG takes them, and its marks with words."""

    name: str
    line: str
    band: str
    marks: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True, slots=True)
class SpeedPlot:
    """The picture's parts, in units of its viewBox."""

    ideal: str
    lines: tuple[SpeedLine, ...]
    across: tuple[tuple[float, str], ...]  # ticks of GPUs
    up: tuple[tuple[float, str], ...]  # ticks of examples a second


def speed_plot(alone: float, lines: Mapping[str, Sequence[SpeedPoint]]) -> SpeedPlot:
    """Lay the lines out; `alone` is what one GPU does by itself, of which the ideal is a multiple."""
    points = [point for each in lines.values() for point in each]
    gpus = sorted({point.gpus for point in points})
    most = max(max(point.high for point in points), alone * gpus[-1])
    least = min(min(point.low for point in points), alone * gpus[0])
    span = max(float(np.log2(gpus[-1] / gpus[0])), 1.0), max(float(np.log2(most / least)), 1.0)

    def x(count: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * float(np.log2(count / gpus[0])) / span[0], 1)

    def y(rate: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * float(np.log2(rate / least)) / span[1], 1)

    def joined(places: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x(count)},{y(rate)}" for count, rate in places)

    drawn = tuple(
        SpeedLine(
            name,
            joined([(each.gpus, each.middle) for each in of]),
            joined([*((each.gpus, each.low) for each in of), *((each.gpus, each.high) for each in reversed(of))]),
            tuple(
                (x(each.gpus), y(each.middle), f"{name}, {each.gpus} GPUs: {each.middle:,.0f} examples/s")
                for each in of
            ),
        )
        for name, of in lines.items()
    )
    ends = [(gpus[0], alone * gpus[0]), (gpus[-1], alone * gpus[-1])]
    return SpeedPlot(
        joined(ends), drawn, tuple((x(count), f"{count:,}") for count in _some(gpus)),
        tuple((y(rate), f"{rate:,.0f}") for rate in _rates(least, most)),
    )  # fmt: skip


def _some(values: Sequence[int]) -> list[int]:
    """At most a handful of them, the last one always."""
    step = -(-len(values) // _MOST_TICKS)
    return list(values[::-1][::step][::-1])


def _rates(least: float, most: float) -> list[float]:
    """Round numbers between."""
    every = [digit * 10.0**power for power in range(-2, 10) for digit in (1, 2, 5)]
    between = [rate for rate in every if least <= rate <= most]
    step = -(-len(between) // _MOST_TICKS) or 1
    return between[::step]
