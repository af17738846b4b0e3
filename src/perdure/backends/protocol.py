"""What Perdure needs of a resource manager. Every backend passes `perdure.backends.checks`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, runtime_checkable

from perdure.model.actions import Action, Comment, Outcome
from perdure.model.jobs import Attempt, JobSize
from perdure.model.observation import Observation
from perdure.model.output import LogMark, Output
from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.waits.queue import QueueLook

TAIL_BYTES = 4 * 1024 * 1024


class PastJobs(NamedTuple):
    """Jobs of past weeks as a trace file, and what is to be said of them, one sentence each."""

    text: bytes | None  # None where none are kept
    form: str  # a name of `perdure.traces.read`
    remarks: tuple[str, ...] = ()
    limits: SiteLimits = SiteLimits()  # of QOS and accounts, as they were told at the same time


class Backend(Protocol):
    """One cluster.

    Methods may be called from one thread at a time. Each raises `ClusterBusy` where no answer came (for an
    action: it may have been done) and `ClusterError` where the resource manager refused to be asked at all.
    """

    cluster: str

    def observe(self, since_s: float) -> Observation:
        """Look once: all jobs and nodes that are known now, attempts that run or ended at or after `since_s`.

        Never raises for a part that is down: it names that part in `Observation.unseen`.
        """

    def output(self, attempt: Attempt, max_bytes: int = TAIL_BYTES, known: Sequence[LogMark] = ()) -> Output:
        """Read all of an attempt's output, with its owner's rights: standard output, errors, and ranks' own files.

        Of stdout and stderr at most the last `max_bytes` each, and their beginning. `known` tells
        where the job's earlier attempts ended; what a file held before is not this attempt's. What cannot be read is
        named in the answer. Raises `ClusterBusy` where a file system does not answer.
        """

    def perform(self, action: Action) -> Outcome:
        """Carry out an action, unless it has been carried out or the world has moved on: then say so.

        Calling it twice with one action does what calling it once does.
        """

    def lookup(self, action: Action) -> Outcome | None:
        """Return the result of an action that may or may not have been carried out. None: it surely was not."""

    def close(self) -> None:
        """Release sockets and processes."""


@runtime_checkable
class Commented(Protocol):
    """A cluster whose jobs have a line of their own for what was decided on them."""

    def write_comments(self, actions: Sequence[Comment]) -> list[Outcome]:
        """Carry out comments, all together; the result of each. From any thread. Raises `ClusterBusy`."""


@runtime_checkable
class Queued(Protocol):
    """A cluster that shows its whole queue, and the past that forecasts rest on. From any thread."""

    def queue(self) -> QueueLook | None:
        """The queue as the last look saw it, without a question; None where it is not known yet."""

    def past_jobs(self, look: QueueLook, since_s: float) -> PastJobs:
        """Ask for all jobs that ran since an instant. Raises `ClusterBusy`, `ConfigError`."""


@runtime_checkable
class Reorderable(Protocol):
    """A cluster that shows who waits in which order, and lets that be changed. From any thread."""

    def queue(self) -> QueueLook | None:
        """The queue as it is, or as the last look saw it; None where it is not known yet. Raises `ClusterBusy`."""

    def set_nice(self, nice: Mapping[str, int]) -> dict[str, str]:
        """Set the nice of waiting jobs, by job, all together; what the manager complained of, by job.

        It is what is taken from a job's priority. Setting it twice does what setting it once does. Raises `ClusterBusy`
        where no answer came: some may have been set.
        """


@runtime_checkable
class Limiting(Protocol):
    """A cluster that bounds what QOS and accounts use together. From any thread."""

    def limits(self, look: QueueLook) -> SiteLimits:
        """Ask for the limits that are in force; a remark names those that cannot be had."""


@runtime_checkable
class Resizable(Protocol):
    """A cluster that lets the size of waiting jobs be changed. From any thread."""

    def set_sizes(self, sizes: Mapping[str, tuple[JobSize, JobSize]]) -> dict[str, str]:
        """Set what waiting jobs ask for, all together; what the manager complained of, by job.

        Of each job what it is to ask for, and what it asks for now; only what differs is set. Setting it twice does
        what setting it once does. Raises `ClusterBusy` where no answer came: some may have been set.
        """


@runtime_checkable
class Playground(Protocol):
    """A cluster to try things on: jobs are submitted, and nodes broken, through Perdure."""

    def submit(self, spec: Any) -> str:
        """Queue a job, or the fields of one; returns its id. Raises `InputError`, `ClusterError`."""

    def fault(self, node: str, what: str) -> None:
        """Do something to a node: fail, freeze, thaw, return. Raises `InputError`, `NotFound`, `ClusterError`."""


@runtime_checkable
class Hooked(Protocol):
    """A cluster whose hooks report ends and wait for decisions. Methods may be called from any thread."""

    cluster: str
    bridge: str
    """The bridge that reads its notices."""

    @property
    def spool(self) -> Any:
        """Where hooks write to; None where there are none."""

    def listen(self) -> Any:
        """Take what hooks wrote: its `ends` and `looks`. What it reports is kept for the next look."""

    def notices(self) -> Sequence[str]:
        """What hooks reported of nodes since the last call."""

    def waiting(self) -> dict[str, Any]:
        """The epilogs that wait, by job."""

    def look_at(self, questions: Iterable[Any]) -> Observation:
        """Look at the attempts whose epilogs wait, and at no others."""

    def answer(self, job_id: str) -> None:
        """Answer the epilog of a failed attempt, where it waits for a decision."""


def batch_of(backend: Backend) -> AbstractContextManager[None]:
    """The block in which several calls are made together.

    A backend for which that costs less than each call alone has ``batch()``: inside it calls share what they can.
    """
    batch: Callable[[], AbstractContextManager[None]] | None = getattr(backend, "batch", None)
    return batch() if batch is not None else nullcontext()
