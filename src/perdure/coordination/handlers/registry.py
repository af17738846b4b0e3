"""The names by which a playbook calls handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.coordination.handlers import job, node, quota, shared
from perdure.coordination.record import ExceptionRecord
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.coordination.site import SiteFacts

_LEFT = handled("written down; nothing is to be done")
_NOBODY = declined("nobody took it: a person is needed")

Handler = Callable[[ExceptionRecord, SiteFacts, float], Ruling]


def leave(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:  # noqa: ARG001
    """Nothing is to be done: it is written down, and that is all."""
    return _LEFT


def escalate(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:  # noqa: ARG001
    """Nobody took it: a person is needed."""
    return _NOBODY


HANDLERS: Mapping[str, Handler] = {
    "count-starts": job.count_starts,
    "drain": node.drain,
    "escalate": escalate,
    "fail-task": job.fail_task,
    "grant-time": job.grant_time,
    "hold-newcomers": shared.hold_newcomers,
    "hold-waiting": shared.hold_waiting,
    "leave": leave,
    "move-least": quota.move_least,
    "name-signal": job.name_signal,
    "release-held": shared.release_held,
    "retry": job.retry,
    "set-down": node.set_down,
    "throttle": shared.throttle,
}
