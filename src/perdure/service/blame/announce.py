"""A suspect as an exception: what is reported to the coordination chain."""

from __future__ import annotations

from perdure.blame.builders.attempts import GPU, LOCAL_TIERS, NODE
from perdure.blame.standing import Standing
from perdure.coordination.record import ExceptionRecord, Scope, Subject

DETECTOR = "perdure.blame"
DOWN, GRAY = 2, 4
"""Severities: critical, warning. A suspicion is not a failure."""


def suspect_to_exception(standing: Standing, cluster: str) -> ExceptionRecord:
    """The exception that a named suspect is.

    What lies within one allocation (a node, a GPU, a user's code) is local, what jobs share is global. The id is made
    of the component and the instant since which it is accused.
    """
    said = standing.accusation
    return ExceptionRecord(
        id=f"{cluster}/{standing.first[0]}/{standing.first[1]}:suspect:{standing.since_s:.0f}",
        type=f"suspect.{said.tier.replace(' ', '_')}",
        severity=DOWN if said.kind == "hard" else GRAY,
        scope=Scope.LOCAL if said.tier in LOCAL_TIERS else Scope.GLOBAL,
        subject=_subject(standing, cluster),
        time_s=standing.last_s,
        note=in_words(standing),
        detected_by=DETECTOR,
        evidence=(in_words(standing),),
    )


def in_words(standing: Standing) -> str:
    """What speaks against a suspect, in one sentence."""
    said = standing.accusation
    others = ", ".join(f"{tier} {name}" for tier, name in said.components[1:])
    alike = f"; nothing tells it from {others}" if others else ""
    whose = "one user" if said.users == 1 else f"{said.users} users"
    return (
        f"{said.failed} of {said.failed + said.passed} attempts on {said.tier} {said.name} failed, of {whose}; "
        f"by its fault {said.rate:.0%} ({said.rate_low:.0%} to {said.rate_high:.0%}){alike}"
    )


def _subject(standing: Standing, cluster: str) -> Subject:
    components = standing.accusation.components
    tier, name = components[0]
    nodes = tuple(name for tier, name in components if tier == NODE)
    gpus = tuple(name for tier, name in components if tier == GPU)
    resource = "" if tier in (NODE, GPU) else f"{tier}:{name}"
    return Subject(cluster, nodes=nodes, gpus=gpus, resource=resource)
