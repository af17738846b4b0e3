"""The exception record: one failure or warning, all that was said of it, and who owns its recovery.

Severities as in Flux RFC 21 (0 is fatal, 7 is least). The order of the chain and the meaning of the verdicts follow
"Multi-level cooperative exception model for HPC workflows" (LLNL, ROSS 2019). `perdure.coordination.wire` reads and
writes records as JSON.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from perdure.coordination.source import Source, SourceKind
from perdure.model.actions import ActionKey, Hold
from perdure.model.identity import AttemptId

FATAL, LEAST = 0, 7  # the ends of the scale of severities
START = "start"  # what the owner forbids to all jobs that need a shared resource
CLEARS = "clears"  # key of the annotation of a record that says: this is over
REQUEUE_LOOP = "job.requeue-loop"  # the type of what says: others put a job back again and again
SEEN_BY = "seen_by"  # key of the annotation by which older versions named a further source
READ_BACK = "read_back"  # key of the annotation that tells what a node's manager says after the owner's action
RETURNED = "returned"  # key of the annotation that tells how what was taken out came back into service
CLOSED = "closed"  # key of the annotation by which a person says that it is dealt with
OF_THE_CHAIN = (
    SEEN_BY,
    CLEARS,
    READ_BACK,
    RETURNED,
    CLOSED,
)  # keys that decide something: nobody adds them to what was raised


class Component(StrEnum):
    """Who may recover from a failure; listed from the nearest to the fault to the farthest."""

    RESOURCE_MANAGER = "resource_manager"
    JOB = "job"
    WORKFLOW = "workflow"
    SCHEDULER = "scheduler"  # Perdure's own level in the chain


class Scope(StrEnum):
    """How far a fault reaches, and hence who is asked first."""

    LOCAL = "local"  # a fault inside one allocation: the nearest knows the repair
    GLOBAL = "global"  # a shared resource: only the farthest sees all who use it

    @property
    def order(self) -> tuple[Component, ...]:
        """The chain in the order in which it is asked."""
        return _NEAREST_FIRST if self is Scope.LOCAL else _FARTHEST_FIRST


_NEAREST_FIRST = tuple(Component)
_FARTHEST_FIRST = _NEAREST_FIRST[::-1]


class ExceptionState(StrEnum):
    """Where an exception is in the chain."""

    RAISED = "raised"
    IN_CHAIN = "in_chain"  # somebody is being asked
    HANDLED = "handled"  # it has an owner
    ESCALATED = "escalated"  # no owner, or the owner's action was refused: a person is needed
    EXPIRED = "expired"  # its subject was gone before anybody took it

    @property
    def is_over(self) -> bool:
        return self in (ExceptionState.HANDLED, ExceptionState.ESCALATED, ExceptionState.EXPIRED)


class ExceptionOutcome(StrEnum):
    """How the job that an exception is about fared, once that is known."""

    OPEN = ""
    CLEARING = "clearing"  # it works again; what was held because of it is being released
    RECOVERED = "recovered"  # the job got past it
    FAILED_AGAIN = "failed_again"  # the job was put back, and failed once more
    STOPPED = "stopped"  # the owner chose that the job ends here
    WITHDRAWN = "withdrawn"  # its subject is no more
    CLOSED = "closed"  # a person says that it is dealt with


class Transient(StrEnum):
    """Whether trying again may help."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class AnswerKind(StrEnum):
    """What a handler answers."""

    HANDLED = "handled"  # mine: the chain ends here
    ANNOTATED = "annotated"  # not mine, but this is to be known
    DECLINED = "declined"
    DEFERRED = "deferred"  # I may take it, ask me no more until then
    REJECTED = "rejected"  # not for me, or of an incarnation that is gone


class Origin(Struct, frozen=True, omit_defaults=True):
    """Who raised it."""

    component: str = "perdure"
    host: str = ""
    pid: int = 0


