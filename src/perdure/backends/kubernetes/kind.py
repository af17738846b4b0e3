"""Kubernetes as a kind of resource manager: how a cluster is reached, and whether it is ready to be acted on."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from perdure.backends.kind import ActingService, BackendKind, Checkup, ManagerIdentity
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.backends.protocol import Backend
from perdure.installation import need

if TYPE_CHECKING:
    from perdure.backends.kubernetes.backend import KubernetesBackend

LOOK_EVERY_S = 5.0  # a look costs the API server one small question: the rest is watched


class KubernetesKind(BackendKind[KubernetesSettings]):
    """The cluster of a kubeconfig, or the one in which the service runs as a pod."""

    name, label, says = "kubernetes", "Kubernetes backend", "the one of the kubeconfig"
    settings = KubernetesSettings

    @contextmanager
    def open(self, settings: KubernetesSettings, cluster: str, state: Path) -> Iterator[Backend]:
        need("k8s", "Kubernetes")
        from perdure.backends.kubernetes.api import ClusterApi
        from perdure.backends.kubernetes.backend import KubernetesBackend

        backend = KubernetesBackend(cluster, ClusterApi.of(settings), settings, holder_of(state))
        try:
            yield backend
        finally:
            backend.close()

    def look_every_s(self, settings: KubernetesSettings) -> float:  # noqa: ARG002
        return LOOK_EVERY_S

    def manager(self, settings: KubernetesSettings, backend: Backend) -> ManagerIdentity | None:  # noqa: ARG002
        name = cast("KubernetesBackend", backend).identity()
        return ManagerIdentity(name, f"kubernetes {name}")

    def checkup(
        self,
        settings: KubernetesSettings,
        cluster: str,  # noqa: ARG002
        state: Path,  # noqa: ARG002
        holder: Callable[[str], ActingService],
    ) -> Checkup | None:
        need("k8s", "Kubernetes")
        from perdure.backends.kubernetes.checkup import check_cluster

        return check_cluster(settings, holder)


def holder_of(state: Path) -> str:
    """What names this service in the Lease: its machine and its state directory, the same after a restart."""
    return f"{os.environ.get('HOSTNAME') or socket.gethostname()}:{state.absolute()}"
