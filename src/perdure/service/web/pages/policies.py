"""Scheduling and retry policies as the field names them; programs know them by their ids. Pure."""

from __future__ import annotations

from collections.abc import Mapping

POLICY_WORDS: Mapping[str, tuple[str, str]] = {  # as the field names it, and how it chooses
    "fifo": ("FIFO", "First come, first served; nothing overtakes"),
    "fjf": ("FIFO, first fit", "First come, first served; jobs that do not fit are passed over"),
    "sjf": ("SJF", "Shortest job first"),
    "fewest-gpus": ("Fewest GPUs first", "The job that asks for the fewest GPUs goes first"),
    "srtf": ("SRTF", "Shortest remaining time first, preemptive"),
    "srsf": ("SRSF", "Shortest remaining service (GPU time) first, preemptive"),
    "las": ("LAS", "Least attained service, counted in time"),
    "las-2d": ("Tiresias-LAS", "Least attained service, counted in GPU time (2D-LAS)"),
    "gittins-2d": ("Tiresias-Gittins", "Highest Gittins index: most likely to end soon (2D-Gittins)"),
    "philly": ("Philly", "Quotas of virtual clusters; idle GPUs are lent"),
    "capacity": ("Capacity scheduler", "Guaranteed shares of virtual clusters"),
    "drf": ("DRF", "Dominant resource fairness"),
    "tetris": ("Tetris", "Multi-resource packing"),
    "easy": ("EASY backfilling", "FIFO; later jobs may start if they do not delay the first in the queue"),
    "conservative": ("Conservative backfilling", "FIFO; every job is promised a start, which no later job may delay"),
    "slurm": ("Slurm", "By Slurm's defaults: in the order of arrival, each job that waits has a reservation"),
    "maxmin": ("Max-min fairness", "In rounds: whoever has had the least of their share goes first (Gavel)"),
}
RETRY_WORDS: Mapping[str, tuple[str, str]] = {
    "recorded": ("As recorded", "The attempts that the trace holds"),
    "never": ("Never", "No failure is retried"),
    "always:3": ("Always, up to 3", "Each failure is retried up to 3 times"),
    "oracle": ("Oracle", "Exactly the failures that a retry gets past are retried"),
    "predicted": ("Classifier", "The failures that a classifier calls transient are retried"),
    "service": ("This service", "As this service decides, by expected cost"),
}


def policy_title(policy: str) -> str:
    """A policy as the field names it; an argument stays.

    >>> policy_title("srtf"), policy_title("las-2d:8"), policy_title("own")
    ('SRTF', 'Tiresias-LAS (8)', 'own')
    """
    name, _, argument = policy.partition(":")
    words, _ = POLICY_WORDS.get(name, (name, ""))
    return f"{words} ({argument})" if argument else words


def retry_title(retry: str) -> str:
    """A retry policy in words; one that has none keeps its id."""
    return RETRY_WORDS.get(retry, (retry, ""))[0]
