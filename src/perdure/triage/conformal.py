"""Abstention with promised error rates: class-wise split conformal prediction on the verdict's probability.

Of the transient failures at most a share `alpha_transient` is called deterministic, of the deterministic ones at
most `alpha_deterministic` transient, for logs exchangeable with those that were held out in calibration (Vovk,
"Conditional validity of inductive conformal predictors", ACML 2012, label-conditional case). A failure of which
both labels, or none, are credible is unsure.

With p the probability that a failure is transient, a label is credible where its nonconformity, 1 - p for transient
and p for deterministic, is at most the ceil((n + 1)(1 - alpha))-th smallest of the n held-out failures of that label.
Both conditions are thresholds on p, so the whole rule is two numbers.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.triage.verdict import Label

ALPHA_TRANSIENT = 0.05
ALPHA_DETERMINISTIC = 0.08


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where on the scale of p the labels are credible."""

    transient_from: float
    """Transient is credible from this p on."""
    deterministic_to: float
    """Deterministic is credible up to this p."""

    def label(self, p: float) -> Label:
        """The one credible label; unsure where both are, or none.

        >>> [str(Thresholds(0.6, 0.4).label(p)) for p in (0.3, 0.5, 0.7)]
        ['deterministic', 'unsure', 'transient']
        >>> str(Thresholds(0.3, 0.7).label(0.5))
        'unsure'
        """
        transient, deterministic = p >= self.transient_from, p <= self.deterministic_to
        if transient == deterministic:
            return Label.UNSURE
        return Label.TRANSIENT if transient else Label.DETERMINISTIC

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def thresholds(
    p: NDArray[np.float64],
    transient: NDArray[np.bool_],
    alpha_transient: float = ALPHA_TRANSIENT,
    alpha_deterministic: float = ALPHA_DETERMINISTIC,
) -> Thresholds:
    """The thresholds for held-out failures of probability `p`, shape (n,), and known truth, shape (n,).

    With fewer than 1 / alpha - 1 failures of a label nothing can be promised of it: it is always credible.
    """
    return Thresholds(
        transient_from=1.0 - _quantile(1.0 - p[transient], alpha_transient),
        deterministic_to=_quantile(p[~transient], alpha_deterministic),
    )


def _quantile(nonconformity: NDArray[np.float64], alpha: float) -> float:
    n = len(nonconformity)
    rank = math.ceil((n + 1) * (1.0 - alpha) - 1e-9)
    return 1.0 if rank > n else float(np.sort(nonconformity)[rank - 1])


def read_thresholds(text: str, source: str) -> Thresholds:
    """Read what `Thresholds.to_json` wrote. Raises `InputError`."""
    try:
        document = json.loads(text)
        found = Thresholds(float(document["transient_from"]), float(document["deterministic_to"]))
    except (ValueError, TypeError, KeyError) as err:
        raise InputError(source, f"no thresholds ({err})", "Make them anew: python -m perdure.triage.train") from err
    if not (0.0 <= found.transient_from <= 1.0 and 0.0 <= found.deterministic_to <= 1.0):
        raise InputError(source, "a threshold is not between 0 and 1", "Make them anew: python -m perdure.triage.train")
    return found


@lru_cache(maxsize=1)
def own_thresholds() -> Thresholds:
    """The thresholds that come with Perdure."""
    source = resources.files("perdure.triage") / "data" / "thresholds.json"
    return read_thresholds(source.read_text("utf-8"), "thresholds.json")
