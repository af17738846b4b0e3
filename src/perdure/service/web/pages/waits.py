"""Waits: when each waiting job starts, how partitions stand, and how often what was said has held."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, arranged, at, csv_file
from perdure.service.web.pages.render import page
from perdure.service.web.pages.start_words import starts_at, starts_between, starts_in_words
from perdure.service.web.state import Here, Viewer
from perdure.waits.answer import WaitAnswer
from perdure.waits.calibration import Calibration
from perdure.waits.forecast import LEVELS, WaitForecast
from perdure.waits.holds import not_told
from perdure.waits.rollout import HORIZON_S

router = APIRouter()

FAN_PX = 190
FROM_S = 60.0  # shorter waits are at the left end
TICKS = ((600.0, "10 min"), (3600.0, "1 h"), (6 * 3600.0, "6 h"), (86_400.0, "1 d"))
BANDS = ((0.05, 0.95), (0.1, 0.9), (0.3, 0.7))  # from the faintest to the strongest
PLOT_PX = 200


@dataclass(frozen=True, slots=True)
class Fan:
    """A forecast as it is drawn: bands from left to right, and the median."""

    bands: tuple[tuple[float, float], ...]  # where each begins, and how wide it is
    median: float
    title: str


@dataclass(frozen=True, slots=True)
class WaitRow:
    """A waiting job as the table shows it."""

    answer: WaitAnswer
    starts: str = ""
    between: str = ""
    in_s: float = float("inf")
    fan: Fan | None = None


def _start(row: WaitRow, wait_s: Callable[[WaitForecast], float]) -> str:
    told = row.answer.forecast
    return "" if told is None else at(told.asked_s + wait_s(told))


COLUMNS: Columns[WaitRow] = (
    ("job_id", lambda row: row.answer.job.job_id),
    ("user", lambda row: row.answer.job.user),
    ("partition", lambda row: row.answer.job.partitions),
    ("gpus", lambda row: row.answer.job.gpus),
    ("submitted", lambda row: at(row.answer.job.submit_s)),
    ("held_by", lambda row: row.answer.hold.kind.value),
    ("held_by_in_words", lambda row: row.answer.hold.says),
    ("starts", lambda row: _start(row, lambda told: told.median_s)),
    ("starts_p10", lambda row: _start(row, lambda told: told.interval_s[0])),
    ("starts_p90", lambda row: _start(row, lambda told: told.interval_s[1])),
)
SORTED_BY: Mapping[str, Callable[[WaitRow], Any]] = {
    "job": lambda row: row.answer.job.job_id,
    "user": lambda row: row.answer.job.user,
    "partition": lambda row: row.answer.job.partitions,
    "gpus": lambda row: row.answer.job.gpus,
    "waits": lambda row: row.answer.job.submit_s,
    "held": lambda row: row.answer.hold.kind.value,
    "starts": lambda row: row.in_s,
}


@router.get("/waits")
def waits_page(request: Request, web: Here, identity: Viewer, asked: Wanted) -> Response:  # noqa: ARG001
    """Waiting jobs with their forecasts, partitions, and what became of earlier answers; waiting jobs as CSV."""
    told = web.waits.latest if web.waits else None
    rows = arranged([row_of(each, told.asked_s) for each in told.answers] if told else [], SORTED_BY, asked)
    if asked.is_csv:
        return csv_file("waits", COLUMNS, rows)
    calibration = web.waits.calibration if web.waits else Calibration()
    return page(
        request,
        web,
        "waits",
        "Waits",
        is_told=web.waits is not None,
        trouble=web.waits.trouble if web.waits else "",
        told=told,
        rows=rows,
        remarks=remarks_of(rows, told.remarks if told else ()),
        ticks=[(place(seconds), words) for seconds, words in TICKS],
        fan_width=FAN_PX,
        calibration=calibration,
        fit=web.waits.refit.latest if web.waits else None,
        plot=plot_of(calibration) if calibration.is_known else (),
        plot_size=PLOT_PX,
        listing=ListingAddress("/waits", asked, {}, tuple(SORTED_BY)),
    )


def row_of(answer: WaitAnswer, now_s: float) -> WaitRow:
    """A row of the table, seen at an instant of the manager's clock."""
    told = answer.forecast
    if told is None:
        return WaitRow(answer, not_told(answer.hold))
    bands = tuple((place(told.at(low)), place(told.at(high)) - place(told.at(low))) for low, high in BANDS)
    fan = Fan(bands, place(told.median_s), f"Starts {starts_in_words(told, now_s)}")
    return WaitRow(answer, starts_at(told, now_s), starts_between(told, now_s), told.median_s, fan)


def place(wait_s: float) -> float:
    """Where a wait is drawn: from a minute on the left to what is simulated on the right, by its logarithm."""
    share = np.log(max(wait_s, FROM_S) / FROM_S) / np.log(HORIZON_S / FROM_S)
    return round(float(min(share, 1.0)) * FAN_PX, 1)


def remarks_of(rows: list[WaitRow], remarks: tuple[str, ...]) -> list[str]:
    """What readers of the forecasts should know: what holds for all, each sentence once."""
    told = [row.answer.forecast.remarks for row in rows if row.answer.forecast is not None]
    common = [each for each in (told[0] if told else ()) if all(each in others for others in told)]
    return list(dict.fromkeys((*remarks, *common)))


def plot_of(calibration: Calibration) -> tuple[tuple[float, float, str], ...]:
    """Points of the plot: promised to the right, kept upwards, and what each says."""
    return tuple(
        (round(level * PLOT_PX, 1), round((1 - kept) * PLOT_PX, 1), f"promised {level:.0%}, kept {kept:.0%}")
        for level, kept in zip(LEVELS, calibration.kept, strict=True)
    )
