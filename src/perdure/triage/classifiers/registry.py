"""The classifiers by name. What needs an extra is imported only when it is asked for."""

from __future__ import annotations

from perdure.model.lazy_registry import LazyRegistry
from perdure.triage.classifiers.model_file import kind_of
from perdure.triage.classifiers.protocol import Classifier, Model

_REGISTRY = LazyRegistry(
    "classifier",
    "perdure.triage.classifiers",
    {
        "linear": "linear:LINEAR",
        "gru": "recurrent:GRU",
        "lstm": "recurrent:LSTM",
        "cluster": "cluster:CLUSTER",
        "rules": "baselines:RULES",
        "always": "baselines:ALWAYS",
        "never": "baselines:NEVER",
    },
)
NAMES = _REGISTRY.names


def classifier_named(name: str) -> Classifier:
    """The classifier of a name. Raises `ConfigError`; where its extra is missing, on its first use."""
    found: Classifier = _REGISTRY.named(name)
    return found


def load_model(data: bytes, source: str) -> Model:
    """The model in a file, whichever classifier made it. Raises `InputError`."""
    kind = kind_of(data, source)
    return classifier_named(kind if kind in NAMES else "linear").load(data, source)
