"""Laws of folding: the same fault, told again, is one exception; another is not, nor is the site's word a guest's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sqlite3 import Connection
from typing import Any

from perdure.coordination.chain_state import Chain
from perdure.coordination.record import ExceptionRecord, Scope
from perdure.service.access.auth import Identity, Role
from tests.dst.broken import must

OF_THE_SERVICE = "perdure"


class Folding:
    """Remembers who told of each exception first."""

    def __init__(self, db: Connection, latest: Callable[[str], int]) -> None:
        """`latest` tells the incarnation of a job that the service knows."""
        self._db, self._latest = db, latest
        self._first = {}  # identities by exception id
        self._seen: Mapping[str, ExceptionRecord] | None = None

    def counted(self) -> tuple[int, int]:
        """How many exceptions and actions there are."""
        return self._db.execute("SELECT (SELECT count(*) FROM exceptions), (SELECT count(*) FROM actions)").fetchone()

    def check_told(self, value: Mapping[str, Any], by: Identity, became: ExceptionRecord) -> None:
        """What somebody's word became is about the same, and the site's word is not a guest's."""
        about, wanted = became.subject, value["subject"]
        must(became.type == value["type"], "what is folded is of one type", became.id, value)
        must(about.resource == wanted.get("resource", ""), "what is folded is of one resource", became.id, value)
        if became.scope is not Scope.GLOBAL:
            same = (about.job_id, about.nodes) == (wanted.get("job", ""), tuple(wanted.get("node", ())))
            must(same, "what is folded is of one job and of the same nodes", became.id, value)
            latest = self._latest(about.job_id) if about.job_id else 0
            must(became.incarnation == latest, "what is folded is of one start", became.id, latest)
        if became.id.endswith(value["id"]):
            self._first.setdefault(became.id, by)
        first = self._first.get(became.id)
        is_guests = first is not None and first.role is not Role.OPERATOR and by.role is Role.OPERATOR
        must(not is_guests, "the site's word is not folded into a guest's", value, became.id)

    def check_open(self, chain: Chain) -> None:
        """Of equal faults that are on their way, each is worse than the one before."""
        if chain.open is self._seen:
            return
        self._seen = chain.open
        worst: dict[Any, Any] = {}
        for record in chain.open.values():
            if record.detected_by == OF_THE_SERVICE:
                continue
            about = record.subject
            of_job = () if record.scope is Scope.GLOBAL else (about.job_id, record.incarnation, about.nodes)
            fault = (record.type, about.resource or about.nodes, *of_job)
            if fault in worst:
                must(record.severity < worst[fault].severity, "equal faults are one", worst[fault].id, record.id)
            worst[fault] = record
