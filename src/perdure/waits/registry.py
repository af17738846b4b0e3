"""The predictors by name. What needs an extra is imported only when it is asked for."""

from __future__ import annotations

from perdure.model.lazy_registry import LazyRegistry
from perdure.waits.protocol import Predictor

DEFAULT = "blend"
_REGISTRY = LazyRegistry(
    "predictor",
    "perdure.waits",
    {
        "median": "median:Median",
        "qbets": "qbets:Qbets",
        "trout": "trout:Trout",
        "gbdt": "gbdt:Gbdt",
        "rollout": "look_rollout:LookRollout",
        "slurm": "slurm_estimate:SlurmEstimate",
        "blend": "blend:Blend",
    },
)
NAMES = _REGISTRY.names


def predictor_named(name: str) -> Predictor:
    """The predictor of a name, at its defaults. Raises `ConfigError`, and `MissingExtra` where its extra is missing."""
    found: Predictor = _REGISTRY.named(name)()
    return found
