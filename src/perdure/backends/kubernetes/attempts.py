"""The attempts of a job: which runs of which pods belong together. Pure.

A gang starts together, and fails together: once one of its pods has failed, the pod that takes its place begins the
next attempt, together with those that still run. So what a controller restarts by itself is an attempt, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from perdure.backends.kubernetes.objects import MAX_INSTANT_S
from perdure.backends.kubernetes.runs import PodRun, RunEnd
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState

MOST_PAST = 20  # attempts that a job's annotation holds
MOST_DIGITS = 10  # of a count of restarts
LOGS = "/pods/"
PREVIOUS = "/previous"


class PodGroup(Struct, frozen=True):
    """The runs of one attempt."""

    incarnation: int
    runs: tuple[PodRun, ...]

    @property
    def first_failed(self) -> PodRun | None:
        """The run whose end ended the attempt: of those at one instant one whose node failed."""
        failed = [run for run in self.runs if run.failed]
        return min(failed, key=_by_end, default=None)

    @property
    def bound(self) -> int:
        """Pods that have a node."""
        return sum(bool(run.node) for run in self.runs)

    @property
    def is_over(self) -> bool:
        return self.first_failed is not None or all(run.end is not None for run in self.runs)


def _by_end(run: PodRun) -> tuple[float, int, float]:
    """Pods that are deleted follow from others' failures in the same second, and these from a node's."""
    order = (AttemptState.NODE_FAIL, None, AttemptState.REQUEUED)
    state = run.end.state if run.end is not None else None
    return run.end_s or 0.0, order.index(state if state in order else None), run.born_s


def _by_birth(run: PodRun) -> tuple[int, float, bool, float, str]:
    """Of two born in one second the one that has ended was first; a controller's own count comes before clocks."""
    is_count = run.round.isdecimal() and len(run.round) < MOST_DIGITS
    return int(run.round) if is_count else 0, run.born_s, run.end is None, run.end_s or 0.0, run.uid


def _by_slot(run: PodRun) -> list[tuple[int, str]]:
    """Numbers by their size, those of a slot one after the other."""
    return [(len(part), part) for part in run.slot.split("-")]


def grouped(runs: Iterable[PodRun], width: int, after: int = 0) -> list[PodGroup]:
    """Groups of runs, oldest first; `width` is how many pods run at a time, `after` the last incarnation before.

    What went before it had a node has never run.
    """
    groups: list[list[PodRun]] = []
    for run in sorted(runs, key=_by_birth):
        if not run.node and run.end is not None:
            continue
        if not groups:
            groups.append([run])
        elif _begins_another(run, groups[-1], width):
            groups.append([*(each for each in groups[-1] if each.end is None and each.slot != run.slot), run])
        else:
            groups[-1].append(run)
    numbered: list[PodGroup] = []
    for group in groups:
        # Clocks count in whole seconds; two starts within one are told apart all the same.
        after = max(int(max(run.born_s for run in group) if numbered else group[0].born_s), after + 1)
        numbered.append(PodGroup(after, tuple(group)))
    return numbered


def _begins_another(run: PodRun, group: Sequence[PodRun], width: int) -> bool:
    if any(each.round != run.round for each in group):
        return True
    if any(each.slot == run.slot and each.end is not None for each in group):
        return True
    return len(group) >= width and any(each.failed for each in group)


def attempts_of(
    groups: Sequence[PodGroup],
    job_id: str,
    cluster: str,
    user: str,
    needed: int,
    how_over: RunEnd | None,
    over_s: float,
    settled: Callable[[PodRun], bool],
) -> Iterator[Attempt]:
    """The attempts that groups of runs are. One begins once `needed` of its pods have a node: a gang as a whole.

    `how_over` says how the job as a whole ended, where it did; that is how its last attempt ended, unless a pod failed.
    A failure that is not `settled`, as the controller has still to say what becomes of the job, is not told yet.
    """
    for place, group in enumerate(groups):
        is_last = place == len(groups) - 1
        if group.bound < needed and not group.is_over and how_over is None:
            continue
        bound = [run for run in group.runs if run.node]
        starts = [run.start_s for run in bound if run.start_s is not None]
        lead = group.first_failed or min(bound or group.runs, key=_by_slot)
        attempt = Attempt(
            AttemptId(cluster, job_id, group.incarnation),
            AttemptState.RUNNING,
            tuple(sorted({run.node for run in bound})),
            min(starts, default=float(group.incarnation)),
            gpus=sum(run.gpus for run in group.runs),
            user=user,
            stdout=log_path(lead),
            reason=next((run.waits_for for run in group.runs if run.waits_for and run.node), ""),
        )
        failed = group.first_failed
        if is_last and how_over is None and failed is not None and not settled(failed):
            yield attempt
        else:
            yield _ended(attempt, group, how_over if is_last else None, over_s)


