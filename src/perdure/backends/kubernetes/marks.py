"""Labels, annotations and taints: what owners write for Perdure, and what Perdure writes.

An action leaves its key in an annotation of what it changed, in the same write as the change. So it is known after a
crash whether it was carried out.
"""

from __future__ import annotations

from perdure.backends.kubernetes.objects import Document, annotation, label
from perdure.model.actions import AnyAction

DOMAIN = "perdure.dev"
MANAGED = f"{DOMAIN}/managed"  # a label, "true": its owner lets Perdure act on it
RETRY = f"{DOMAIN}/retry"  # an annotation, "never": not to be put back
NODES = f"{DOMAIN}/nodes"  # an annotation, "2-8": fewest and most pods of a restart
RESUME_AT = f"{DOMAIN}/resume-at"  # suspended by Perdure until then, seconds since the epoch
HISTORY = f"{DOMAIN}/history"  # attempts of the objects that this one replaces
COMMENT = f"{DOMAIN}/comment"
STASH = f"{DOMAIN}/stash"  # a label: a copy of a job that is being put back; its value names the action
STASHED = f"{DOMAIN}/stashed"  # an annotation of the copy: the metadata that the job is to have
DRAINED = f"{DOMAIN}/drained"  # a taint, NoSchedule
GIVEN_UP = f"{DOMAIN}/given-up"  # a taint, NoExecute
NODE_REASON = f"{DOMAIN}/reason"
QUEUE = "kueue.x-k8s.io/queue-name"
HOSTNAME = "kubernetes.io/hostname"


def done(kind: str) -> str:
    """The annotation that holds the key of the last action of a kind that was carried out on an object."""
    return f"{DOMAIN}/done-{kind}"


def was_done(document: Document, action: AnyAction, key: str) -> bool:
    return annotation(document, done(action.kind)) == key


def is_managed(document: Document) -> bool:
    """Whether the owner lets Perdure act on a job."""
    return label(document, MANAGED) == "true"
