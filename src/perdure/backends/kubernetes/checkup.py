"""What `perdure doctor` checks of a Kubernetes cluster: its answer, what it serves, and what the service may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.backends.kind import ActingService, CheckResult, Checkup, Mark
from perdure.backends.kubernetes.api import ClusterApi
from perdure.backends.kubernetes.lease import LEASE
from perdure.backends.kubernetes.marks import MANAGED
from perdure.backends.kubernetes.objects import uid_of
from perdure.backends.kubernetes.resources import (
    JOB_SETS,
    JOBS,
    KUEUE_WORKLOADS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PYTORCH_JOBS,
    ResourceKind,
)
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.errors import PerdureError

OLDEST, TESTED = (1, 28), (1, 37)
MANIFEST = "Apply deploy/kubernetes: kubectl apply -k deploy/kubernetes"
LOOKS = (
    (JOBS, "", ("list", "watch")),
    (PODS, "", ("list", "watch")),
    (PODS, "log", ("get",)),
    (NODES, "", ("list", "watch")),
)
ACTS = (
    (JOBS, "", ("get", "create", "patch", "delete")),
    (JOBS, "status", ("patch",)),
    (NODES, "", ("get", "patch")),
)


def check_cluster(settings: KubernetesSettings, holder: Callable[[str], ActingService]) -> Checkup:
    """Ask the cluster; one line a finding. Raises `ConfigError` where the settings lead to no cluster."""
    api = ClusterApi.of(settings)
    try:
        version = api.version()
    except PerdureError as err:
        return Checkup([CheckResult(Mark.FAIL, f"{api.address} does not answer: {err.what}", err.fix)], answered=False)
    try:
        return Checkup(list(_findings(api, settings, version, holder)), answered=True)
    except PerdureError as err:
        return Checkup([CheckResult(Mark.FAIL, err.what, err.fix)], answered=True)
    finally:
        api.close()


def _findings(
    api: ClusterApi, settings: KubernetesSettings, version: str, holder: Callable[[str], ActingService]
) -> Iterator[CheckResult]:
    yield check_version(version)
    served = [kind for kind in (JOB_SETS, PYTORCH_JOBS, KUEUE_WORKLOADS) if api.serves(kind)]
    names = ", ".join(kind.kind for kind in (JOBS, *served))
    yield CheckResult(Mark.OK, f"watches {names} with the label {settings.selector or '(any)'}")
    yield from _rights(api, settings.namespace, served)
    space = settings.lease_namespace
    if not all(
        api.may(verb, LEASES, space, name=name) for verb, name in (("create", ""), ("get", LEASE), ("patch", LEASE))
    ):
        what = f"may not write Leases in namespace {space}"
        yield CheckResult(Mark.FAIL, f"{what}: it cannot be the only one that acts", MANIFEST)
    _, jobs = api.list_all(JOBS, settings.namespace, labelSelector=f"{MANAGED}=true")
    if not jobs:
        yield CheckResult(
            Mark.WARN, "no Job has opted in", f"Label what Perdure may recover: kubectl label job NAME {MANAGED}=true"
        )
    else:
        yield CheckResult(Mark.OK, f"{len(jobs)} Jobs have opted in")
    acting = holder(f"kubernetes {uid_of(api.get(NAMESPACES, '', 'kube-system'))}")
    if acting.told and not acting.is_own:
        yield CheckResult(
            Mark.WARN, f"another service acts on this cluster: {acting.told}", "Stop it before perdure up --act"
        )


def check_version(version: str) -> CheckResult:
    """Whether this version of Kubernetes is among those whose published API the backend conforms to.

    >>> check_version("v1.34.1").mark, check_version("v1.20.0").mark
    (<Mark.OK: 'ok'>, <Mark.WARN: 'warn'>)
    """
    parts = [part for part in version.removeprefix("v").split(".")[:2] if part.isdecimal()]
    number = tuple(map(int, parts))
    if OLDEST <= number <= TESTED:
        return CheckResult(Mark.OK, f"Kubernetes {version}")
    what = f"the API of Kubernetes {version} was not checked; 1.{OLDEST[1]} to 1.{TESTED[1]} were"
    return CheckResult(Mark.WARN, what, "Watch first, without --act")


def _rights(api: ClusterApi, namespace: str, served: list[ResourceKind]) -> Iterator[CheckResult]:
    others = [(kind, "", ("list", "watch")) for kind in served]
    for what, wanted, mark in (("look at", (*LOOKS, *others), Mark.FAIL), ("act on", ACTS, Mark.WARN)):
        missing = [
            f"{verb} {kind.plural}{f'/{sub}' if sub else ''}"
            for kind, sub, verbs in wanted
            for verb in verbs
            if not api.may(verb, kind, namespace if kind.is_namespaced else "", sub)
        ]
        if missing:
            yield CheckResult(mark, f"may not {', '.join(missing)}", MANIFEST)
        else:
            yield CheckResult(Mark.OK, f"has all rights to {what} jobs and nodes")
