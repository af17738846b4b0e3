"""Telling Perdure's service of what happens to a task, where the environment says how to reach it.

It is the owner's word, weighed as such, and never waited for: a service that is away costs a few seconds at the end.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

_WAIT_S = 5.0


class Raiser:
    """Raises exceptions for one job."""

    def __init__(self, job_id: str, tell: Callable[..., Any] | None) -> None:
        self._job_id, self._tell = job_id, tell
        self._threads: list[threading.Thread] = []

    def raise_(self, type_: str, *, severity: int, note: str) -> None:
        """Tell the service, in the background; nothing is raised here, whatever becomes of it."""
        if self._tell is None:
            return
        thread = threading.Thread(target=self._send, args=(self._tell, type_, severity, note), daemon=True)
        thread.start()
        self._threads.append(thread)

    def finish(self) -> None:
        """Wait a little for what is still on its way."""
        for thread in self._threads:
            thread.join(_WAIT_S)

    def _send(self, tell: Callable[..., Any], type_: str, severity: int, note: str) -> None:
        with suppress(Exception):  # of a courtesy no failure matters
            tell(type_, severity=severity, job=self._job_id, note=note)


def teller(environment: Mapping[str, str]) -> Callable[..., Any] | None:
    """``perdure.client.raise_exception`` where there is a service to tell; None elsewhere."""
    if "PERDURE_SOCKET" not in environment and not {"PERDURE_URL", "PERDURE_TOKEN"} <= environment.keys():
        return None
    try:
        client = importlib.import_module("perdure.client")
    except ImportError:
        return None
    return getattr(client, "raise_exception", None)
