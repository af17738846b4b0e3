"""Values that shells are offered when they ask: ids and names of the running service, and names that Perdure knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import PerdureError

if TYPE_CHECKING:
    from perdure.cli.service_client import Client

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+.:-")  # that no shell acts on
MOST_JOBS, MOST_NODES = 50, 10_000
WITHIN_S = 1.0  # a person waits for it with a finger on the key


def values(kind: str, state: Path | None) -> list[str]:
    """What may be given where `kind` is asked for; nothing where it is not known, or the service does not answer."""
    try:
        if kind in _OF_SERVICE:
            found = _OF_SERVICE[kind](_client(state))
        else:
            found = _OF_PERDURE[kind]() if kind in _OF_PERDURE else []
    except PerdureError:
        return []
    return [each for each in found if each and set(each) <= LETTERS and not each.startswith("-")]


def _client(state: Path | None) -> Client:
    from perdure.cli.options import load_settings
    from perdure.cli.service_client import Client
    from perdure.service.access.service_file import ServiceFile

    found = ServiceFile.read(load_settings(flags={"service.state": state}).settings.service.state)
    return Client(found.url, found.token, timeout_s=WITHIN_S)


def _jobs(asked: Client) -> list[str]:
    return [str(job["job_id"]) for job in asked.pages("/jobs", MOST_JOBS)]


def _nodes(asked: Client) -> list[str]:
    return [str(node["name"]) for node in asked.pages("/nodes", MOST_NODES)]


def _rules() -> list[str]:
    from perdure.triage.evidence.rules import own_rules

    return [rule.cause.name for rule in own_rules().rules]


def _policies() -> list[str]:
    from perdure.scheduling.policies import POLICIES

    return sorted(POLICIES)


def _placements() -> list[str]:
    from perdure.scheduling.placement.registry import COUNT, PLACEMENTS

    return [COUNT, *PLACEMENTS]


def _retries() -> list[str]:
    from perdure.simulation.retries import RETRY_POLICIES

    return [name if form.usage == name else f"{name}:" for name, form in RETRY_POLICIES.items()]


def _types() -> list[str]:
    from perdure.coordination.playbook import own_playbook

    return sorted(own_playbook().plans)


def _chains() -> list[str]:
    """Of all clusters: asking Slurm for its name would take too long."""
    from perdure.cli.chain_journal import every_journal

    return [kept.id for journal in every_journal(os.environ) for kept in journal.chains()]


_OF_SERVICE: Mapping[str, Callable[[Client], list[str]]] = {"job": _jobs, "node": _nodes}
_OF_PERDURE: Mapping[str, Callable[[], list[str]]] = {
    "rule": _rules,
    "policy": _policies,
    "placement": _placements,
    "retry": _retries,
    "type": _types,
    "chain": _chains,
}
