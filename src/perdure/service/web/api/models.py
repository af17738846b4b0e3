"""What the API says and takes, field by field; OpenAPI is made from this."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from perdure.coordination.record import ExceptionRecord
from perdure.coordination.wire import encode
from perdure.retry.budget import BudgetStanding
from perdure.retry.decide import DecisionKind
from perdure.service.access.auth import Identity
from perdure.service.store import codec
from perdure.service.store.queries.actions import ListedAction
from perdure.service.store.queries.events import EventRow
from perdure.service.store.queries.jobs import DecidedException, JobDetail, JobRow, JudgedAttempt, LatestFailure
from perdure.service.store.queries.learning import CorrectionRow
from perdure.service.store.queries.nodes import NodeRow
from perdure.service.store.queries.places import NodeFailures
from perdure.service.web.resubmit_command import command_elsewhere
from perdure.service.whatif.comparison import Comparison, Progress, Stage, Summary, Trouble
from perdure.service.whatif.question import ComparisonQuestion
from perdure.service.workers.operations import Status
from perdure.triage.reading_order import in_order_of_reading
from perdure.triage.verdict import CauseRole, Verdict

T = TypeVar("T")

MAX_TEXT = 2000
Text = Annotated[str, Field(max_length=MAX_TEXT)]


class Item(BaseModel):
    """A part of an answer, made of what the service knows it as."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of_parts(cls, *parts: object, **values: Any) -> Self:
        """Each field as it is given, else of the first of `parts` that has one of its name, else its default."""
        for name in cls.model_fields.keys() - values.keys():
            for part in parts:
                if hasattr(part, name):
                    values[name] = getattr(part, name)
                    break
        return cls(**values)


class Listing(BaseModel, Generic[T]):
    """A part of a listing. Ask again with `cursor` set to `next_cursor` for the next one; null ends it."""

    items: list[T]
    next_cursor: str | None = None


class JobItem(Item):
    """A job, and its latest failure in a line. Instants are seconds since the epoch."""

    job_id: str
    name: str
    user: str
    state: str
    partition: str
    gpus: int
    node_count: int
    submit_s: float
    changed_s: float
    walltime_s: float | None
    may_requeue: bool
    wish: str
    reason: str
    restarts: int
    failure: LatestFailure | None = None
    waits: str = Field("", description="Nodes that it waits for, and why, in words; empty where it waits for others")

    @classmethod
    def of(cls, row: JobRow | JobDetail, failure: LatestFailure | None = None, waits: str = "") -> JobItem:
        return cls.of_parts(row.job, row, failure=failure, waits=waits)


class EvidenceItem(Item):
    """One line of the log, or one fact of the resource manager, that speaks for the verdict."""

    line: int  # 1-based, in the text that was judged; 0 for a fact that is in no log
    text: str
    role: CauseRole
    rule: str
    source: str = ""


class LogItem(Item):
    """How far a file was read: a later attempt that appends to it begins there."""

    path: str
    start: int
    end: int
    digest: str
    written_s: float
    note: str = ""


class VerdictItem(Item):
    """Why an attempt failed. `evidence` quotes its log: it is null for those who may not read that."""

    label: str
    p_transient: float
    category: str
    summary: str
    advice: str
    bound: str
    infrastructure: bool
    hearsay: bool
    ending: str = Field("", description="What the end of its log says, where no line names a cause; as `evidence`")
    rank: str = Field("", description="Task that failed first; empty where that is not known")
    node: str = Field("", description="Its node, as its launcher calls it")
    evidence: list[EvidenceItem] | None
    logs: list[LogItem] | None = Field(None, description="What it was made from; null like `evidence`")

    @classmethod
    def of(cls, verdict: Verdict, *, with_log: bool) -> VerdictItem:
        return cls.of_parts(
            verdict,
            ending=verdict.ending if with_log else "",
            evidence=in_order_of_reading(verdict) if with_log else None,
            logs=verdict.logs if with_log else None,
        )


class AttemptItem(Item):
    """One execution of a job."""

    incarnation: int
    state: str
    nodes: list[str]
    failed_nodes: list[str]
    start_s: float
    end_s: float | None
    exit_code: int
    signal: int
    reason: str
    gpus: int
    gpu_hours: float
    verdict: VerdictItem | None
    reached: str = Field("", description="How far it came, what it saved last and what is lost; by its log")
    kept_log: str = Field("", description="File in which Perdure keeps its log; for those who may read it")

    @classmethod
    def of(cls, judged: JudgedAttempt, *, with_log: bool, kept_log: Callable[[str, int], str]) -> AttemptItem:
        attempt = judged.attempt
        return cls.of_parts(
            attempt,
            incarnation=attempt.id.incarnation,
            verdict=VerdictItem.of(judged.verdict, with_log=with_log) if judged.verdict else None,
            reached=judged.reached if with_log else "",
            kept_log=kept_log(attempt.id.job_id, attempt.id.incarnation) if with_log else "",
        )


