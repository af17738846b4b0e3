"""A Kubernetes cluster as a `Backend`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.backends.kubernetes.actor import ClusterActor
from perdure.backends.kubernetes.api import ClusterApi
from perdure.backends.kubernetes.attempts import log_among, log_now, log_path
from perdure.backends.kubernetes.ends import RememberedEnds
from perdure.backends.kubernetes.held import NOTHING_HELD, MirrorView
from perdure.backends.kubernetes.lease import SoleActor
from perdure.backends.kubernetes.mirror import Mirror
from perdure.backends.kubernetes.objects import Document, fields, items, uid_of
from perdure.backends.kubernetes.output import read_output
from perdure.backends.kubernetes.picture import QuietJob, ReadingRules, Sighted, SightedJob, jobs_in, nodes_in
from perdure.backends.kubernetes.resources import KUEUE_WORKLOADS, NAMESPACES, NODES, PODS
from perdure.backends.kubernetes.runs import PodRun, logs_now
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.backends.kubernetes.workloads import FORMS, JOB, owner_key, place_of, selector_of
from perdure.backends.protocol import TAIL_BYTES
from perdure.errors import ConfigError, PerdureError
from perdure.model.actions import Action, Comment, Outcome
from perdure.model.jobs import Attempt
from perdure.model.observation import MANAGER, Observation
from perdure.model.output import Absent, LogMark, Output, Why

FIRST_LIST_S = 20.0  # how long the first look waits for the lists
READ_TRIES = 3  # of a log whose container is started again while it is read
WRITE_BACK_S = 3.0  # how long a look waits for what was written before it


class KubernetesBackend:
    """One cluster, watched in threads of its own until it is closed."""

    def __init__(self, cluster: str, api: ClusterApi, settings: KubernetesSettings, holder: str) -> None:
        self.cluster = cluster
        self._api = api
        self._rules = ReadingRules(cluster, settings.owner_label, settings.launch_patience_s)
        self._settings = settings
        self._mirrors: dict[str, Mirror] = {}  # by plural
        self._lease = SoleActor(api, settings.lease_namespace, holder)
        self._ends = RememberedEnds()
        self._actor = ClusterActor(api, self._rules, self._sight, self._ends)
        self._quiet: dict[str, QuietJob] = {}
        self._seen: dict[str, SightedJob] = {}  # by job id, of the last look

    def identity(self) -> str:
        """What tells this cluster from all others: the uid of its first namespace. Raises `ConfigError`."""
        try:
            return uid_of(self._api.get(NAMESPACES, "", "kube-system"))
        except PerdureError as err:
            fix = "Check the kubeconfig with `kubectl get namespace kube-system`, and deploy/kubernetes/rbac.yaml"
            raise ConfigError(self._api.address, f"the cluster cannot be asked: {err.what}", fix) from err

    def observe(self, since_s: float) -> Observation:
        """Look once, at what the watches have brought. One question tells whether the API server answers at all."""
        now = time.time()
        try:
            self._api.version()
            self._watch()
        except PerdureError as err:
            return Observation(self.cluster, now, unseen={MANAGER: err.what})
        for plural, version in self._actor.take_written().items():
            if plural in self._mirrors:
                self._mirrors[plural].reach(version, WRITE_BACK_S)
        views = {plural: mirror.view() for plural, mirror in self._mirrors.items()}
        trouble = "; ".join(f"{plural}: {view.trouble}" for plural, view in views.items() if view.trouble)
        if trouble:
            return Observation(self.cluster, now, unseen={MANAGER: trouble})
        seen = _sighted(views)
        sighted = [self._ends.apply(each) for each in jobs_in(seen, self._rules, now, self._quiet)]
        for each in sighted:
            self._ends.remember(each)
        self._seen = {each.job.job_id: each for each in sighted}
        if self._lease.is_held:
            self._look_after(seen, now)
        attempts = {
            attempt.id: attempt
            for each in sighted
            for attempt in each.attempts
            if attempt.end_s is None or attempt.end_s >= since_s
        }
        return Observation(
            self.cluster,
            now,
            tuple(each.job for each in self._seen.values()),
            tuple(attempts.values()),
            tuple(nodes_in(seen)),
        )

    def output(self, attempt: Attempt, max_bytes: int = TAIL_BYTES, known: Sequence[LogMark] = ()) -> Output:  # noqa: ARG002  (`log_now` tells runs of a pod apart)
        """The logs of an attempt's pods, as far as the cluster still has them."""
        sighted = self._seen.get(attempt.id.job_id)
        groups = sighted.groups if sighted is not None else ()
        runs = next((group.runs for group in groups if group.incarnation == attempt.id.incarnation), ())
        path = log_now(attempt.stdout, attempt.id.incarnation, groups)
        for _ in range(READ_TRIES):
            if path is None:
                break
            ranks = [(self._who(attempt.id.job_id, run), log_path(run)) for run in runs if run.node and len(runs) > 1]
            read = read_output(self._api, path, ranks, max_bytes)
            now = logs_now(runs, self._pods_of(attempt.id.job_id) if runs else ())
            if now == runs:
                return read
            runs, path = now, log_among(path, now)
        return Output(absent=(Absent(attempt.stdout, Why.MISSING, "its container was restarted again since"),))

    def _who(self, job_id: str, run: PodRun) -> str:
        """The rank of a pod of a job that was seen; its name where that is not known."""
        place, sighted = place_of(job_id), self._seen.get(job_id)
        rank = place[0].rank(sighted.document, run.slot) if place is not None and sighted is not None else None
        return run.pod if rank is None else str(rank)

    def _pods_of(self, job_id: str) -> Sequence[Document]:
        """A job's pods as they are now: since the last look a container may have been started again."""
        place = place_of(job_id)
        if place is None:
            return ()
        form, namespace, name = place
        return self._api.list_all(PODS, namespace, labelSelector=selector_of(form, name))[1]

    def perform(self, action: Action) -> Outcome:
        """Carry out an action, as the only service that acts on this cluster."""
        self._lease.hold(time.time())
        return self._actor.perform(action, time.time())

    def write_comments(self, actions: Sequence[Comment]) -> list[Outcome]:
        """Carry out comments, one after the other."""
        return [self.perform(action) for action in actions]

    def lookup(self, action: Action) -> Outcome | None:
        """Whether an action left its key in what it was to change."""
        return self._actor.lookup(action)

    def close(self) -> None:
        """End the watches, and let another service act."""
        self._lease.release()
        for mirror in self._mirrors.values():
            mirror.close()
        self._api.close()

    def _sight(self) -> Sighted:
        return _sighted({plural: mirror.view() for plural, mirror in self._mirrors.items()})

    def _look_after(self, seen: Sighted, now: float) -> None:
        """Finish what an action left for later, as the one who acts; trouble with it is the next look's."""
        try:
            self._lease.hold(now)
            self._actor.look_after(seen, now)
        except PerdureError:
            return

    def _watch(self) -> None:
        """Begin to watch, the first time; kinds that the cluster does not have are left out."""
        if self._mirrors:
            return
        space, selector = self._settings.namespace, self._settings.selector
        mirrors = [
            Mirror(self._api, form.resource, space, selector)
            for form in FORMS.values()
            if form is JOB or self._api.serves(form.resource)
        ]
        mirrors += [Mirror(self._api, PODS, space, keep=_needed_of_pod), Mirror(self._api, NODES, keep=_needed_of_node)]
        if self._api.serves(KUEUE_WORKLOADS):
            mirrors.append(Mirror(self._api, KUEUE_WORKLOADS, space))
        self._mirrors = {mirror.kind.plural: mirror for mirror in mirrors}
        for mirror in mirrors:
            mirror.start()
        for mirror in mirrors:
            mirror.wait_listed(FIRST_LIST_S)