def _ended(attempt: Attempt, group: PodGroup, how_over: RunEnd | None, over_s: float) -> Attempt:
    failed = group.first_failed
    if how_over is not None and (failed is None or how_over.state is AttemptState.TIMEOUT):
        return with_end(attempt, how_over, over_s)
    if how_over is not None and failed is not None and failed.end is not None and _only_says_deleted(failed.end):
        return with_end(attempt, how_over, failed.end_s or over_s)
    if failed is not None and failed.end is not None:
        nodes = tuple(
            sorted({r.node for r in group.runs if r.end and r.end.state is AttemptState.NODE_FAIL and r.node})
        )
        return replace(with_end(attempt, failed.end, failed.end_s or over_s), failed_nodes=nodes)
    return attempt


def _only_says_deleted(end: RunEnd) -> bool:
    return end.state is AttemptState.REQUEUED


def with_end(attempt: Attempt, end: RunEnd, end_s: float) -> Attempt:
    """The attempt as one that is over."""
    return replace(
        attempt,
        state=end.state,
        reason=end.reason,
        exit_code=end.code,
        signal=end.signal,
        end_s=max(end_s, attempt.start_s),
    )


def log_path(run: PodRun) -> str:
    """Where the log of a run is, as one word.

    >>> log_path(PodRun("team", "train-0-x", "u", "0", "", 0.0, container="main", is_previous=True))
    '/pods/team/train-0-x/main/previous'
    """
    return f"{LOGS}{run.namespace}/{run.pod}/{run.container}{PREVIOUS if run.is_previous else ''}"


def log_now(path: str, incarnation: int, groups: Iterable[PodGroup]) -> str | None:
    """Where the log at `path` of an attempt is now; None where another run's has taken its place.

    A container that is restarted in place leaves the log of the run before as its previous one, and of the runs before
    that none.
    """
    found = {group.incarnation: now for group in groups if (now := log_among(path, group.runs)) is not None}
    return found.get(incarnation) if found else path


def log_among(path: str, runs: Iterable[PodRun]) -> str | None:
    """Where the log at `path` is now, by the runs of its attempt; None where none of them is of that container."""
    places = map(log_path, runs)
    return next((now for now in places if now.removesuffix(PREVIOUS) == path.removesuffix(PREVIOUS)), None)


_Count = Annotated[int, Meta(ge=0, le=2**40)]
_Instant = Annotated[float, Meta(ge=0.0, le=MAX_INSTANT_S)]


class PastAttempt(Struct, frozen=True, omit_defaults=True):
    """An attempt of an object that was replaced, as an annotation keeps it.

    Its owner can write it, too: it names no nodes, which would be blamed for what nobody has seen.
    """

    i: _Count  # incarnation
    s: AttemptState
    b: _Instant  # began
    e: _Instant  # ended
    c: _Count = 0
    g: _Count = 0  # signal
    r: str = ""
    gpus: _Count = 0


def to_history(attempts: Iterable[Attempt]) -> str:
    """The annotation that holds attempts."""
    past = [
        PastAttempt(
            a.id.incarnation, a.state, a.start_s, a.end_s or a.start_s,
            a.exit_code, a.signal, a.reason[:200], a.gpus,
        )
        for a in attempts
        if a.state.is_over
    ]  # fmt: skip
    return msgspec.json.encode(past[-MOST_PAST:]).decode()


_HISTORY: msgspec.json.Decoder[list[PastAttempt]] = msgspec.json.Decoder(list[PastAttempt])


def from_history(text: str, job_id: str, cluster: str, user: str) -> list[Attempt]:
    """The attempts that an annotation holds, without their nodes; none where it cannot be read."""
    try:
        past: Any = _HISTORY.decode(text) if text else []
    except msgspec.DecodeError:
        return []
    return [
        Attempt(
            AttemptId(cluster, job_id, each.i), each.s, (), each.b, each.e, each.c, each.g, each.r[:200],
            each.gpus, user,
        )
        for each in past[-MOST_PAST:]
        if each.s.is_over
    ]  # fmt: skip
