"""Actions carried out: read, compare with what the action is about, change that very version, read again on a conflict.

A Job that waits is changed in place: suspended, given other nodes, resumed. One that is over cannot be: it is replaced
under its name, by way of a suspended copy, so that it is never nowhere; `ClusterActor.look_after` finishes what a crash
left between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from perdure.backends.kubernetes import plans
from perdure.backends.kubernetes.api import ClusterApi, ObjectRefused, VersionConflict, precondition
from perdure.backends.kubernetes.ends import RememberedEnds
from perdure.backends.kubernetes.held import HeldObject
from perdure.backends.kubernetes.marks import COMMENT, DOMAIN, QUEUE, RESUME_AT, STASH, done, is_managed, was_done
from perdure.backends.kubernetes.objects import (
    Document,
    annotation,
    fields,
    instant,
    items,
    label,
    name_of,
    namespace_of,
    seconds_of,
    text,
    uid_of,
    version_of,
    whole,
)
from perdure.backends.kubernetes.picture import ReadingRules, Sighted, SightedJob, sighted_job, user_of, why_not_again
from perdure.backends.kubernetes.resources import KUEUE_WORKLOADS, NODES, PODS, ResourceKind
from perdure.backends.kubernetes.workloads import JOB, WorkloadForm, key_of, owner_key, place_of, selector_of
from perdure.errors import ClusterError, JobBusy, NotFound
from perdure.model.actions import (
    Action,
    Cancel,
    Comment,
    Exclude,
    Extend,
    Hold,
    JobAction,
    NodeAction,
    Outcome,
    OutcomeStatus,
    Preempt,
    Release,
    Requeue,
)
from perdure.model.jobs import JobState

TRIES = 5  # of a change that others come before
STEP_S = 0.2
PODS_GO_S = 10.0  # how long a call waits for pods of a suspended job
RESHAPE_S = 300.0  # after that a job whose change was not finished is resumed as it is
STASH_S = 60.0  # after that a replacement that was not finished is
LEFT_S = 60.0  # what could not be looked after is tried again so much later
DONE = Outcome(OutcomeStatus.DONE)


def _superseded(why: str) -> Outcome:
    return Outcome(OutcomeStatus.SUPERSEDED, why)


def _refused(why: str) -> Outcome:
    return Outcome(OutcomeStatus.REFUSED, why)


class ClusterActor:
    """Changes the objects of one cluster. `sight` gives what the watches hold, pods that are gone among it."""

    def __init__(
        self, api: ClusterApi, rules: ReadingRules, sight: Callable[[], Sighted], ends: RememberedEnds
    ) -> None:
        self._api, self._rules, self._sight, self._ends = api, rules, sight, ends
        self._written: dict[str, str] = {}
        self._left: dict[str, float] = {}  # by uid, what is not looked after until then

    def take_written(self) -> Mapping[str, str]:
        """The last version written of each kind, by plural, since the call before."""
        written, self._written = self._written, {}
        return written

    def perform(self, action: Action, now: float) -> Outcome:
        """Carry out an action. Raises `ClusterBusy` where it may be tried again."""
        for _ in range(TRIES):
            try:
                return self._on_node(action) if isinstance(action, NodeAction) else self._on_job(action, now)
            except VersionConflict:
                continue
            except ObjectRefused as err:
                return _refused(err.what)
        raise JobBusy(action.key, "others change it all the time", "Ask again later")

    def lookup(self, action: Action) -> Outcome | None:
        """Whether the key of an action stands in what it was to change."""
        if isinstance(action, NodeAction):
            kind, namespace, name = NODES, "", action.node
        else:
            place = place_of(action.attempt.job_id)
            if place is None:
                return None
            form, namespace, name = place
            kind = form.resource
        try:
            document = self._api.get(kind, namespace, name)
        except NotFound:
            return DONE if isinstance(action, Cancel) else None
        if isinstance(action, Cancel) and text(document, "metadata", "deletionTimestamp"):
            return DONE
        return DONE if was_done(document, action, action.key) else None

    def look_after(self, seen: Sighted, now: float) -> None:
        """Resume what was put back for later, and finish replacements that a crash cut short.

        One object of which that is not taken, such as a copy that its owner wrote, is left for a while: it may hold up
        nobody else's.
        """
        self._left = {uid: until_s for uid, until_s in self._left.items() if now < until_s <= now + LEFT_S}
        for form, view in seen.jobs.items():
            for held in view.objects:
                uid = held.once(uid_of)
                if held.gone_s is not None or not held.once(is_managed) or uid in self._left:
                    continue
                try:
                    self._look_after(form, held.document, now)
                except VersionConflict:
                    continue  # it has changed since: the next look finds it as it is then
                except (JobBusy, ClusterError, NotFound):
                    self._left[uid] = now + LEFT_S

    def _look_after(self, form: WorkloadForm, document: Document, now: float) -> None:
        if label(document, STASH):
            made_s = instant(document, "metadata", "creationTimestamp") or now
            if now - made_s > STASH_S:
                self._finish(form, document, patience_s=0.0)
        elif (due_s := seconds_of(annotation(document, RESUME_AT))) is not None and due_s <= now:
            change = {"metadata": {"annotations": {RESUME_AT: None}}, **form.suspended(False)}
            self._change(form.resource, document, change)

    # -- nodes

    def _on_node(self, action: NodeAction) -> Outcome:
        try:
            node = self._api.get(NODES, "", action.node)
        except NotFound:
            return _refused(f"no node {action.node}")
        if not was_done(node, action, action.key):
            self._change(NODES, node, plans.node_patch(node, action))
        return DONE

    # -- jobs

    def _on_job(self, action: JobAction, now: float) -> Outcome:
        place = place_of(action.attempt.job_id)
        if place is None:
            return _superseded("no job of Kubernetes has that id")
        form, namespace, name = place
        try:
            document = self._api.get(form.resource, namespace, name)
        except NotFound:
            return self._of_missing(form, namespace, name, action)
        if was_done(document, action, action.key) and isinstance(action, Requeue | Preempt | Comment):
            self._drop_stash(form, namespace, plans.stash_name(name, action.key))
            return DONE
        if not is_managed(document):
            return _refused("its owner has not opted in: label perdure.dev/managed=true")
        if (taken := action.taken(user_of(document, self._rules))) is not None:
            return taken
        if isinstance(action, Comment):
            return self._mark(form, document, action, {}, {COMMENT: action.comment})
        sighted = self._sighted(form, document, now)
        latest = sighted.latest.id.incarnation if sighted.latest is not None else 0
        if latest > action.attempt.incarnation:
            return _superseded(f"attempt {latest} exists")
        return self._change_job(form, document, sighted, action, now)

    def _change_job(
        self, form: WorkloadForm, document: Document, sighted: SightedJob, action: JobAction, now: float
    ) -> Outcome:
        state = sighted.job.state
        match action:
            case Requeue():
                return self._requeue(form, document, sighted, action, now)
            case Cancel() if not state.is_over:
                self._api.delete(form.resource, namespace_of(document), name_of(document), uid_of(document))
                return DONE
            case Preempt() if state is JobState.RUNNING:
                return self._preempt(form, document, action, now)
            case Exclude() if state.is_waiting:
                return self._reshape(form, document, action, now)
            case Hold() if state.is_waiting:
                return self._hold(form, document, action, True)
            case Release() if state.is_waiting:
                return self._hold(form, document, action, False)
            case Extend() if state is JobState.RUNNING:
                return self._extend(form, document, action)
        return _superseded(f"the job is {state}")

    def _hold(self, form: WorkloadForm, document: Document, action: Hold | Release, is_held: bool) -> Outcome:
        if not label(document, QUEUE):
            return self._mark(form, document, action, form.suspended(is_held), {RESUME_AT: None})
        admission = self._admission(document)
        if admission is None:
            return _refused("Kueue has no Workload for it yet")
        self._change(KUEUE_WORKLOADS, admission, {"spec": {"active": not is_held}})
        return self._mark(form, document, action, {}, {})

    def _preempt(self, form: WorkloadForm, document: Document, action: Preempt, now: float) -> Outcome:
        """Suspend a job, which takes its pods away; the next look resumes it."""
        if label(document, QUEUE):
            return _refused("Kueue decides whose turn it is")
        return self._mark(form, document, action, form.suspended(True), {RESUME_AT: str(now)})

    def _extend(self, form: WorkloadForm, document: Document, action: Extend) -> Outcome:
        path = {"": ("spec",), "pytorchjob": ("spec", "runPolicy")}.get(form.suffix)
        if path is None:
            return _refused("a JobSet has no walltime")
        limit = whole(fields(document, *path), "activeDeadlineSeconds")
        if limit is None or limit >= action.walltime_s:
            return DONE
        change: Any = {"activeDeadlineSeconds": int(action.walltime_s)}
        for key in reversed(path):
            change = {key: change}
        return self._mark(form, document, action, change, {})

    def _reshape(self, form: WorkloadForm, document: Document, action: Exclude, now: float) -> Outcome:
        """Give a Job that waits other nodes. Its template may change only while it is suspended and has no start time.

        Source: "Mutable Scheduling Directives" of the documentation of Jobs; Kueue resets the start time likewise.
        """
        if form is not JOB:
            return _refused(f"where the pods of a {form.resource.kind} may run is fixed when it is made")
        was_held = form.is_suspended(document) and not annotation(document, RESUME_AT)
        if not form.is_suspended(document):
            until = {RESUME_AT: str(now + RESHAPE_S)}
            document = self._change(
                form.resource, document, {"metadata": {"annotations": until}, **form.suspended(True)}
            )
        document = self._without_pods(form, document)
        if text(document, "status", "startTime"):
            change = {"metadata": precondition(document), "status": {"startTime": None}}
            document = self._api.patch(form.resource, namespace_of(document), name_of(document), change, "status")
        template = fields(document, "spec", "template")
        pods = {"template": {"spec": plans.placement_patch(template, action.exclude, action.lift)}}
        change = {"spec": {**pods, **plans.size_patch(document, action.node_count), "suspend": was_held}}
        notes = {RESUME_AT: None, **({COMMENT: action.comment} if action.comment else {})}
        return self._mark(form, document, action, change, notes)

    def _without_pods(self, form: WorkloadForm, document: Document) -> Document:
        deadline = time.monotonic() + PODS_GO_S
        while whole(document, "status", "active"):
            if time.monotonic() > deadline:
                raise JobBusy(name_of(document), "its pods have not gone yet", "Ask again later")
            time.sleep(STEP_S)
            document = self._api.get(form.resource, namespace_of(document), name_of(document))
        return document

    def _requeue(
        self, form: WorkloadForm, document: Document, sighted: SightedJob, action: Requeue, now: float
    ) -> Outcome:
        if why := why_not_again(form, document):
            return _refused(why)
        if sighted.job.state is not JobState.FAILED:
            return _superseded(f"the job is {sighted.job.state}: {sighted.job.reason}".rstrip(": "))
        if action.node_count and form is not JOB:
            return _refused(f"the size of a {form.resource.kind} is fixed")
        made = plans.replacement(form, document, action, sighted.attempts, now)
        stash = self._stash(form, plans.stash_of(form, made, action.key, self._rules.owner_label))
        self._api.delete(form.resource, namespace_of(document), name_of(document), uid_of(document))
        return self._finish(form, stash)

    def _of_missing(self, form: WorkloadForm, namespace: str, name: str, action: JobAction) -> Outcome:
        """A job that is not there: deleted, or between being deleted and made again."""
        if isinstance(action, Requeue):
            try:
                stash = self._api.get(form.resource, namespace, plans.stash_name(name, action.key))
            except NotFound:
                return _superseded("the job is gone")
            return self._finish(form, stash)
        return _superseded("the job is gone")

    def _stash(self, form: WorkloadForm, stash: Document) -> Document:
        try:
            return self._api.create(form.resource, namespace_of(stash), stash)
        except VersionConflict:  # of a try before
            return self._api.get(form.resource, namespace_of(stash), name_of(stash))

    def _finish(self, form: WorkloadForm, stash: Document, patience_s: float = PODS_GO_S) -> Outcome:
        """Make the object that a stash is a copy of, once its name is free, and drop the copy."""
        made = plans.from_stash(form, stash)
        if made is None or not self._is_of_its_owner(stash, made):
            return _refused(f"{name_of(stash)} is no copy that Perdure made")
        namespace, name = namespace_of(stash), name_of(made)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._note(form.resource, self._api.create(form.resource, namespace, made))
                break
            except VersionConflict:
                found = self._found(form, namespace, name)
            if found is not None and _keys(found) >= _keys(made):
                break
            if found is not None and not text(found, "metadata", "deletionTimestamp"):
                return self._unless_ours(form, stash, found)
            if time.monotonic() > deadline:
                raise JobBusy(name, "the job that it replaces has not gone yet", "Ask again later")
            time.sleep(STEP_S)
        self._drop_stash(form, namespace, name_of(stash))
        return DONE

    def _is_of_its_owner(self, stash: Document, made: Document) -> bool:
        """Whether a copy stands for a job of who it is of itself. Earlier releases left the label out of copies."""
        named = label(stash, self._rules.owner_label) if self._rules.owner_label else ""
        return namespace_of(made) in ("", namespace_of(stash)) and named in ("", label(made, self._rules.owner_label))

    def _unless_ours(self, form: WorkloadForm, stash: Document, found: Document) -> Outcome:
        """Somebody else's object has the name, or the old one that is still to be deleted."""
        self._drop_stash(form, namespace_of(stash), name_of(stash))
        return _superseded(f"{namespace_of(found)}/{name_of(found)} was made again by somebody else")

    def _found(self, form: WorkloadForm, namespace: str, name: str) -> Document | None:
        try:
            return self._api.get(form.resource, namespace, name)
        except NotFound:
            return None

    def _drop_stash(self, form: WorkloadForm, namespace: str, name: str) -> None:
        stash = self._found(form, namespace, name)
        if stash is not None and label(stash, STASH):
            self._api.delete(form.resource, namespace, name, uid_of(stash))

    # -- what is read and written

    def _sighted(self, form: WorkloadForm, document: Document, now: float) -> SightedJob:
        """The job with its attempts as they are now, and with those pods that only the watch has seen."""
        seen, key = self._sight(), key_of(form, document)
        pods = {uid_of(h.document): h for h in seen.pods.objects if owner_key(h.document) == key}
        _, live = self._api.list_all(PODS, namespace_of(document), labelSelector=selector_of(form, name_of(document)))
        alive = {uid_of(pod): HeldObject(pod) for pod in live if owner_key(pod) == key}
        gone = {
            uid: held if held.gone_s is not None else HeldObject(held.document, now)
            for uid, held in pods.items()
            if uid not in alive
        }
        held = [*gone.values(), *alive.values()]
        return self._ends.apply(sighted_job(form, HeldObject(document), held, seen, self._rules, now))

    def _admission(self, document: Document) -> Document | None:
        _, found = self._api.list_all(KUEUE_WORKLOADS, namespace_of(document))
        mine = (
            each
            for each in found
            if any(owner.get("uid") == uid_of(document) for owner in items(each, "metadata", "ownerReferences"))
        )
        return next(mine, None)

    def _mark(
        self, form: WorkloadForm, document: Document, action: JobAction, change: Document, notes: Document
    ) -> Outcome:
        """Change an object and leave the key of the action in it, in one write."""
        annotations = {done(action.kind): action.key, **notes}
        self._change(form.resource, document, {**change, "metadata": {"annotations": annotations}})
        return DONE

    def _change(self, kind: ResourceKind, document: Document, change: Document) -> Document:
        metadata = {**fields(change, "metadata"), **precondition(document)}
        changed = self._api.patch(kind, namespace_of(document), name_of(document), {**change, "metadata": metadata})
        return self._note(kind, changed)

    def _note(self, kind: ResourceKind, written: Document) -> Document:
        self._written[kind.plural] = version_of(written)
        return written


def _keys(document: Document) -> frozenset[str]:
    """The actions that an object says were carried out on it."""
    notes = fields(document, "metadata", "annotations")
    return frozenset(f"{k}={v}" for k, v in notes.items() if k.startswith(f"{DOMAIN}/done-"))
