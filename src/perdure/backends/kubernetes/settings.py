"""What may be set of Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """How Kubernetes is asked."""

    kubeconfig: Path | None = None
    """File with the address and credentials; not set: that of `KUBECONFIG`, the service account's inside a pod, or
    ``~/.kube/config``."""
    context: str = ""
    """Context of that file; "" takes its current one."""
    namespace: str = ""
    """The one namespace that is looked at; "" looks at all."""
    selector: str = "perdure.dev/managed=true"
    """Label selector of the jobs that are looked at. Actions touch only jobs with the label ``perdure.dev/managed``."""
    owner_label: str = ""
    """Label of a job that names its owner, where the site itself sets it; "" takes the namespace. What users may write
    themselves must not stand here: failures of two owners can move a node."""
    lease_namespace: str = "perdure"
    """Namespace of the Lease by which one service acts and no other."""
    timeout_s: Annotated[float, Meta(ge=1)] = 15.0
    """How long an answer may take."""
    launch_patience_s: Annotated[float, Meta(ge=0)] = 300.0
    """How long a pod may fail to start its container, as for an image that is not there, before its attempt counts as
    one that never started."""
