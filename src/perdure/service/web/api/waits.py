"""Waits: when waiting jobs start, what holds them, and what became of earlier answers."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from perdure.errors import NotFound
from perdure.service.web.api.params import JobId
from perdure.service.web.state import Here, Viewer
from perdure.waits.calibration import Calibration
from perdure.waits.forecast import LEVELS
from perdure.waits.hindcast import Fit

router = APIRouter(tags=["waits"])


class HoldItem(BaseModel):
    """What holds a job, in words, and how many are before it."""

    kind: str
    says: str
    jobs_ahead: int
    gpus_ahead: int
    can_start: bool


class QuantilesItem(BaseModel):
    """A wait in seconds that is not exceeded once, five and nine times of ten."""

    p10: float
    p50: float
    p90: float


class StartItem(BaseModel):
    """When a job starts, as of `asked_s`: four times of five between `low_s` and `high_s`. Seconds since the epoch."""

    asked_s: float
    median_s: float
    low_s: float
    high_s: float
    interval: float
    wait_s: QuantilesItem
    remarks: list[str]


class WaitItem(BaseModel):
    """A waiting job. `start` is null where nothing starts it as it is, or where that is not simulated."""

    job: str
    user: str
    partitions: list[str]
    gpus: int
    nodes: int
    walltime_s: float | None
    submitted_s: float
    held_by: HoldItem
    start: StartItem | None
    planned_by_manager_s: float | None = Field(description="The resource manager's own plan")


class PartitionItem(BaseModel):
    """A partition at a glance; `next_wait_s` is that of a job with one GPU, submitted now."""

    partition: str
    is_up: bool
    nodes: int
    nodes_out: int
    gpus: int
    gpus_free: int
    waiting: int
    waiting_gpus: int
    started_last_day: int
    wait_last_day_s: float | None
    next_wait_s: QuantilesItem | None = None


class LevelItem(BaseModel):
    """A share of starts: as it was promised, and as it was kept."""

    promised: float
    kept: float


class CalibrationItem(BaseModel):
    """Of answers whose job has started: how often they held. `overdue` wait still, though their interval is over."""

    answers: int
    within: float | None
    overdue: int
    levels: list[LevelItem]

    @classmethod
    def of(cls, found: Calibration) -> CalibrationItem:
        levels = zip(LEVELS, found.kept, strict=True) if found.kept else ()
        return cls(
            answers=found.answers,
            within=found.within if found.answers else None,
            overdue=found.overdue,
            levels=[LevelItem(promised=promised, kept=kept) for promised, kept in levels],
        )


class FitItem(BaseModel):
    """The last fit, by which forecasts are corrected: answers about the past, held against what came.

    Before the correction `within` of the starts lay in the intervals, and half of the medians were off by a larger
    factor than `median_off`. Jobs are seen to use `gpus_share` of the GPUs in service.
    """

    made_s: float
    answers: int
    within: float
    median_off: float
    gpus_share: float

    @classmethod
    def of(cls, made: Fit) -> FitItem:
        off = 10**made.median_error
        return cls(
            made_s=made.made_s, answers=made.answers, within=made.covered, median_off=off, gpus_share=made.gpus_share
        )


class WaitsItem(BaseModel):
    """Waiting jobs as of `asked_s`, which is null while nothing has been forecast. `left_out` jobs came last."""

    asked_s: float | None
    waiting: int
    left_out: int
    jobs: list[WaitItem]
    partitions: list[PartitionItem]
    calibration: CalibrationItem
    fit: FitItem | None = Field(description="Null while nothing is corrected")
    remarks: list[str]


@router.get("/waits")
def list_waits(web: Here, identity: Viewer) -> WaitsItem:  # noqa: ARG001
    """When waiting jobs start, those that came first, first; the state of partitions; how earlier answers have held."""
    told = web.waits.latest if web.waits else None
    made = web.waits.refit.latest if web.waits else None
    return WaitsItem(
        asked_s=told.asked_s if told else None,
        waiting=told.waiting if told else 0,
        left_out=told.left_out if told else 0,
        jobs=[WaitItem.model_validate(each.to_json()) for each in told.answers] if told else [],
        partitions=[PartitionItem.model_validate(row.to_json()) for row in told.board] if told else [],
        calibration=CalibrationItem.of(web.waits.calibration if web.waits else Calibration()),
        fit=FitItem.of(made) if made else None,
        remarks=list(told.remarks) if told else [],
    )


@router.get("/waits/{job_id}")
def get_wait(web: Here, identity: Viewer, job_id: JobId) -> WaitItem:  # noqa: ARG001
    """When one waiting job starts."""
    told = web.waits.latest if web.waits else None
    found = told.of(job_id) if told else None
    if found is None:
        raise NotFound(f"job {job_id[:80]}", "no start is forecast for it", "See GET /api/v1/waits for those that are")
    return WaitItem.model_validate(found.to_json())
