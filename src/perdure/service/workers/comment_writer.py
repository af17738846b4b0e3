"""Writes what was decided into jobs' own records, alongside the executor: accounting may take long, and nobody
waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.backends.protocol import Commented
from perdure.errors import ClusterBusy, PerdureError
from perdure.model.actions import Comment, Outcome, OutcomeStatus
from perdure.model.events import ActionEnded
from perdure.service.store.journal import ActionRow, ActionState, Journal
from perdure.service.workers.executor import ExecutorSettings, GateRuling, Used, rule

COMMENTS_EVERY_S = 10.0
MAX_COMMENTS = 30  # written at a time: slurmdbd under load was seen to take 0.4 s for each
NO_ANSWER = "no answer came in time: the line may be there"  # how one ends that may have been written


class CommentWriter:
    """Writes planned comments, many at a time. Called from one thread, which need not be the executor's."""

    def __init__(self, journal: Journal, backend: Commented, settings: ExecutorSettings) -> None:
        self._journal, self._backend, self._settings = journal, backend, settings

    def write_due(self, now: float) -> list[ActionEnded]:
        """Write what may be written; return what came to its end.

        What no answer came to is written again: it is the same line. Nobody can look up whether it was written, so it
        counts as begun until then.
        """
        ended: list[ActionEnded] = []
        due: list[ActionRow] = []
        for row in _comments([*self._journal.open_intents(), *self._journal.planned()]):
            if len(due) == MAX_COMMENTS:
                break
            settings = self._settings
            outside = settings.scope.refuses(row.action, self._journal.job_of(row.action), None)
            ruled = rule(row, now, settings.armed, settings.stopped, settings.caps, Used(), outside=outside)
            match ruled.ruling:
                case GateRuling.GO:
                    due.append(row)
                case GateRuling.WAIT:
                    self._journal.note(row, ruled.why)
                case GateRuling.EXPIRE:
                    why = NO_ANSWER if row.state is ActionState.STARTED else ruled.why
                    ended += self._end(row, ActionState.EXPIRED, why, now)
                case GateRuling.SHADOW | GateRuling.REFUSE:
                    ended += self._end(row, ActionState.SHADOW, ruled.why, now)
        return [*ended, *self._write(due, now)]

    def _write(self, due: Sequence[ActionRow], now: float) -> list[ActionEnded]:
        begun = [row.begun() for row in due if row.state is ActionState.STARTED or self._journal.begin(row.key, now)]
        actions = [row.action for row in begun if isinstance(row.action, Comment)]
        if not actions:
            return []
        try:
            outcomes = self._backend.write_comments(actions)
        except ClusterBusy:
            return []
        except PerdureError as err:
            outcomes = [Outcome(OutcomeStatus.REFUSED, str(err))] * len(begun)
        ends = zip(begun, outcomes, strict=True)
        return [end for row, said in ends for end in self._end(row, ActionState.of(said.status), said.detail, now)]

    def _end(self, row: ActionRow, state: ActionState, detail: str, now: float) -> list[ActionEnded]:
        end = self._journal.finish(row, state, detail, now)
        return [end] if end else []


def _comments(rows: Sequence[ActionRow]) -> list[ActionRow]:
    return [row for row in rows if isinstance(row.action, Comment)]
