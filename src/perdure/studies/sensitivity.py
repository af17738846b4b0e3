"""The studies of retries and of delays over what is not published: which settings give the published figures?

How often the jobs of a published trace fail, how its virtual clusters share GPUs and how unevenly their jobs come is
not public. A study at one setting therefore neither confirms nor refutes; a table over settings says which would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from perdure.simulation.retries import CLASSIFIER
from perdure.studies import delay as delays
from perdure.studies import retry as retries
from perdure.studies.estimate import Estimate, Progress

FAILING = (0.05, 0.10, 0.18, 0.27)  # share of jobs that fail at least once
TRUE_POSITIVES = (0.89, 0.96)  # of the classifier: on unseen families, and what the published loss of success needs
RETRY_LOADS = (0.9, 1.1, 1.3)
DELAY_LOADS = (0.65, 0.75)
BORROWING = (None, 1.5, 1.2, 1.0)  # how many times its quota a virtual cluster holds at most; no cap
VC_DAYS = (0.0, 1.08)  # evenly; and as fitted to the public list of Philly's jobs (`perdure.traces.arrivals.fit`)
SEEDS = 10


@dataclass(frozen=True, slots=True)
class SettingFigures:
    """One setting, and what the study finds there beside what is published.

    `inside` says of each published figure whether it lies in the interval here, at 95 % over the seeds. `distance` is
    the mean over the published figures of |here - published| / published; below a published bound it is 0.
    """

    setting: Mapping[str, float | None]
    figures: Mapping[str, Estimate]
    inside: Mapping[str, bool]
    distance: float

    @classmethod
    def of(
        cls,
        setting: Mapping[str, float | None],
        figures: Mapping[str, Estimate],
        published: Mapping[str, float],
        at_most: Mapping[str, float],
    ) -> SettingFigures:
        """Compare with points, and with bounds from above."""
        inside = {name: figures[name].low <= value <= figures[name].high for name, value in published.items()}
        inside |= {name: figures[name].low <= value for name, value in at_most.items()}
        far = [abs(figures[name].mean - value) / value for name, value in published.items()]
        far += [max(0.0, figures[name].mean - value) / value for name, value in at_most.items()]
        return cls(setting, figures, inside, float(np.mean(far)))


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A study over settings; `nearest` is the one with the most published figures inside, then of least distance."""

    study: str
    jobs: int
    seeds: int
    published: Mapping[str, float]
    at_most: Mapping[str, float]
    source: str
    settings: tuple[SettingFigures, ...]

    @property
    def nearest(self) -> SettingFigures:
        return min(self.settings, key=lambda each: (-sum(each.inside.values()), each.distance))

    def ranges(self) -> dict[str, tuple[float, float]]:
        """From the least to the greatest mean of each published figure over all settings."""
        means = {name: [each.figures[name].mean for each in self.settings] for name in self.settings[0].inside}
        return {name: (min(values), max(values)) for name, values in means.items()}

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"nearest": asdict(self.nearest), "ranges": self.ranges()}


def retry_sensitivity(
    n_jobs: int = 50_000,
    seeds: int = SEEDS,
    nodes: int = 200,
    failing: Sequence[float] = FAILING,
    true_positives: Sequence[float] = TRUE_POSITIVES,
    loads: Sequence[float] = RETRY_LOADS,
    progress: Progress = lambda done, runs: None,  # noqa: ARG005
    workers: int = 1,
) -> Sensitivity:
    """Sibylla's experiment over the share of jobs that fail, what the classifier recognises, and the load.

    Figures are the JCT saved by each policy, the most that any exceeds the oracle's, and the success lost; `repeated`
    is the share of running time that retries of hopeless jobs hold. Raises what `retry` does.
    """
    said = retries.PUBLISHED
    published = dict(said["jct_saved"]) | {"success_lost": said["success_rate_lost"]}
    at_most = {"jct_over_oracle": said["jct_over_oracle"]}
    found = []
    cases = list(product(failing, true_positives))
    for (share, known), told in zip(cases, _parts(progress, len(cases)), strict=True):
        classifier = (known, CLASSIFIER[1])
        study = retries.retry(
            n_jobs, loads, seeds, nodes, share, classifier, tuple(said["jct_saved"]), progress=told, workers=workers
        )
        for load in loads:
            setting = {"failing": share, "true_positives": known, "load": load}
            found.append(SettingFigures.of(setting, _saved(study, load), published, at_most))
    return Sensitivity("retry", n_jobs, seeds, published, at_most, said["source"], tuple(found))


def _saved(study: retries.RetryStudy, load: float) -> dict[str, Estimate]:
    predicted = [each for each in study.figures if each.load == load and each.retry == retries.PREDICTED]
    repeated = Estimate(study.repeated, study.repeated, study.repeated)
    return {each.policy: each.jct_saved for each in predicted} | {
        "jct_over_oracle": max((each.jct_over_oracle for each in predicted), key=lambda each: each.mean),
        "success_lost": max((each.success_lost for each in predicted), key=lambda each: each.mean),
        "repeated": repeated,
    }


def delay_sensitivity(
    n_jobs: int = 20_000,
    seeds: int = SEEDS,
    cluster: str = "321x2+231x8",
    loads: Sequence[float] = DELAY_LOADS,
    borrowing: Sequence[float | None] = BORROWING,
    vc_days: Sequence[float] = VC_DAYS,
    progress: Progress = lambda done, runs: None,  # noqa: ARG005
    workers: int = 1,
) -> Sensitivity:
    """Philly's study of delays over the load, the cap on borrowing and how unevenly virtual clusters submit.

    Figures are the mean and the median wait, the share of fragmentation in the tries by size, and nodes in use. Raises
    what `delay` does.
    """
    said = delays.PUBLISHED
    published = {f"fragmentation {size}": share for size, share in said["fragmentation_tries"].items()}
    published |= {"wait_s": said["wait_s"]["mean"], "median_wait_s": said["wait_s"]["p50"]}
    published |= {"nodes_in_use": said["nodes_in_use"]}
    at_most = {"free_nodes_at_two_thirds": said["free_nodes_at_two_thirds"]}
    found = []
    cases = list(product(loads, borrowing, vc_days))
    for (load, cap, uneven), told in zip(cases, _parts(progress, len(cases)), strict=True):
        study = delays.delay(
            n_jobs, load, seeds, cluster, vc_days=uneven, borrowing=cap, progress=told, workers=workers
        )
        figures = {f"fragmentation {each.gpus}": each.fragmentation_tries for each in study.figures}
        figures |= {name: getattr(study, name) for name in ("wait_s", "median_wait_s", "nodes_in_use", *at_most)}
        setting = {"load": load, "borrowing": cap, "vc_days": uneven}
        found.append(SettingFigures.of(setting, figures, published, at_most))
    return Sensitivity("delay", n_jobs, seeds, published, at_most, said["source"], tuple(found))


def _parts(progress: Progress, parts: int) -> Iterator[Callable[[int, int], None]]:
    """The progress of each of several equal parts, as progress of the whole."""
    for part in range(parts):

        def told(done: int, runs: int, part: int = part) -> None:
            progress(part * runs + done, parts * runs)

        yield told
