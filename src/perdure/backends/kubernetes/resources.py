"""The kinds of objects that are read or written, and their addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One kind of object.

    >>> JOBS.path("team", "train", "status")
    '/apis/batch/v1/namespaces/team/jobs/train/status'
    """

    group: str  # "" for the core
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True
    older: tuple[str, ...] = ()  # versions to use, in this order, where the cluster does not serve `version`

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def versions(self) -> tuple[ResourceKind, ...]:
        """The kind in each version that Perdure reads, the newest first."""
        return (self, *(replace(self, version=version, older=()) for version in self.older))

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """The path of an object, or of all of them where `name` is ""; of all namespaces where that is "", too."""
        parts = ["", "apis" if self.group else "api", self.api_version]
        if namespace and self.is_namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, sub))])


JOBS = ResourceKind("batch", "v1", "Job", "jobs")
JOB_SETS = ResourceKind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
PYTORCH_JOBS = ResourceKind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
KUEUE_WORKLOADS = ResourceKind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads", older=("v1beta1",))
PODS = ResourceKind("", "v1", "Pod", "pods")
NODES = ResourceKind("", "v1", "Node", "nodes", is_namespaced=False)
NAMESPACES = ResourceKind("", "v1", "Namespace", "namespaces", is_namespaced=False)
LEASES = ResourceKind("coordination.k8s.io", "v1", "Lease", "leases")
