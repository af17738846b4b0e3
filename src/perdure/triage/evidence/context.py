"""What surrounds a failure: how far the job had come, and who else failed at its side.

The same line means opposite things in different surroundings. A collective that times out at its first call has a
wrong interface, one that times out at its hundred-thousandth a lost peer; a file that cannot be written is a full
disk, or a mount that everybody has lost. Each circumstance moves the log-odds of the causes that it bears on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import re2
from msgspec import Struct
from msgspec.structs import replace

from perdure.model.output import FULL_BYTES
from perdure.triage.evidence.likeness import Likeness, objects_of
from perdure.triage.evidence.rule import Cause
from perdure.triage.evidence.time_used import TimeUsed
from perdure.triage.text.clean import decode, scrub
from perdure.triage.text.logtext import END_BYTES, LogText
from perdure.triage.text.patterns import compiled
from perdure.triage.verdict import Bound

FAR_STEPS, FAR_COLLECTIVES, FAR_EPOCHS = 1000, 1000, 2
EARLY_S, EARLY_COLLECTIVES = 120.0, 4
LONG_S = 1800.0
MAX_ENDS = 8  # of files in which steps are looked for
MAX_SHIFT = 2.5  # of the log-odds, by all circumstances together


class Context(Struct, frozen=True):
    """What is known besides the log's text. None: it is not known."""

    ran_s: float | None = None
    attempt_number: int | None = None  # from 1
    others_on_node: int = 0  # users whose jobs the site failed on these nodes within minutes
    others_elsewhere: tuple[tuple[str, Likeness], ...] = ()  # users of jobs that failed on other nodes, and of what
    free_bytes: int | None = None  # where the job's log is written
    saved_since_start: bool | None = None  # was a checkpoint?
    gpus: int | None = None  # that the job has
    answered: str = ""  # the host that failed, if it had answered this job before
    walltime_s: float | None = None  # that its job asked for


class TrainingProgress(Struct, frozen=True):
    """How far a log says that its job had come. None: it does not say."""

    steps: int | None = None
    collectives: int | None = None  # sequence number of the collective that failed
    epochs: int | None = None  # the last; a number that may be a setting does not count

    @property
    def is_far(self) -> bool:
        """Whether its job had worked for long."""
        return (self.steps or 0) >= FAR_STEPS or (self.epochs or 0) >= FAR_EPOCHS


class Circumstance(Struct, frozen=True):
    """One of the surroundings, and how it moves the log-odds that a retry passes."""

    name: str
    says: str
    shift: float


_OF_SETUP = frozenset(
    {"net", "nccl_timeout", "nccl_comm", "rdzv_store", "dist_config", "obj_store", "fs", "permission", "cuda_env"}
)
"""Categories in which a wrong set-up and a passing trouble print the same."""
_UNEXPLAINED_DEATHS = frozenset({"killed", "preempt"})
OF_STORAGE = frozenset({"fs", "disk_quota", "obj_store", "ckpt"})
_NO_GPU_FOUND = frozenset({"gpu-unavailable", "jax-backend", "gpu-taken-from-container", "gpu-not-seen"})
"""Rules of what a program says that finds no GPU, be it that one is lost or that it was given none."""
_AMBIGUOUS = (0.1, 0.97)  # a cause whose prior lies outside is sure of itself


_READ_ONLY = "read-only"
"""The rule of what cannot be written: an image, a mount, or a disk that the kernel has set read-only."""


def circumstances(
    cause: Cause, progress: TrainingProgress, context: Context, text: str = ""
) -> tuple[Circumstance, ...]:
    """Those that bear on a failure of this cause, which `text` reports."""
    if not _AMBIGUOUS[0] <= cause.p_transient <= _AMBIGUOUS[1]:
        return ()
    found = (each for rule in _RULES for each in rule(cause, progress, context))
    return (*found, *_who_failed_alike(cause, context, text))


def became_read_only(cause: Cause, progress: TrainingProgress) -> bool:
    """Whether a program that had worked for steps meets what is read-only: its disk may have failed since."""
    return cause.name == _READ_ONLY and progress.steps is not None


def shift_of(found: tuple[Circumstance, ...]) -> float:
    """What they do to the log-odds together."""
    return max(-MAX_SHIFT, min(MAX_SHIFT, sum(each.shift for each in found)))


def _how_far(cause: Cause, progress: TrainingProgress, context: Context) -> Iterator[Circumstance]:
    """What has worked for long is set up rightly; what never worked may be set up wrongly."""
    if cause.wider not in _OF_SETUP:
        return
    sequence, steps, ran_s = progress.collectives, progress.steps, context.ran_s
    if sequence is not None and sequence >= FAR_COLLECTIVES:
        yield Circumstance(
            "late-collective", f"it failed at collective number {sequence}, and those before had worked", 1.2
        )
    elif sequence is not None and sequence <= EARLY_COLLECTIVES:
        yield Circumstance("first-collective", f"it failed at collective number {sequence}", -1.5)
    elif progress.is_far:
        come = f"step {steps}" if (steps or 0) >= FAR_STEPS else f"epoch {progress.epochs}"
        yield Circumstance("far-along", f"it had come to {come}", 0.9)
    elif context.saved_since_start:
        yield Circumstance("saved-before", "it had saved a checkpoint since its start", 0.9)
    elif ran_s is not None and ran_s < EARLY_S and not steps:
        yield Circumstance("at-the-start", f"it failed {ran_s:.0f} s after its start, before any step", -0.6)
    elif ran_s is not None and ran_s >= LONG_S:
        yield Circumstance("ran-long", f"it had run for {ran_s / 60:.0f} min", 0.4)


