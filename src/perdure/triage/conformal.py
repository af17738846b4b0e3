"""Abstention with promised error rates: class-wise split conformal prediction on the verdict's probability.

Of the transient failures at most a share `alpha_transient` is called deterministic, of the deterministic ones at
most `alpha_deterministic` transient, for logs exchangeable with those that were held out in calibration (Vovk,
"Conditional validity of inductive conformal predictors", ACML 2012, label-conditional case). A failure of which
both labels, or none, are credible is unsure. Where the held-out logs are of several sets, the rates hold in each set
by itself that has failures enough, hence in any mixture of them. Where they are of several families, the rates hold
whichever one of these is left out, so no threshold hangs on one program.

With p the probability that a failure is transient, a label is credible where its nonconformity, -p for transient
and p for deterministic, is at most the ceil((n + 1)(1 - alpha))-th smallest of the n held-out failures of that label.
Both conditions are thresholds on p, so the whole rule is two numbers.

Calibration is on verdicts of a model that saw nothing of a log's repository or program family, and of rules without the
wordings that this repository or family alone shows and had motivated (`foundry.left_out`). Rules from documentation
stay: they were written without it. So the rates are those of programs whose like was seen, and whose words were not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.triage.verdict import Label

ALPHA_TRANSIENT = 0.06
ALPHA_DETERMINISTIC = 0.10
_FIX = "Make the thresholds again (docs/foundry.md) or reinstall Perdure"


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

    def unsure(self, p: float) -> float:
        """The nearest p at which the label is unsure.

        >>> [Thresholds(0.2, 0.5).unsure(p) for p in (0.1, 0.3, 0.9)]
        [0.2, 0.3, 0.5]
        """
        low, high = sorted((self.transient_from, self.deterministic_to))
        return min(max(p, low), high)

    def to_json(self, source: Mapping[str, object] | None = None) -> str:
        """The thresholds as a file, with what they come from."""
        return json.dumps({**asdict(self), **(source or {})}, indent=2) + "\n"


def thresholds(
    p: NDArray[np.float64],
    transient: NDArray[np.bool_],
    alpha_transient: float = ALPHA_TRANSIENT,
    alpha_deterministic: float = ALPHA_DETERMINISTIC,
    sets: NDArray[np.str_] | None = None,
    families: NDArray[np.str_] | None = None,
) -> Thresholds:
    """The thresholds for held-out failures of probability `p`, known truth, set and family, each shape (n,).

    A set with fewer than 1 / alpha - 1 failures of a label says nothing of that label. Where all are so small nothing
    can be promised of it: it is always credible.
    """
    sets = np.zeros(len(p), dtype=np.str_) if sets is None else sets
    families = np.zeros(len(p), dtype=np.str_) if families is None else families
    passing, lasting = transient, ~transient
    return Thresholds(
        transient_from=-_strictest(-p[passing], sets[passing], families[passing], alpha_transient, most=-0.0),
        deterministic_to=_strictest(p[lasting], sets[lasting], families[lasting], alpha_deterministic, most=1.0),
    )


def _strictest(
    nonconformity: NDArray[np.float64], sets: NDArray[np.str_], families: NDArray[np.str_], alpha: float, most: float
) -> float:
    """The largest of the sets' quantiles; `most` where no set has enough."""
    inside = (sets == name for name in np.unique(sets))
    found = (_without_any_family(nonconformity[each], families[each], alpha) for each in inside)
    return max((quantile for quantile in found if quantile is not None), default=most)


def _without_any_family(nonconformity: NDArray[np.float64], families: NDArray[np.str_], alpha: float) -> float | None:
    """The largest quantile of all and of those without one family; None where all are too few."""
    parts = (np.ones(len(families), dtype=np.bool_), *(families != name for name in np.unique(families)))
    found = [_quantile(nonconformity[part], alpha) for part in parts]
    return None if found[0] is None else max(quantile for quantile in found if quantile is not None)


def _quantile(nonconformity: NDArray[np.float64], alpha: float) -> float | None:
    n = len(nonconformity)
    rank = math.ceil((n + 1) * (1.0 - alpha) - 1e-9)
    return None if rank > n else float(np.sort(nonconformity)[rank - 1])


def read_thresholds(text: str, source: str) -> Thresholds:
    """Read what `Thresholds.to_json` wrote. Raises `InputError`."""
    try:
        document = json.loads(text)
        found = Thresholds(float(document["transient_from"]), float(document["deterministic_to"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as err:
        raise InputError(source, f"no thresholds ({err})", _FIX) from err
    if not (0.0 <= found.transient_from <= 1.0 and 0.0 <= found.deterministic_to <= 1.0):
        raise InputError(source, "a threshold is not between 0 and 1", _FIX)
    return found


@lru_cache(maxsize=1)
def own_thresholds() -> Thresholds:
    """The thresholds that come with Perdure."""
    source = resources.files("perdure.triage") / "data" / "thresholds.json"
    return read_thresholds(source.read_text("utf-8"), "thresholds.json")
