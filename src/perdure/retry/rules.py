"""The settings of the retry decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How much a mistake costs, how often a retry is allowed, and how long to wait before one."""

    person_delay_h: float = 4.0
    """Hours until a person looks at a job that was stopped. A wrong stop costs its GPUs this long."""

    nuisance_h: float = 0.5
    """Hours that a wrong retry costs in addition to its run time: the owner hears later, the queue is longer."""

    max_infrastructure_retries: int = 8
    """Retries of one job for causes that the site answers for: nodes, network, storage, preemption."""

    max_user_retries: int = 2
    """Retries of one job for causes in the job itself that may pass, such as a port taken."""

    max_probes: int = 1
    """Retries of one job after one kind of failure that triage cannot name."""

    cluster_share_per_hour: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """Retries that start in any hour, as a share of the jobs that run or wait; from `cluster_floor_per_hour` to
    `per_cluster_per_hour`. What jobs share, spent, makes a retry come later, and stops none: with 50,000 jobs that wait
    for 4 nodes, the nodes' own budgets are what is reached first."""

    cluster_floor_per_hour: int = 100
    per_cluster_per_hour: int = 5000
    per_node_per_hour: int = 60
    """Retries that failures on one node may cause in an hour; where more jobs run on a node,
    `cluster_share_per_hour` of these. Above this the node is considered bad: what failed there starts later."""

    user_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """At most this share of each of these budgets goes to one user."""

    per_user_per_hour: int = 2500
    """Whatever the share."""

    back_off_s: float = 10.0
    """Wait before the first retry; doubled for each further failure of the job in a row."""

    back_off_cap_s: float = 60.0 * 60.0

    repeat_odds: Annotated[float, Meta(ge=0, le=1)] = 0.25
    """Factor on the odds of a retry for each time the same failure came back on other nodes."""

    same_place_odds: Annotated[float, Meta(ge=0, le=1)] = 0.6
    """The same where it came back on a node that it was seen on before: part of that is the node's."""

    requeue_at_timeout: tuple[str, ...] = ()
    """Partitions whose jobs save checkpoints: they are put back when their walltime is over, while their logs show
    newer steps. A job may ask for it itself: ``--comment perdure:timeout=requeue``."""

    give_back_after_s: Annotated[float, Meta(ge=0)] = 5 * 60.0
    """A retry that was kept off nodes gets them back once too few others have been in service for this long. What
    its owner excluded stays excluded."""

    node_memory_s: float = 24 * 60.0 * 60.0
    """How long a failure on a node is remembered against it."""
