"""Listening to the service for what it asks of this job: one launcher of a start does, for all.

Looked at are the exceptions ``job.pause``, ``job.throttle`` and ``job.move`` about it, each as long as the exception
that it follows from goes on. The stream of events says when to look; every look sees all that is asked, so a stream
that breaks costs some seconds and nothing else.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.errors import NotFound, PerdureError
from perdure.job import requested
from perdure.job.identity import Start, service_job_of
from perdure.job.requested import MOVE, PAUSE, RENEWED_S, THROTTLE, Request
from perdure.job.service_report import has_service

if TYPE_CHECKING:
    from perdure.client import Service

AGAIN_S = 15.0  # until a stream that broke off is taken up
KINDS = {f"job.{kind}": kind for kind in (PAUSE, THROTTLE, MOVE)}
LATEST = 20  # exceptions that are looked at
_NO_ANSWER = (PerdureError, LookupError, TypeError, ValueError)


def listen(start: Start, path: Path, environment: Mapping[str, str]) -> None:
    """Begin to keep this file for a start, in the background; does nothing where the environment names no service."""
    if has_service(environment):
        from perdure.client import Service  # only here: most jobs have no way to a service, and it takes its time

        with suppress(PerdureError):
            Listener(Service.of(environment), service_job_of(environment), start, path).start()


class Listener:
    """Keeps one file saying what is asked of a start.

    It never fails: without a service, or with one that answers what it should not, nothing is asked.
    """

    def __init__(self, service: Service, job: str, start: Start, path: Path) -> None:
        self._service, self._job, self._path = service, job, path
        self._incarnation = start.service_incarnation
        self._requests: tuple[Request, ...] = ()
        self._count, self._looked_s = time.time_ns(), -math.inf  # no count of an earlier writer comes again

    def start(self) -> None:
        threading.Thread(target=self._listen, name="listening", daemon=True).start()

    def _listen(self) -> None:
        from urllib.parse import urlencode  # only where there is a service, as below

        query = urlencode({"kind": "exception_changed", "job_id": self._job})
        while True:
            with suppress(*_NO_ANSWER):
                for _, _, data in self._service.listen(f"/events/stream?{query}"):  # also now and then with no data
                    if data is not None or self._requests or time.monotonic() - self._looked_s > RENEWED_S:
                        self._look()
            with suppress(*_NO_ANSWER):  # listeners may be too many: then it is looked at now and then
                self._look()
            time.sleep(AGAIN_S * (1 + os.getpid() % 100 / 100))  # not all jobs of a site at once

    def _look(self) -> None:
        """Learn what is asked now, and write it down."""
        self._requests = tuple(self._asked())
        self._looked_s = time.monotonic()
        self._count += 1
        with suppress(OSError):
            requested.write(self._path, self._requests, self._count)

    def _asked(self) -> Iterator[Request]:
        """Raises `PerdureError`."""
        from urllib.parse import urlencode

        query = urlencode({"job_id": self._job, "type": list(KINDS), "limit": LATEST}, doseq=True)
        is_over: dict[str, bool] = {}
        for record in self._service.ask("GET", f"/exceptions?{query}")["items"]:
            cause = str(record.get("cause", ""))
            if record["type"] not in KINDS or self._incarnation not in (0, record["incarnation"]) or not cause:
                continue
            if cause not in is_over:
                is_over[cause] = self._is_over(cause)
            if not record["outcome"] and not is_over[cause]:
                yield Request(record["id"], KINDS[record["type"]], _said(record))

    def _is_over(self, exception_id: str) -> bool:
        from urllib.parse import quote

        try:
            return bool(self._service.ask("GET", f"/exceptions/{quote(exception_id, safe='')}")["outcome"])
        except NotFound:
            return True


def _said(record: Mapping[str, Any]) -> str:
    """Why, and what else the service has said of it: how many bytes are to be moved."""
    more = [f"{note['key']} {note['value']}" for note in record["annotations"] if note["key"] in ("bytes", "resource")]
    return ", ".join([str(record["note"]), *more])
