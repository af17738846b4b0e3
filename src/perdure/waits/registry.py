"""The predictors by name. What needs an extra is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module

from perdure.errors import ConfigError
from perdure.waits.protocol import Predictor

DEFAULT = "blend"
_HOMES = {
    "median": "median:Median",
    "qbets": "qbets:Qbets",
    "trout": "trout:Trout",
    "gbdt": "gbdt:Gbdt",
    "rollout": "look_rollout:LookRollout",
    "slurm": "slurm_estimate:SlurmEstimate",
    "blend": "blend:Blend",
}
NAMES = tuple(_HOMES)


def predictor_named(name: str) -> Predictor:
    """The predictor of a name, at its defaults. Raises `ConfigError`, and `MissingExtra` where its extra is missing."""
    if name not in _HOMES:
        raise ConfigError(f"predictor {name!r}", "no predictor has that name", f"Use one of: {', '.join(NAMES)}")
    module, _, member = _HOMES[name].partition(":")
    found: Predictor = getattr(import_module(f"perdure.waits.{module}"), member)()
    return found