class Subject(Struct, frozen=True, omit_defaults=True):
    """What it is about; what is not meant stays empty."""

    cluster: str
    job_id: str = ""
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # "n7:3" or a UUID
    step: str = ""
    ranks: tuple[int, ...] = ()
    resource: str = ""  # what jobs share: "pfs:/scratch", "licence:ansys"


class Annotation(Struct, frozen=True, omit_defaults=True):
    """What a component wants the next ones to know, such as its last good checkpoint."""

    component: str
    time_s: float
    key: str
    value: str


class Sighting(Struct, frozen=True, omit_defaults=True):
    """A further source of a fault, as the service knows it, and when it said so."""

    by: str
    time_s: float
    host: str = ""


class Answer(Struct, frozen=True, omit_defaults=True):
    """What one handler said, and when."""

    component: Component
    kind: AnswerKind
    time_s: float
    note: str
    action_keys: tuple[
        str, ...
    ] = ()  # the actions that a HANDLED answer owns; in an ANNOTATED one, holds that are over
    handler: str = ""  # who exactly; "" is Perdure's own for this component
    forbids: tuple[str, ...] = ()  # what nobody else may do about it: "requeue", "move"
    until_s: float | None = None  # of a DEFERRED answer


class Budget(Struct, frozen=True, omit_defaults=True):
    """How often the owner of this key has recovered from the like already, and how often it may."""

    key: str
    used: int
    limit: int

    @property
    def is_spent(self) -> bool:
        return self.used >= self.limit


