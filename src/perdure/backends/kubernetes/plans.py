"""What to change for an action: objects and patches. Pure."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure.backends.kubernetes.attempts import to_history
from perdure.backends.kubernetes.marks import (
    COMMENT,
    DRAINED,
    GIVEN_UP,
    HISTORY,
    HOSTNAME,
    MANAGED,
    NODE_REASON,
    QUEUE,
    RESUME_AT,
    STASH,
    STASHED,
    done,
)
from perdure.backends.kubernetes.objects import (
    Document,
    annotation,
    fields,
    items,
    label,
    name_of,
    namespace_of,
    text,
    texts,
    whole,
)
from perdure.backends.kubernetes.picture import FIELD_NODE
from perdure.backends.kubernetes.workloads import JOB, WorkloadForm
from perdure.model.actions import Down, Drain, NodeAction, Requeue
from perdure.model.jobs import Attempt

_OWN_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


# -- jobs


def terms_without(template: Document, exclude: Iterable[str], lift: Iterable[str]) -> list[dict[str, Any]]:
    """The terms of a template's required node affinity that leave out more nodes, and no more those in `lift`.

    Terms are alternatives, so each leaves out all of them. A node is left out by its name, not by its host name's
    label, which may differ.
    """
    lifted, added = set(lift), list(dict.fromkeys(exclude))
    terms = copy.deepcopy(items(template, "spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms"))
    changed = []
    for term in terms or [{}]:
        others = [rule for rule in items(term, "matchFields") if not _leaves_out(rule, lifted | set(added))]
        # Kubernetes takes one value a rule here.
        rules = [*others, *({"key": FIELD_NODE, "operator": "NotIn", "values": [name]} for name in added)]
        left = {**term, "matchFields": rules} if rules else {k: v for k, v in term.items() if k != "matchFields"}
        if left:
            changed.append(left)
    return changed


def _leaves_out(rule: Mapping[str, Any], names: set[str]) -> bool:
    is_ours = rule.get("key") == FIELD_NODE and rule.get("operator") == "NotIn"
    return is_ours and not names.isdisjoint(texts(rule, "values"))


def placement_patch(template: Document, exclude: Iterable[str], lift: Iterable[str]) -> dict[str, Any]:
    """The change of a template's ``spec`` that keeps its pods off nodes; a required node that is excluded goes."""
    barred = tuple(exclude)
    terms = terms_without(template, barred, lift)
    required = {"nodeSelectorTerms": terms} if terms else None
    change: dict[str, Any] = {"affinity": {"nodeAffinity": {_REQUIRED: required}}}
    if text(template, "spec", "nodeSelector", HOSTNAME) in barred:
        change["nodeSelector"] = {HOSTNAME: None}
    return change


def merged(document: Any, change: Any) -> Any:
    """A JSON merge patch applied (RFC 7396).

    >>> merged({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def size_patch(document: Document, node_count: int) -> dict[str, Any]:
    """The change of a Job's ``spec`` that makes it run as so many pods."""
    if not node_count:
        return {}
    has_completions = whole(document, "spec", "completions") is not None
    return {"parallelism": node_count, **({"completions": node_count} if has_completions else {})}


def replacement(
    form: WorkloadForm, document: Document, action: Requeue, attempts: Iterable[Attempt], now: float
) -> Any:
    """The object that takes the place of one that is over, under the same name.

    It has what the old one has left of its ``backoffLimit``: Kubernetes' own retries are not given out twice.
    """
    metadata = fields(document, "metadata")
    labels = {k: v for k, v in fields(metadata, "labels").items() if k not in _OWN_LABELS}
    resume_at = {RESUME_AT: str(now + action.delay_s)} if action.delay_s > 0 else {}
    annotations = {
        **{k: v for k, v in fields(metadata, "annotations").items() if k != RESUME_AT},
        **resume_at,
        HISTORY: to_history(attempts),
        done(action.kind): action.key,
        **({COMMENT: action.comment} if action.comment else {}),
    }
    made = {
        "apiVersion": form.resource.api_version,
        "kind": form.resource.kind,
        "metadata": {
            "name": name_of(document),
            "namespace": namespace_of(document),
            "labels": labels,
            "annotations": annotations,
            **({"ownerReferences": owners} if (owners := items(metadata, "ownerReferences")) else {}),
        },
        "spec": copy.deepcopy(dict(fields(document, "spec"))),
    }
    for _, template in form.templates(made):
        _clean(template)
        spec = merged(template["spec"], placement_patch(template, action.exclude, action.lift))
        template["spec"] = _without_empty(spec)  # type: ignore[index]  # it is part of `made`
    is_queued = bool(label_of(labels, QUEUE))
    made = merged(made, form.suspended(bool(resume_at) or is_queued))
    if form is JOB:
        made["spec"].pop("selector", None)
        made = merged(made, {"spec": {**size_patch(document, action.node_count), **_backoff(document)}})
    return made