def _sighted(views: Mapping[str, MirrorView]) -> Sighted:
    forms = {form: views[form.resource.plural] for form in FORMS.values() if form.resource.plural in views}
    others = (views.get(kind.plural, NOTHING_HELD) for kind in (PODS, NODES, KUEUE_WORKLOADS))
    return Sighted(forms, *others)


def _needed_of_pod(pod: dict[str, Any]) -> Document:
    """A pod of a job as far as it is read; of any other the node, and the GPUs that it has there."""
    spec, metadata = fields(pod, "spec"), fields(pod, "metadata")
    small = {"metadata": {key: metadata.get(key) for key in ("uid", "resourceVersion", "name", "namespace")}}
    kinds = ("containers", "initContainers")
    resources = {
        kind: [{"name": each.get("name"), "resources": each.get("resources")} for each in items(spec, kind)]
        for kind in kinds
    }
    small |= {
        "spec": {"nodeName": spec.get("nodeName"), **resources},
        "status": {"phase": fields(pod, "status").get("phase")},
    }
    if not owner_key(pod):
        return small
    return {
        **small,
        "metadata": {k: v for k, v in metadata.items() if k != "managedFields"},
        "status": fields(pod, "status"),
    }


def _needed_of_node(node: dict[str, Any]) -> Document:
    metadata, status = fields(node, "metadata"), fields(node, "status")
    kept = ("conditions", "allocatable")
    return {
        "metadata": {k: v for k, v in metadata.items() if k != "managedFields"},
        "spec": node.get("spec"),
        "status": {key: status.get(key) for key in kept},
    }
