"""The classifiers by name. What needs an extra is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module

from perdure.errors import ConfigError
from perdure.triage.classifiers.model_file import kind_of
from perdure.triage.classifiers.protocol import Classifier, Model

_HOMES = {
    "linear": "linear:LINEAR",
    "gru": "recurrent:GRU",
    "lstm": "recurrent:LSTM",
    "cluster": "cluster:CLUSTER",
    "rules": "baselines:RULES",
    "always": "baselines:ALWAYS",
    "never": "baselines:NEVER",
}
NAMES = tuple(_HOMES)


def classifier_named(name: str) -> Classifier:
    """The classifier of a name. Raises `ConfigError`; where its extra is missing, on its first use."""
    if name not in _HOMES:
        raise ConfigError(f"classifier {name!r}", "no classifier has that name", f"Use one of: {', '.join(NAMES)}")
    module, _, member = _HOMES[name].partition(":")
    found: Classifier = getattr(import_module(f"perdure.triage.classifiers.{module}"), member)
    return found


def load_model(data: bytes, source: str) -> Model:
    """The model in a file, whichever classifier made it. Raises `InputError`."""
    kind = kind_of(data, source)
    return classifier_named(kind if kind in NAMES else "linear").load(data, source)
