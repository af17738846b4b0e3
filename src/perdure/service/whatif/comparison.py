"""A comparison that somebody asked for: what, by whom, its state, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field, computed_field

from perdure.errors import PerdureError
from perdure.model.clean_text import clean
from perdure.scheduling.las import QUEUE_LIMITS
from perdure.scheduling.live_limits import LiveLimits
from perdure.service.access.auth import Identity, Role
from perdure.service.store.codec import Codec
from perdure.service.whatif.question import ComparisonQuestion

HISTORY = "this site's history"
TRACE = Path("trace")  # where the process that simulates finds what was uploaded
RATES = Path("trace.rates.csv")  # and where the reader of Gavel's traces looks for its rates


class Stage(StrEnum):
    """The state of a comparison."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BROKEN_OFF = "broken_off"  # the service ended before it was done

    @property
    def is_over(self) -> bool:
        return self not in (Stage.WAITING, Stage.RUNNING)


class Trouble(BaseModel):
    """Why there is no answer: where, what, and how to fix it."""

    where: str
    what: str
    fix: str = Field(validation_alias=AliasChoices("fix", "mend"))  # `mend` in what earlier releases stored

    @computed_field(json_schema_extra={"deprecated": True})  # type: ignore[prop-decorator]
    @property
    def mend(self) -> str:
        """`fix` under its former name, for one release."""
        return self.fix

    @classmethod
    def of(cls, err: PerdureError) -> Trouble:
        return cls(where=clean(err.where), what=clean(err.what), fix=clean(err.fix))


class Progress(BaseModel):
    """How far the process has come."""

    phase: str  # "reading", "simulating" or "drawing"
    done: int = 0  # runs
    of: int = 0


class Spread(BaseModel):
    """Mean and quantiles of seconds; means over the seeds."""

    mean: float
    p50: float
    p90: float
    p95: float = 0.0  # 0 in what earlier releases stored
    p99: float


class Figures(BaseModel):
    """How the jobs fared under one policy; means over the seeds.

    `jct_change` is by how much the mean completion time differs from that of the first policy, as a share of it; null
    for that one. `jct_low` and `jct_high` are the ends of its interval at 95%, by bootstrap over the seeds.
    """

    policy: str
    retry: str
    finished: int
    jct_s: Spread
    jct_low: float
    jct_high: float
    jct_change: float | None
    wait_s: Spread
    wait_change: float | None
    makespan_s: float
    utilisation: float
    goodput: float
    wasted_gpu_h: float
    success_rate: float


class Summary(BaseModel):
    """The answer in short."""

    jobs: int
    gpus: int
    format: str
    left_out: dict[str, int]  # reason -> rows
    notes: list[str]
    compared: list[Figures]
    says: list[str] = []  # which policy, how sure that is, who loses; then what a reader should know
    pictures: list[str]  # names of those that were drawn
    missing: str = ""  # why there are none


@dataclass(frozen=True, slots=True)
class Comparison:
    """One that was asked for. Instants are seconds since the epoch."""

    id: str
    owner: str
    source: str  # the name of the trace, or `HISTORY`
    ask: ComparisonQuestion
    stage: Stage
    created_s: float
    started_s: float | None = None
    ended_s: float | None = None
    trouble: Trouble | None = None

    def is_visible_to(self, identity: Identity) -> bool:
        """Operators see all; others only their own: a trace tells who ran what."""
        return identity.role is Role.OPERATOR or self.owner == identity.user


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """What the process that simulates is told.

    On its standard input alone: the database's address may hold a secret.
    """

    ask: ComparisonQuestion
    database: str  # where the site's history is
    cluster: str  # whose history
    unpacked_bytes: int
    memory_bytes: int
    time_limit_s: float
    nice: int
    profiles: str | None = None  # a folder of measured profiles
    limits: LiveLimits | None = None  # of the policy in force here, where the site's own history is replayed
    queue_limits: tuple[float, ...] = QUEUE_LIMITS


COMPARISON: Codec[Comparison] = Codec(Comparison)
ORDER: Codec[ComparisonRequest] = Codec(ComparisonRequest)
