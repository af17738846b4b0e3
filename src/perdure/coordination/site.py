"""What handlers may know of the site: a view of the present, made by whoever runs the chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from perdure.coordination.chain_state import Chain
from perdure.coordination.record import Component, ExceptionRecord
from perdure.coordination.ruling import Ruling
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job
from perdure.model.nodes import Node


class Resource(Struct, frozen=True):
    """Something that jobs share, and which jobs need it.

    Those that ask for its licence, that wait in its partitions, or that work below its directory. With nothing of this
    named, every job needs it.
    """

    name: str
    licence: str = ""
    partitions: tuple[str, ...] = ()
    directory: str = ""

    def is_needed_by(self, job: Job) -> bool:
        if self.licence:
            return self.licence in job.licences
        if self.directory and not f"{job.work_dir}/".startswith(f"{self.directory.rstrip('/')}/"):
            return False
        return not self.partitions or job.may_run_in(self.partitions)


class SiteFacts(Protocol):
    """The cluster as it is now."""

    def job(self, job_id: str) -> Job | None:
        """A job that is not over, or was recently."""

    def owner_of(self, record: ExceptionRecord) -> str:
        """Whose job it is about; "" where it is about none, or about one whose id another job has now."""

    def latest(self, job_id: str) -> int:
        """The job's newest incarnation; 0 where it never started."""

    def node(self, name: str) -> Node | None:
        """A node by its name."""

    def waiting(self) -> Sequence[Job]:
        """Jobs that wait and that nobody holds."""

    def running(self) -> Sequence[Attempt]:
        """Attempts that run."""

    def resource(self, name: str) -> Resource:
        """A shared resource as the playbook has it; one that it does not name is needed by every job."""

    def is_of_attempt(self, record: ExceptionRecord) -> bool:
        """Whether this record was made of a failed attempt that was judged: `recovery` tells who recovers it."""

    def recovery(self, record: ExceptionRecord) -> tuple[Component, Ruling] | None:
        """Who recovers the failed attempt that this record was made of, and how; None where it was made of none."""

    def settle_on(self, record: ExceptionRecord) -> None:
        """What `recovery` says of a failed attempt now is what is done: it counts in what is said of others."""

    def failure_of(self, attempt: AttemptId) -> str:
        """The id of the exception that an attempt's failure is; "" while there is none. Incarnation 0: the latest."""

    def seeing(self, chain: Chain) -> SiteFacts:
        """The same site with other exceptions on their way and over."""

    def in_force(self) -> Sequence[ExceptionRecord]:
        """Exceptions about shared resources that keep jobs from starting, the oldest first."""

    def open_about(self, resource: str) -> Sequence[str]:
        """The ids of exceptions about a shared resource that nobody has decided on yet."""