class ExceptionRecord(Struct, frozen=True, omit_defaults=True):
    """One failure on its way. Annotations and answers (`verdicts`) are only ever appended; at most one is HANDLED."""

    id: str
    type: str  # dotted: "job.shape", "node.gpu.xid79"
    severity: int
    scope: Scope
    subject: Subject
    time_s: float
    note: str = ""
    incarnation: int = 0  # the start of the job that it is about, as a fencing token; 0: any
    origin: Origin = Origin()
    detected_by: str = ""
    transient: Transient = Transient.UNKNOWN
    evidence: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    verdicts: tuple[Answer, ...] = ()
    cause: str = ""  # id of the exception that this one follows from
    deadline_s: float | None = None  # the instant at which Perdure acts, whoever has not answered
    budget: Budget | None = None
    repeats: int = 0  # equal faults that were folded into this one
    state: ExceptionState = ExceptionState.RAISED
    outcome: ExceptionOutcome = ExceptionOutcome.OPEN
    seen_by: tuple[Sighting, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()  # fields that this version does not know: name, and value as JSON text

    @property
    def owning(self) -> Answer | None:
        """The answer of the owner; None while nobody owns it."""
        for answer in self.verdicts:
            if answer.kind is AnswerKind.HANDLED:
                return answer
        return None

    @property
    def owner(self) -> Component | None:
        owning = self.owning
        return owning.component if owning else None

    @property
    def attempt(self) -> AttemptId | None:
        """The attempt that it is about; None where it is about no particular one."""
        subject = self.subject
        return AttemptId(subject.cluster, subject.job_id, self.incarnation) if subject.job_id else None

    @property
    def standing(self) -> str:
        """Its state, in one word: its outcome, and until that is known its state."""
        return str(self.outcome or self.state)

    @property
    def held(self) -> tuple[AttemptId, ...]:
        """Waiting jobs that its owner held back, whether they still are or not."""
        owning = self.owning
        return tuple(_jobs_held(owning)) if owning else ()

    @property
    def holds(self) -> tuple[AttemptId, ...]:
        """Waiting jobs that it holds back still: none of them was released."""
        if self.outcome not in (ExceptionOutcome.OPEN, ExceptionOutcome.CLEARING):
            return ()
        if not (held := self.held):
            return ()
        over = {attempt for a in self.verdicts if a.kind is AnswerKind.ANNOTATED for attempt in _jobs_held(a)}
        return tuple([attempt for attempt in held if attempt not in over])

    @property
    def is_hold_order(self) -> bool:
        """Whether no job that needs its resource is to start: its owner said so, and no all-clear has come since."""
        if self.outcome is not ExceptionOutcome.OPEN or not self.subject.resource:
            return False
        owning = self.owning
        return owning is not None and not owning.handler and START in owning.forbids

    @property
    def is_in_force(self) -> bool:
        """Whether it keeps jobs that wait from starting."""
        if self.outcome not in (ExceptionOutcome.OPEN, ExceptionOutcome.CLEARING):
            return False
        owning = self.owning
        if owning is None or not (owning.forbids or owning.action_keys):
            return False
        return self.is_hold_order or bool(self.holds)

    @property
    def needs_a_person(self) -> bool:
        """Whether nobody could see to it, and nobody has since."""
        return self.state is ExceptionState.ESCALATED and self.outcome is ExceptionOutcome.OPEN

    @property
    def is_handed_on(self) -> bool:
        """Whether what was raised of a job was left to the end of its attempt, and nothing is known of that yet."""
        is_waiting = self.state is ExceptionState.HANDLED and self.outcome is ExceptionOutcome.OPEN
        if not is_waiting or not self.subject.job_id:
            return False
        owning = self.owning
        if owning is None or owning.handler or owning.action_keys or owning.forbids:
            return False
        return Source.of(self.detected_by).kind is not SourceKind.SERVICE

    @property
    def ends_with_its_job(self) -> bool:
        """Whether it is over, at the latest, when the job that it is about is."""
        return self.needs_a_person or self.is_handed_on

    @property
    def is_unanswered(self) -> bool:
        """Whether it is open to whoever looks: somebody is being asked, or a person is needed."""
        return self.state is ExceptionState.IN_CHAIN or self.needs_a_person

    @property
    def read_back_s(self) -> float | None:
        """When its owner's action on a node was last seen carried out."""
        return next((a.time_s for a in reversed(self.annotations) if a.key == READ_BACK), None)

    @property
    def keeps_nodes_out(self) -> bool:
        """Whether it is about nodes that were taken out of service because of it, and have not been back since."""
        is_done = self.state is ExceptionState.HANDLED and self.outcome is ExceptionOutcome.OPEN
        return bool(self.subject.nodes) and is_done and self.read_back_s is not None

    @property
    def closing(self) -> Annotation | None:
        """Who closed it, and with which words; None where no person did."""
        return next((a for a in self.annotations if a.key == CLOSED), None)

    @property
    def is_all_clear(self) -> bool:
        """True where it says that a fault is over, and does not report one."""
        return bool(self.annotations) and any(a.key == CLEARS for a in self.annotations)

    @property
    def sources(self) -> frozenset[str]:
        """All who saw it."""
        noted = (a.component for a in self.annotations if a.key == SEEN_BY)
        return frozenset((self.detected_by, *(each.by for each in self.seen_by), *noted))

    @property
    def is_of_the_site(self) -> bool:
        """Whether the service itself or an operator says so, and no user alone."""
        return any(Source.of(text).is_of_the_site for text in self.sources)

    def with_answer(self, answer: Answer) -> ExceptionRecord:
        """Append an answer. Raises `ValueError` for a second owner."""
        verdicts = (*self.verdicts, answer)
        if answer.kind is not AnswerKind.HANDLED:
            return replace(self, verdicts=verdicts)
        if self.owning is not None:
            raise ValueError(f"{self.id} is owned by {self.owner}; {answer.component} cannot own it too")
        return replace(self, verdicts=verdicts, state=ExceptionState.HANDLED)


def _jobs_held(answer: Answer) -> list[AttemptId]:
    """The jobs that an answer's actions hold."""
    keys = map(ActionKey.of, answer.action_keys)
    return [key.attempt for key in keys if key.is_a(Hold)]


def about(attempt: AttemptId) -> Subject:
    """The subject of what is about one attempt."""
    return Subject(attempt.cluster, attempt.job_id)