def shown(record: ExceptionRecord, *, with_log: bool) -> dict[str, Any]:
    """A record as JSON; without what programs said of it for those who may not read their words."""
    if not with_log:
        verdicts = tuple(replace(answer, note="") if answer.handler else answer for answer in record.verdicts)
        record = replace(record, note="", evidence=(), annotations=(), extra=(), verdicts=verdicts)
    return encode(record)


class DecisionItem(Item):
    """What is done after a failure, and why, with the numbers that weighed."""

    kind: DecisionKind
    reason: str
    exclude: tuple[str, ...] = ()
    delay_s: float = 0.0
    node_count: int = 0
    p_transient: float = 0.0
    retry_cost_gpu_h: float = 0.0
    stop_cost_gpu_h: float = 0.0
    limit: str = ""


class ExceptionItem(Item):
    """A failure on its way: who owns its recovery, what was decided and why."""

    id: str
    type: str
    state: str
    incarnation: int
    time_s: float
    owner: str
    decision: str
    reason: str
    wasted_gpu_h: float
    saved_gpu_h: float
    decided: DecisionItem | None
    record: dict[str, Any]  # as coordination/exception.schema.json has it

    @classmethod
    def of(cls, row: DecidedException, *, with_log: bool) -> ExceptionItem:
        return cls.of_parts(row, row.record, record=shown(row.record, with_log=with_log))


class ActionItem(Item):
    """An action that was asked for, and its result."""

    key: str
    kind: str
    state: str
    by: str
    reason: str
    detail: str
    job_id: str
    node: str
    exception_id: str
    created_s: float
    expires_s: float
    started_s: float | None
    ended_s: float | None
    exclude: list[str]

    @classmethod
    def of(cls, row: ListedAction) -> ActionItem:
        return cls.of_parts(row, exclude=list(getattr(row.action, "exclude", ())))


class WordItem(Item):
    """What a person said of a failure."""

    incarnation: int
    label: str
    by: str
    time_s: float
    for_all: bool = Field(description="An operator's, which holds for all users' jobs")
    confirmed_by: str = Field(description="Operator who let a user's word hold for all users' jobs")


class JobFull(BaseModel):
    """All that is known of a job; attempts, exceptions and actions come latest first."""

    job: JobItem
    attempts: list[AttemptItem]
    exceptions: list[ExceptionItem]
    actions: list[ActionItem]
    places: list[NodeFailures] = Field(
        description="Nodes of the latest failed attempt, and what failed on them of others"
    )
    elsewhere: str = Field("", description="Command to paste that starts it away from where it failed, if that helps")
    corrections: list[WordItem] = Field(default=[], description="What persons said of its failures")

    @classmethod
    def of(
        cls,
        found: JobDetail,
        acts: tuple[ListedAction, ...],
        places: tuple[NodeFailures, ...],
        identity: Identity,
        kept_log: Callable[[str, int], str],
        waits: str,
        backend: str,
        said: Sequence[CorrectionRow] = (),
    ) -> JobFull:
        with_log = identity.may_read_logs_of(found.job.user)
        return cls(
            job=JobItem.of(found, waits=waits),
            attempts=[AttemptItem.of(each, with_log=with_log, kept_log=kept_log) for each in found.attempts],
            exceptions=[ExceptionItem.of(row, with_log=with_log) for row in found.exceptions],
            actions=[ActionItem.of(row) for row in acts],
            places=list(places),
            elsewhere=command_elsewhere(found, acts, backend),
            corrections=[WordItem.of_parts(row) for row in said],
        )


class NodeItem(Item):
    """A node, as it is now."""

    name: str
    state: str
    reason: str
    gpus: int
    gpus_used: int
    since_s: float | None
    changed_s: float

    @classmethod
    def of(cls, row: NodeRow) -> NodeItem:
        return cls.of_parts(row, row.node)


_TOLD_TO_ALL = frozenset({"label", "p_transient", "category", "summary", "advice", "bound", "infrastructure", "hearsay",
                          "rank", "node", "fingerprint", "wait_s"})  # fmt: skip
"""Of a verdict in an event; all else is a log's words, for its owner."""


