"""A chain's links on one axis of time, as parts of a thousand: waits, runs, gaps, overlaps, the forecast. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.service.store.queries.chains import SeenChain, SeenLink
from perdure.waits.forecast import WaitForecast

WIDTH = 1000.0
THINNEST = 3.0
MOST_LINKS = 40  # that are drawn, the latest
BANDS = ((0.05, 0.95), (0.1, 0.9), (0.3, 0.7))  # of a forecast, from the faintest to the strongest
MOST_AHEAD = 1.0  # of the axis that lies behind now, a forecast may take ahead of it

Part = tuple[float, float]  # where it begins, and how wide it is


@dataclass(frozen=True, slots=True)
class LinkLane:
    """One link's row. `fan` is of one that waits: bands of its start, and the median."""

    link: SeenLink
    wait: Part | None = None
    run: Part | None = None
    gap: Part | None = None
    overlap: Part | None = None
    fan: tuple[Part, ...] = ()
    median: float | None = None


@dataclass(frozen=True, slots=True)
class ChainTimeline:
    start_s: float
    end_s: float
    now: float | None  # where now is; None where that is the end
    lanes: tuple[LinkLane, ...]
    is_cut: bool = False  # the forecast goes on beyond it


@dataclass(frozen=True, slots=True)
class _Axis:
    start_s: float
    end_s: float

    def place(self, instant_s: float) -> float:
        share = (instant_s - self.start_s) / (self.end_s - self.start_s)
        return round(WIDTH * min(1.0, max(0.0, share)), 2)

    def part(self, from_s: float, to_s: float) -> Part:
        x = min(self.place(from_s), WIDTH - THINNEST)
        return x, max(THINNEST, round(self.place(to_s) - x, 2))


def chain_timeline(chain: SeenChain, now: float, forecast: WaitForecast | None = None) -> ChainTimeline:
    """Lay out the latest links; `forecast` is that of the newest, where it waits."""
    links = chain.links[-MOST_LINKS:]
    start_s = min(link.span.submit_s for link in links)
    is_live = any(not link.job.state.is_over for link in links)
    known = [max(link.span.submit_s, link.span.start_s, link.span.end_s) for link in links]
    seen_s = max(now, *known) if is_live else max(known)
    end_s = max(seen_s, start_s + 1.0)
    latest_s = forecast.asked_s + forecast.at(BANDS[0][1]) if forecast is not None else 0.0
    end_s = max(end_s, min(latest_s, end_s + MOST_AHEAD * (end_s - start_s)))
    axis = _Axis(start_s, end_s)
    befores = _befores(chain.links)[-len(links) :]
    lanes = [_lane(axis, link, before, now) for link, before in zip(links, befores, strict=True)]
    if forecast is not None:
        lanes[-1] = _with_fan(lanes[-1], axis, forecast)
    place = axis.place(now) if is_live and now < end_s else None
    return ChainTimeline(start_s, end_s, place, tuple(lanes), latest_s > end_s)


def _befores(links: Sequence[SeenLink]) -> list[SeenLink | None]:
    """For each link the last one before it that ran and ended."""
    found: list[SeenLink | None] = []
    last: SeenLink | None = None
    for link in links:
        found.append(last)
        if link.span.start_s and link.span.end_s:
            last = link
    return found


def _lane(axis: _Axis, link: SeenLink, before: SeenLink | None, now: float) -> LinkLane:
    span, times = link.span, link.times
    end_s = span.end_s or now
    waits_until_s = span.start_s or (now if link.job.state.is_waiting else span.submit_s)
    wait = axis.part(span.submit_s, waits_until_s) if waits_until_s > span.submit_s else None
    run = axis.part(span.start_s, max(end_s, span.start_s)) if span.start_s else None
    if before is None or not span.start_s:
        return LinkLane(link, wait, run)
    gap = axis.part(before.span.end_s, span.start_s) if times.gap_s else None
    overlap = axis.part(span.start_s, before.span.end_s) if times.overlap_s else None
    return LinkLane(link, wait, run, gap, overlap)


def _with_fan(lane: LinkLane, axis: _Axis, told: WaitForecast) -> LinkLane:
    fan = tuple(axis.part(told.asked_s + told.at(low), told.asked_s + told.at(high)) for low, high in BANDS)
    return LinkLane(lane.link, lane.wait, fan=fan, median=axis.place(told.asked_s + told.median_s))