def label_of(labels: Mapping[str, Any], key: str) -> str:
    found = labels.get(key)
    return found if isinstance(found, str) else ""


def _backoff(document: Document) -> dict[str, int]:
    limit = whole(document, "spec", "backoffLimit")
    return {"backoffLimit": max(0, (6 if limit is None else limit) - (whole(document, "status", "failed") or 0))}


def _clean(template: Document) -> None:
    labels = fields(template, "metadata", "labels")
    if isinstance(labels, dict):
        for key in _OWN_LABELS:
            labels.pop(key, None)


def _without_empty(spec: dict[str, Any]) -> dict[str, Any]:
    """An affinity that says nothing is left out: the object then looks as its owner wrote it."""
    affinity = {kind: each for kind, each in fields(spec, "affinity").items() if each}
    return {**{k: v for k, v in spec.items() if k != "affinity"}, **({"affinity": affinity} if affinity else {})}


def stash_name(name: str, key: str) -> str:
    return f"{name[:40].rstrip('.-')}-perdure-{_hash(key)}"


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:10]


def stash_of(form: WorkloadForm, made: Document, key: str, owner_label: str) -> Any:
    """A copy of a replacement that runs nothing: it is there while the old object goes and the new one is not there.

    The API server has then checked all that it will check of the new one before the old one is deleted. The copy has
    the label that says whose it is: what others write as a copy, the site labels as theirs.
    """
    owner = label(made, owner_label) if owner_label else ""
    stash = merged(dict(made), form.suspended(True))
    kept = {"suspend": form.is_suspended(made), "metadata": fields(made, "metadata")}
    stash["metadata"] = {
        "name": stash_name(name_of(made), key),
        "namespace": namespace_of(made),
        "labels": {MANAGED: "true", STASH: _hash(key), **({owner_label: owner} if owner else {})},
        "annotations": {STASHED: json.dumps(kept)},
    }
    return stash


def from_stash(form: WorkloadForm, stash: Document) -> Any:
    """The replacement that a stash is a copy of; None where it cannot be read."""
    try:
        kept = msgspec.json.decode(annotation(stash, STASHED))
    except (msgspec.DecodeError, RecursionError):
        return None
    if not text(kept, "metadata", "name"):
        return None
    made = {
        "apiVersion": form.resource.api_version,
        "kind": form.resource.kind,
        "metadata": kept["metadata"],
        "spec": copy.deepcopy(dict(fields(stash, "spec"))),
    }
    made["spec"].pop("selector", None)
    for _, template in form.templates(made):
        _clean(template)
    return merged(made, form.suspended(kept.get("suspend") is True))


# -- nodes


def node_patch(node: Document, action: NodeAction) -> dict[str, Any]:
    """The change of a node by which an action on it is done; only Perdure's own taints come and go."""
    taints = [dict(taint) for taint in items(node, "spec", "taints") if taint.get("key") not in (DRAINED, GIVEN_UP)]
    reason: str | None = None
    match action:
        case Drain():
            taints.append({"key": DRAINED, "effect": "NoSchedule"})
            reason = action.reason
        case Down():
            taints.append({"key": GIVEN_UP, "effect": "NoExecute"})
            reason = action.reason
    annotations = {done(action.kind): action.key, NODE_REASON: reason}
    return {"metadata": {"annotations": annotations}, "spec": {"taints": taints or None}}
