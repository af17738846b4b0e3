"""Scheduling and retry policies as the field names them; programs know them by their ids. Pure."""

from __future__ import annotations

from perdure.scheduling.elastic_policies import ELASTIC
from perdure.scheduling.policies import POLICIES
from perdure.simulation.retries import RETRY_POLICIES


def policy_title(policy: str) -> str:
    """A policy as the field names it; an argument stays.

    >>> policy_title("srtf"), policy_title("las-2d:8"), policy_title("own")
    ('SRTF', 'Tiresias-LAS (8)', 'own')
    """
    name, _, argument = policy.partition(":")
    form = POLICIES.get(name) or ELASTIC.get(name)
    words = form.title if form else name
    return f"{words} ({argument})" if argument else words


def retry_title(retry: str) -> str:
    """A retry policy in words; one that has none keeps its id."""
    return next((form.title for form in RETRY_POLICIES.values() if form.offered == retry), retry)