class EventItem(Item):
    """One fact of the journal. `payload` has its own fields, without what a log says where that may not be read."""

    seq: int
    time_s: float
    kind: str
    job_id: str
    payload: dict[str, Any]

    @classmethod
    def of(cls, row: EventRow, *, with_log: bool) -> EventItem:
        payload = dict(row.payload)
        if not with_log and isinstance(payload.get("verdict"), dict):
            told = {name: part for name, part in payload["verdict"].items() if name in _TOLD_TO_ALL}
            payload["verdict"] = {**told, "evidence": None}
        if "record" in payload:
            payload["record"] = shown(codec.EXCEPTION.of(payload["record"]), with_log=with_log)
        return cls.of_parts(row, payload=payload)


class BudgetItem(Item):
    """The state of a shared budget of retries."""

    name: str
    used: int  # of the last hour, and planned for later
    limit: int  # in any hour
    room_s: float | None  # when the next retry may start; null where the budget is 0
    setting: str  # under [retry], that gives more

    @classmethod
    def of(cls, each: BudgetStanding) -> BudgetItem:
        return cls.of_parts(each, room_s=None if each.room_s == math.inf else each.room_s)


class StatusItem(Item):
    """The state of the service."""

    version: str
    cluster: str
    backend: str
    armed: bool
    stopped: bool
    ready: bool
    unready: list[str] = []  # why it is not
    last_look_s: float | None
    look_every_s: float
    unseen: dict[str, str]
    retries: BudgetItem | None = None  # the cluster's budget
    spent: list[BudgetItem] = []  # budgets that make retries start later now; at most five
    spool: str = ""  # where Slurm's hooks write for it; "" where it has none
    note: str = ""  # what could not be written of what was asked for
    widened: str = ""  # why more failures are probed than the thresholds as installed would have; "" where none

    @classmethod
    def of(cls, status: Status, version: str, widened: str = "") -> StatusItem:
        return cls.of_parts(
            status,
            version=version,
            widened=widened,
            retries=BudgetItem.of(status.retries) if status.retries else None,
            spent=[BudgetItem.of(each) for each in status.spent],
        )


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Order(_Asked):
    """What an operator asks for: of a job (`job_id`), or of a node (`node`)."""

    kind: Literal["hold", "release", "cancel", "retry", "requeue", "drain", "undrain"]
    job_id: Annotated[str, Field(max_length=256)] = ""
    node: Annotated[str, Field(max_length=256)] = ""
    exclude: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=1000)] = []
    reason: Text = ""


class Reason(_Asked):
    reason: Text = ""


class Fault(_Asked):
    """What is to happen to a node of the embedded cluster."""

    kind: Literal["fail", "freeze", "thaw", "return"]


class Switch(_Asked):
    """The kill switch: while it is on, no action is begun."""

    on: bool


class NewToken(_Asked):
    user: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-.0-~]+$")]  # no blank, no slash
    role: Literal["viewer", "operator"] = "viewer"


class NewCode(_Asked):
    """Whom a login code is for; without a user for whoever asks."""

    user: Annotated[str, Field(max_length=256, pattern=r"^[!-.0-~]*$")] = ""
    role: Literal["viewer", "operator"] = "viewer"


class LoginCode(BaseModel):
    """Logs a browser in once."""

    code: str


class Minted(BaseModel):
    """A token, shown this once, and the id by which it is listed and revoked."""

    id: str
    user: str
    role: str
    token: str


class FormItem(BaseModel):
    """A form of trace that is read."""

    name: str
    about: str


class Offer(BaseModel):
    """What can be asked of the simulator. `cluster` holds the nodes of this site as they are known now."""

    cluster: str
    history_jobs: int
    history_since_s: float | None
    policies: list[str]
    planned_policies: list[str] = []  # that plan with the profiles of whatif.profiles; empty without these
    placements: list[str]
    retries: list[str]
    failures: list[str]
    formats: list[FormItem]
    upload_bytes: int
    missing: list[str]  # modules of the optional part `sim` that are not installed


class UploadItem(BaseModel):
    """A trace that was sent."""

    id: str
    name: str
    bytes: int


class ComparisonItem(Item):
    """A comparison of policies: what was asked, its state, and in the end its result."""

    id: str
    owner: str
    source: str
    ask: ComparisonQuestion
    stage: Stage
    created_s: float
    started_s: float | None
    ended_s: float | None
    progress: Progress | None  # while it runs
    ahead: int  # how many are done before it
    trouble: Trouble | None  # why there is no answer
    summary: Summary | None  # once it is done; null in listings

    @classmethod
    def of(cls, found: Comparison, progress: Progress | None, ahead: int, summary: Summary | None) -> ComparisonItem:
        return cls.of_parts(found, progress=progress, ahead=ahead, summary=summary)


class Planned(BaseModel):
    """The key of an action that is planned now."""

    key: str


class Submitted(BaseModel):
    job_id: str
