"""The registry of backends: each kind of resource manager by its name. A new one is a folder and a line here."""

from __future__ import annotations

from typing import Any

from perdure.backends.condor.kind import CondorKind
from perdure.backends.kind import BackendKind
from perdure.backends.kubernetes.kind import KubernetesKind
from perdure.backends.local.kind import LocalKind
from perdure.backends.slurm.kind import SlurmKind

_ALL: tuple[BackendKind[Any], ...] = (LocalKind(), SlurmKind(), KubernetesKind(), CondorKind())
BACKENDS: dict[str, BackendKind[Any]] = {kind.name: kind for kind in _ALL}
