"""What a rule is: a pattern, and what it means for the cause of a failure where it matches."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from perdure.triage.verdict import Bound, CauseRole


class At(StrEnum):
    """Where in a cleaned line a pattern must be."""

    ANYWHERE = "anywhere"
    START = "start"
    WHOLE = "whole"
    EXCEPTION = "exception"  # at the start, after a module path if there is one
    RUNTIME = "runtime"  # at the start, after an exception, what() or a place in source code: no quoted words
    KERNEL = "kernel"  # at the start, after what dmesg, syslog, journald and pdsh put before a line of the kernel


class Force(StrEnum):
    """Which of several roots is believed."""

    DECISIVE = "decisive"  # the resource manager's own word
    PLAIN = "plain"
    GENERIC = "generic"  # yields to any plain root
    FAINT = "faint"  # yields to cascades as well: scripts print such lines and go on


class WrittenFrom(StrEnum):
    """What a rule was written from."""

    DOCUMENTATION = "documentation"
    LOG = "log"
    FOUNDRY = "foundry"  # programs that were made to fail
    SITE = "site"


class Cause(Struct, frozen=True):
    """What it means that a rule matched, or that a fact holds."""

    name: str
    category: str
    p_transient: float
    role: CauseRole = CauseRole.ROOT
    force: Force = Force.PLAIN
    says: str = ""  # half a sentence for a person
    advice: str = ""
    bound: Bound = Bound.NOTHING
    infrastructure: bool = False
    wait_s: float = 0.0
    hard: bool = False  # it shows that hardware is broken
    of_kernel: bool = False  # it is a line of the kernel, not of the job
    part_of: str = ""  # the wider category that its own is a part of
    unproven: bool = False  # read in a way that was wrong too often to stop or to retry a job for it

    @property
    def wider(self) -> str:
        """The category that models and reasoning know it by."""
        return self.part_of or self.category

    @property
    def rank(self) -> int:
        """The lower, the sooner it is believed."""
        if self.role is CauseRole.ROOT:
            return {Force.DECISIVE: 0, Force.PLAIN: 1, Force.GENERIC: 2, Force.FAINT: 4}[self.force]
        if self.role is CauseRole.CASCADE:
            return 3
        return 5 if self.force is not Force.FAINT else 6


_BEFORE_KERNEL = (
    r"(?:<\d+>|\[[^\]]*\]:?|[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\w:.,+-]+"
    r"|(?:[\w.-]+ )?kernel:|[\w.-]+:|\s)*"
)

_LEVEL = r"(?:[\[(<]?(?:ERROR|CRITICAL|FATAL|E)[\])>]?:? +(?:\S+ )?(?:[-|] )?)?"
_BEFORE_RUNTIME = (
    r"(?:(?:- )?[\w.]+ - (?:ERROR|CRITICAL) - )?"
    + _LEVEL
    + r"(?:(?:[A-Za-z_][\w.]*(?:Error|Exception): |what\(\): +|(?:\S+:\d+ )?NCCL WARN "
    r"|(?:\[[^\]]{1,80}\]:? ?)*(?:NCCL|Process group) watchdog thread terminated with exception: "
    r"|C(?:UDA|uda) [Ee]rror at \S+ |[\w./-]+(?:\(\d+\)|:\d+)[\]):]* )[^'\"]{0,200}|[A-Za-z_][\w.]*\.)?"
)


class TriageRule(Struct, frozen=True):
    """A pattern and what it means."""

    cause: Cause
    pattern: str
    at: At = At.ANYWHERE
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    software: tuple[str, ...] = ()  # what it is about
    warns: bool = False  # its software says "warn" of errors: such a line counts in full
    see: str = ""  # address at which the makers describe it; "" where nobody does
    written_from: WrittenFrom = WrittenFrom.SITE

    @property
    def anchored(self) -> str:
        """The pattern with what `at` says of its place."""
        before = "" if self.at is At.ANYWHERE else r"^\s*"
        if self.at is At.EXCEPTION:
            before += _LEVEL + r"(?:[A-Za-z_](?:[\w.]|\.<locals>)*\.)?"  # <locals>: of a class made in a function
        if self.at is At.RUNTIME:
            before += _BEFORE_RUNTIME
        if self.at is At.KERNEL:
            before += _BEFORE_KERNEL
        return f"{before}(?:{self.pattern})" + (r"\s*$" if self.at is At.WHOLE else "")

    @property
    def is_sharp(self) -> bool:
        """True where it names the cause, and yields to none."""
        return self.cause.role is CauseRole.ROOT and self.cause.force in (Force.DECISIVE, Force.PLAIN)
