"""The settings of the retry decision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How much a mistake costs, how often a retry is allowed, and how long to wait before one."""

    person_delay_h: float = 4.0
    """Hours until a person looks at a job that was stopped. A wrong stop costs its GPUs this long."""

    nuisance_h: float = 0.5
    """Hours that a wrong retry costs beside its run time: the owner hears later, the queue is longer."""

    max_infrastructure_retries: int = 8
    """Retries of one job for causes that the site answers for: nodes, network, storage, preemption."""

    max_user_retries: int = 2
    """Retries of one job for causes in the job itself that may pass, such as a port taken."""

    max_probes: int = 1
    """Retries of one job after one kind of failure that nobody can tell."""

    per_user_per_hour: int = 30
    per_node_per_hour: int = 20
    """Retries that failures on one node may cause; beyond that the node eats jobs and a person must look."""

    per_cluster_per_hour: int = 200
    cluster_share_per_hour: float = 0.5
    """Also at most this share of the cluster's live jobs, but never fewer than `cluster_floor_per_hour`."""

    cluster_floor_per_hour: int = 20

    back_off_s: float = 10.0
    """Wait before the first retry; doubled for each further failure of the job in a row."""

    back_off_cap_s: float = 60.0 * 60.0

    repeat_odds: float = 0.25
    """Factor on the odds of a retry for each time the same failure came back on other nodes."""

    node_memory_s: float = 24 * 60.0 * 60.0
    """How long a failure on a node is remembered against it."""
