"""Where Perdure acts of its own accord: by partition, QOS, account, user and kind of action. Pure.

What lies outside is decided and shown all the same; its action is written down as shadow, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.model.actions import Action, NodeAction
from perdure.model.jobs import Job
from perdure.model.nodes import Node

OUTSIDE = "outside the scope"  # begins why an action is not carried out


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    """Where Perdure acts. An empty list names no condition; what is under ``not_`` is left alone."""

    partitions: tuple[str, ...] = ()
    """Act only on jobs and nodes of these."""
    not_partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    """Act only on jobs of these qualities of service."""
    not_qos: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """Act only on jobs of these accounts."""
    not_accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """Act only on these users' jobs."""
    not_users: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    """Only these kinds: cancel, comment, down, drain, exclude, extend, hold, preempt, release, requeue, undrain."""
    not_actions: tuple[str, ...] = ()

    def refuses(self, action: Action, job: Job | None, node: Node | None) -> str:
        """Why an action lies outside; "" where it lies inside. What is not known of a job or node is not in a list."""
        kind: tuple[str, ...] = (action.kind,)
        facts = [("action", kind, self.actions, self.not_actions)]
        partitions = node.partitions if node else tuple(job.partition.split(",")) if job else ()
        facts.append(("partition", partitions, self.partitions, self.not_partitions))
        if not isinstance(action, NodeAction):
            facts += [
                ("qos", _of(job.qos if job else ""), self.qos, self.not_qos),
                ("account", _of(job.account if job else ""), self.accounts, self.not_accounts),
                ("user", _of(job.user if job else ""), self.users, self.not_users),
            ]
        return next((why for fact in facts if (why := _refusal(*fact))), "")


def _refusal(what: str, has: tuple[str, ...], only: tuple[str, ...], never: tuple[str, ...]) -> str:
    if barred := sorted(set(has) & set(never)):
        return f"{OUTSIDE}: {what} {barred[0]} is left alone (scope.not_{_key(what)})"
    if only and not set(has) & set(only):
        return f"{OUTSIDE}: {what} {', '.join(has) or 'unknown'} is not in scope.{_key(what)}"
    return ""


def _of(word: str) -> tuple[str, ...]:
    return (word,) if word else ()


def _key(what: str) -> str:
    return what if what == "qos" else f"{what}s"
