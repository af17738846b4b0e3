"""The kinds that the stand-in serves, and what the API server itself does to their objects when they are written."""

from __future__ import annotations

import copy
import uuid
from dataclasses import dataclass
from typing import Any

from tests.backends.kubernetes.standin.store import ApiProblem, Document

TRACKING = "batch.kubernetes.io/job-tracking"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One kind of object, and its parts that have addresses of their own."""

    group: str
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True
    parts: tuple[str, ...] = ("status",)
    short: tuple[str, ...] = ()

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


BUILT_IN = (
    ServedKind("", "v1", "Pod", "pods", parts=("status", "log", "eviction", "binding"), short=("po",)),
    ServedKind("", "v1", "Node", "nodes", is_namespaced=False, short=("no",)),
    ServedKind("", "v1", "Namespace", "namespaces", is_namespaced=False, short=("ns",)),
    ServedKind("", "v1", "ConfigMap", "configmaps", parts=(), short=("cm",)),
    ServedKind("", "v1", "Event", "events", parts=(), short=("ev",)),
    ServedKind("", "v1", "Service", "services", short=("svc",)),
    ServedKind("", "v1", "ServiceAccount", "serviceaccounts", parts=(), short=("sa",)),
    ServedKind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",)),
    ServedKind("apps", "v1", "Deployment", "deployments", short=("deploy",)),
    ServedKind("batch", "v1", "Job", "jobs"),
    ServedKind("coordination.k8s.io", "v1", "Lease", "leases", parts=()),
    ServedKind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", parts=(), short=("netpol",)),
    ServedKind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", is_namespaced=False, parts=()),
    ServedKind(
        "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", is_namespaced=False, parts=()
    ),
    ServedKind("rbac.authorization.k8s.io", "v1", "Role", "roles", parts=()),
    ServedKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", parts=()),
)
JOB_SET = ServedKind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
PYTORCH_JOB = ServedKind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")


def custom_kinds(kueue: str) -> tuple[ServedKind, ...]:
    """The kinds of other projects; `kueue` is the version of its API that this cluster serves."""
    return JOB_SET, PYTORCH_JOB, ServedKind("kueue.x-k8s.io", kueue, "Workload", "workloads")


_MUTABLE_SCHEDULING = ("affinity", "nodeSelector", "tolerations", "schedulingGates")


def admitted(kind: ServedKind, document: Document) -> Document:
    """An object as it is when the API server has put its defaults in. Raises `ApiProblem` 422."""
    made = copy.deepcopy(document)
    made.setdefault("apiVersion", kind.group_version)
    made.setdefault("kind", kind.kind)
    metadata = made.setdefault("metadata", {})
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
    metadata["uid"] = str(uuid.uuid4())
    if kind.plural == "jobs":
        _default_job(made)
    if kind.plural in ("pods", "jobs"):
        made["status"] = {}
    return made


def _default_job(job: Document) -> None:
    spec, name = job["spec"], job["metadata"]["name"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    if spec.get("completions") is None and spec.get("completionMode") == "Indexed":
        raise invalid("jobs", name, "spec.completions: Required value: when completion mode is Indexed")
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    template = spec["template"]
    if template.get("spec", {}).get("restartPolicy") not in ("Never", "OnFailure"):
        raise invalid("jobs", name, "spec.template.spec.restartPolicy: Required value: valid values: OnFailure, Never")
    if spec.get("podFailurePolicy") and template["spec"]["restartPolicy"] != "Never":
        raise invalid("jobs", name, "spec.podFailurePolicy: needs restartPolicy Never")
    if "selector" in spec and not spec.get("manualSelector"):
        raise invalid("jobs", name, "spec.selector: Invalid value: `selector` not auto-generated")
    check_affinity(template["spec"], name)
    _own_labels(job)


def _own_labels(job: Document) -> None:
    """The selector and labels that a Job gets of its uid."""
    spec, uid, name = job["spec"], job["metadata"]["uid"], job["metadata"]["name"]
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    ours = {"controller-uid": uid, "job-name": name}
    for key, value in (*ours.items(), *((f"batch.kubernetes.io/{key}", value) for key, value in ours.items())):
        if labels.setdefault(key, value) != value:
            raise invalid("jobs", name, f"spec.template.metadata.labels: Invalid value: must be '{value}'")


def check_affinity(spec: Document, name: str) -> None:
    """The rules of node affinity that no schema says."""
    required = (
        (spec.get("affinity") or {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    if required is None:
        return
    if not required.get("nodeSelectorTerms"):
        raise invalid("jobs", name, "nodeSelectorTerms: Required value: must have at least one node selector term")
    for term in required["nodeSelectorTerms"]:
        for rule in term.get("matchFields", ()):
            if rule["key"] != "metadata.name" or len(rule.get("values", ())) != 1:
                raise invalid("jobs", name, "matchFields: Required value: must be only one value for metadata.name")


def check_change(kind: ServedKind, before: Document, after: Document) -> None:
    """What may not be changed of an object that exists. Raises `ApiProblem` 422."""
    if kind.plural != "jobs":
        return
    name, old, new = before["metadata"]["name"], before["spec"], after["spec"]
    for fixed in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "manualSelector"):
        if old.get(fixed) != new.get(fixed):
            raise invalid("jobs", name, f"spec.{fixed}: Invalid value: field is immutable")
    if old.get("completions") != new.get("completions"):
        is_elastic = old["completionMode"] == "Indexed" and new.get("completions") == new.get("parallelism")
        if not is_elastic:
            raise invalid("jobs", name, "spec.completions: Invalid value: field is immutable")
    if old["template"] == new["template"]:
        return
    may_move = old.get("suspend") and before.get("status", {}).get("startTime") is None
    if not may_move or _fixed_part(old["template"]) != _fixed_part(new["template"]):
        raise invalid("jobs", name, "spec.template: Invalid value: field is immutable")
    check_affinity(new["template"]["spec"], name)


def _fixed_part(template: Document) -> Document:
    """What "mutable scheduling directives" leaves fixed."""
    return {k: v for k, v in template["spec"].items() if k not in _MUTABLE_SCHEDULING}


def check_status_change(kind: ServedKind, before: Document, after: Document) -> None:
    """What may not be changed of a status. Raises `ApiProblem` 422."""
    if kind.plural != "jobs" or before.get("spec", {}).get("suspend"):
        return
    old, new = before.get("status", {}).get("startTime"), after.get("status", {}).get("startTime")
    if old is not None and new is None:
        raise invalid(
            "jobs", before["metadata"]["name"], "status.startTime: Required value: of a job that is not suspended"
        )


def invalid(plural: str, name: str, message: str) -> ApiProblem:
    return ApiProblem(422, "Invalid", f'{plural} "{name}" is invalid: {message}')


def group_of(kinds: tuple[ServedKind, ...], group: str, version: str) -> dict[str, Any]:
    """The discovery document of a group's version. Raises `ApiProblem` 404."""
    mine = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    if not mine:
        raise ApiProblem(404, "NotFound", f"the server could not find the requested resource {group}/{version}")
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    found = []
    for kind in mine:
        base = {"singularName": kind.kind.lower(), "namespaced": kind.is_namespaced, "kind": kind.kind}
        found.append({"name": kind.plural, **base, "verbs": verbs, "shortNames": list(kind.short)})
        for part in kind.parts:
            about = {"kind": "Eviction", "group": "policy", "version": "v1"} if part == "eviction" else {}
            found.append(
                {"name": f"{kind.plural}/{part}", **base, "verbs": ["create", "get", "patch", "update"], **about}
            )
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": mine[0].group_version, "resources": found}