def _who_else(cause: Cause, progress: TrainingProgress, context: Context) -> Iterator[Circumstance]:  # noqa: ARG001
    if context.others_on_node:
        yield Circumstance(
            "neighbours", f"jobs of {_users(context.others_on_node)} failed on the same node within minutes", 1.2
        )


def _who_failed_alike(cause: Cause, context: Context, text: str) -> Iterator[Circumstance]:
    if cause.bound not in (Bound.SERVICE, Bound.CALLER):
        return
    own = Likeness(cause.category, cause.name, objects_of(text))
    if alike := len({user for user, other in context.others_elsewhere if other.is_like(own)}):
        yield Circumstance("others-alike", f"jobs of {_users(alike)} failed alike elsewhere within minutes", 1.5)


def _room_on_disk(cause: Cause, progress: TrainingProgress, context: Context) -> Iterator[Circumstance]:  # noqa: ARG001
    if cause.category in OF_STORAGE and context.free_bytes is not None:
        if context.free_bytes < FULL_BYTES:
            yield Circumstance("disk-full", "the disk that its log is on is full", -1.5)
        elif cause.category == "fs":
            yield Circumstance("disk-free", f"the disk that its log is on has {context.free_bytes >> 20} MiB free", 0.3)


def _answered(cause: Cause, progress: TrainingProgress, context: Context) -> Iterator[Circumstance]:  # noqa: ARG001
    if context.answered:
        yield Circumstance("answered-before", f"{context.answered} had answered it before", 1.2)


def _gpus_asked_for(cause: Cause, progress: TrainingProgress, context: Context) -> Iterator[Circumstance]:  # noqa: ARG001
    if cause.name in _NO_GPU_FOUND and context.gpus == 0:
        yield Circumstance("no-gpus", "the job asked for no GPU", -2.5)


def _users(count: int) -> str:
    return "another user" if count == 1 else f"{count} other users"


def _walltime_used(cause: Cause, progress: TrainingProgress, context: Context) -> Iterator[Circumstance]:  # noqa: ARG001
    """A death that nobody explains, at the end of the walltime, is the end of the walltime."""
    if cause.category not in _UNEXPLAINED_DEATHS or context.ran_s is None or not context.walltime_s:
        return
    used = TimeUsed(context.ran_s, context.walltime_s)
    if used.is_used_up:
        yield Circumstance("walltime-used", f"it had run for {used.told} that it asked for", -2.0)


_RULES: tuple[Callable[[Cause, TrainingProgress, Context], Iterator[Circumstance]], ...] = (
    _how_far,
    _who_else,
    _room_on_disk,
    _answered,
    _gpus_asked_for,
    _walltime_used,
)


# ---------------------------------------------------------------- reading progress


@lru_cache(maxsize=1)
def _steps() -> Any:
    return re2.compile(
        r"(?i)\b(?:global[_ ]step|steps?|iter(?:ation)?s?|batch)\b[\"']?\s*[:=#|\[(]?\s*(\d{1,12})"
        r"(?:\s*/\s*\d+|[^\w.]|\.(?:\D|$)|$)"  # a step of Slurm is a number with a dot
    )


@lru_cache(maxsize=1)
def _sequence() -> Any:
    return re2.compile(r"(?i)\bSeq(?:uence)?[_ ]?(?:Num(?:ber)?|Id|No)?\s*[=:]\s*(\d{1,15})\b")


@lru_cache(maxsize=1)
def _epochs() -> Any:
    return re2.compile(r"(?i)\bepoch\b[\"']?\s*[:=#|\[(]?\s*(\d{1,6})(?:\s*/\s*\d+|[^\w.]|\.(?:\D|$)|$)")


_AT_EPOCH = r"(?i)(?:^|[^-\w])epoch[\s\[(#]+\d"
"""How an epoch is written that was reached; a setting has a sign between its name and its value."""


def progress_of(excerpt: str) -> TrainingProgress:
    """How far an excerpt says that its job had come: the last step and the first failing collective that it names."""
    steps = [int(found[1]) for found in _steps().finditer(excerpt)]
    sequence = _sequence().search(excerpt)
    epochs = [int(found[1]) for found in _epochs().finditer(excerpt)]
    told = len(set(epochs)) > 1 or compiled(_AT_EPOCH).search(excerpt.encode())
    last = epochs[-1] if epochs and told else None
    return TrainingProgress(steps[-1] if steps else None, int(sequence[1]) if sequence else None, last)


def with_steps_of(progress: TrainingProgress, text: LogText) -> TrainingProgress:
    """The progress; where the excerpt of the failure tells no step, the last one that an end of its files tells.

    Steps are often printed to another file than errors.
    """
    if progress.steps is not None:
        return progress
    ends = [progress_of(decode(scrub(window.data[-END_BYTES:]))) for window in text.windows[:MAX_ENDS]]
    steps = next((end.steps for end in ends if end.steps is not None), None)
    epochs = next((end.epochs for end in ends if end.epochs is not None), None)
    return replace(progress, steps=steps, epochs=epochs if progress.epochs is None else progress.epochs)
