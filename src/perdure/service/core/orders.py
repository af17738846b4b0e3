"""From a person's wish to an action: which attempt, which node, which key."""

from __future__ import annotations

from perdure.errors import ClusterError, InputError
from perdure.model.actions import Action, Cancel, Drain, Hold, Release, Requeue, Undrain
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job

JOB_KINDS = ("hold", "release", "cancel", "retry")
NODE_KINDS = ("drain", "undrain")
MAX_REASON = 500


def job_order(kind: str, job: Job, latest: Attempt | None, exclude: tuple[str, ...] = ()) -> Action:
    """The action of a wish about a job, tied to its latest attempt.

    Raises `ClusterError` where the job's state does not allow the order.
    """
    about = latest.id if latest else AttemptId(job.cluster, job.job_id, 0)
    match kind:
        case "hold" if job.state.is_waiting:
            return Hold(about)
        case "release" if job.state.is_waiting:
            return Release(about)
        case "cancel" if not job.state.is_over:
            return Cancel(about)
        case "retry" if latest is not None and latest.state.is_over and not job.state.is_waiting:
            return Requeue(about, exclude)
        case "hold" | "release" | "cancel" | "retry":
            raise ClusterError(f"job {job.job_id}", f"cannot {kind} a job that is {job.state}", "See the job's page")
        case _:
            raise InputError("kind", f"{kind!r} is not an action on a job", f"Use one of: {', '.join(JOB_KINDS)}")


def node_order(kind: str, node: str, reason: str, episode: str) -> Action:
    """The action of a wish about a node. `episode` tells it from the same wish at another time."""
    match kind:
        case "drain":
            return Drain(node, one_line(reason) or "drained by hand", episode)
        case "undrain":
            return Undrain(node, episode)
        case _:
            raise InputError("kind", f"{kind!r} is not an action on a node", f"Use one of: {', '.join(NODE_KINDS)}")


def one_line(text: str) -> str:
    """Words that a resource manager takes as one argument: printable, on one line, bounded.

    >>> one_line(" bad\\nfan\\x1b ")
    'bad fan'
    """
    words = "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)
    return " ".join(words.split())[:MAX_REASON]
