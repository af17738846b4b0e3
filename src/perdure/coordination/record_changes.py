"""What one exception is after something was said of it: each function returns the record as it is then. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.coordination.record import (
    Annotation,
    Answer,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    Sighting,
)
from perdure.coordination.source import Source
from perdure.model.actions import Hold
from perdure.model.identity import AttemptId

MAX_ANNOTATIONS = 64
MAX_ANNOTATIONS_OF_GUESTS = MAX_ANNOTATIONS // 2
MAX_SOURCES = 8  # users that are kept as sources of one fault


def is_of_a_guest(record: ExceptionRecord) -> bool:
    """Whether a user raised it, and neither the service itself nor an operator."""
    return not Source.of(record.detected_by).is_of_the_site


def most_annotations(annotations: tuple[Annotation, ...]) -> int:
    """How many a record may have with these: users leave room for what the site and handlers have to say."""
    of_the_site = all(Source.of(a.component).is_of_the_site for a in annotations)
    return MAX_ANNOTATIONS if of_the_site else MAX_ANNOTATIONS_OF_GUESTS


def with_annotations(record: ExceptionRecord, annotations: tuple[Annotation, ...]) -> ExceptionRecord:
    """With as many of them as there is room for."""
    room = MAX_ANNOTATIONS - len(record.annotations)
    return replace(record, annotations=(*record.annotations, *annotations[:room])) if annotations else record


def seen_again(known: ExceptionRecord, again: ExceptionRecord, now: float) -> ExceptionRecord:
    """A second source of one fault is worth knowing: who it is, and what it has to say."""
    is_one_more = is_of_a_guest(again) and len(known.sources) > MAX_SOURCES
    if again.detected_by in known.sources or is_one_more:
        return known
    seen = (*known.seen_by, Sighting(again.detected_by, now, again.origin.host))
    room = MAX_ANNOTATIONS_OF_GUESTS if is_of_a_guest(again) else MAX_ANNOTATIONS
    more = again.annotations[: max(0, room - len(known.annotations))]
    return replace(known, seen_by=seen, annotations=(*known.annotations, *more))


def without_holds(record: ExceptionRecord, over: list[AttemptId], now: float) -> ExceptionRecord:
    """The record once these jobs are not held by it any more; with the last of them an all-clear is complete."""
    left = len(record.holds) - len(over)
    jobs = "1 job is" if len(over) == 1 else f"{len(over)} jobs are"
    note, keys = f"{jobs} held no more, {left} still", [Hold(a, record.id).key for a in over]
    record = record.with_answer(Answer(Component.SCHEDULER, AnswerKind.ANNOTATED, now, note, tuple(keys)))
    is_over = not left and record.outcome is ExceptionOutcome.CLEARING
    return replace(record, outcome=ExceptionOutcome.RECOVERED) if is_over else record
