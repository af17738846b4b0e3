"""One service acts on a cluster: the one that holds a Lease, which lapses where nobody renews it.

Whether another's lease has lapsed is told by this machine's own clock, from when its last renewal was seen here: clocks
of two machines may differ. Source: the leader election of client-go.
"""

from __future__ import annotations

import threading
import time

from perdure.backends.kubernetes.api import ClusterApi, VersionConflict, precondition
from perdure.backends.kubernetes.objects import Document, fields, stamp, text, whole
from perdure.backends.kubernetes.resources import LEASES
from perdure.errors import ClusterBusy, NotFound, PerdureError

LEASE = "perdure"
DURATION_S = 60
RENEW_S = 20.0


class SoleActor:
    """The right to act on a cluster. `holder` tells this service from all others."""

    def __init__(self, api: ClusterApi, namespace: str, holder: str) -> None:
        self._api, self._namespace, self._holder = api, namespace, holder
        self._lock = threading.Lock()
        self._renewed_s: float | None = None  # monotonic; None where it is not held
        self._others: tuple[str, str, float] | None = None  # holder, its renewal, and when that was first seen here

    @property
    def is_held(self) -> bool:
        return self._renewed_s is not None

    def hold(self, now: float) -> None:
        """Take or renew the lease. Raises `ClusterBusy` while another service has it."""
        with self._lock:
            if self._renewed_s is not None and time.monotonic() - self._renewed_s < RENEW_S:
                return
            began_s = time.monotonic()
            self._renewed_s = None
            try:
                self._take(now)
            except VersionConflict as err:
                raise ClusterBusy(LEASE, "another service takes the lease at this moment", "Ask again later") from err
            self._renewed_s = began_s

    def release(self) -> None:
        """Let go of it, where it is held; if that fails it lapses."""
        if not self.is_held:
            return
        self._renewed_s = None
        try:
            lease = self._api.get(LEASES, self._namespace, LEASE)
            if text(lease, "spec", "holderIdentity") == self._holder:
                change = {"metadata": precondition(lease), "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
                self._api.patch(LEASES, self._namespace, LEASE, change)
        except PerdureError:
            return

    def _take(self, now: float) -> None:
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": DURATION_S, "renewTime": stamp(now)}
        try:
            lease = self._api.get(LEASES, self._namespace, LEASE)
        except NotFound:
            document = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": LEASE, "namespace": self._namespace},
                "spec": {**spec, "acquireTime": stamp(now), "leaseTransitions": 0},
            }
            self._api.create(LEASES, self._namespace, document)
            return
        holder = text(lease, "spec", "holderIdentity")
        if holder not in ("", self._holder):
            self._wait_for(holder, lease)
        if holder != self._holder:
            turns = whole(lease, "spec", "leaseTransitions") or 0
            spec |= {"acquireTime": stamp(now), "leaseTransitions": turns + 1}
        self._api.patch(LEASES, self._namespace, LEASE, {"metadata": precondition(lease), "spec": spec})

    def _wait_for(self, holder: str, lease: Document) -> None:
        renewal = text(lease, "spec", "renewTime")
        if self._others is None or self._others[:2] != (holder, renewal):
            self._others = (holder, renewal, time.monotonic())
        lapses_s = self._others[2] + float(whole(fields(lease, "spec"), "leaseDurationSeconds") or DURATION_S)
        if time.monotonic() < lapses_s:
            what = f"{holder} acts on this cluster (Lease {self._namespace}/{LEASE})"
            raise ClusterBusy(LEASE, what, "Stop that service, or wait until its lease lapses")
