"""Replays beside a real cluster: ``python -m benchmarks.hardware_check [DATA] [--out hardware_check.md]``.

S. Zheng et al., "Shockwave", NSDI 2023, ran 120 jobs on 32 V100s under several policies, and published the results of
the machine beside those of their simulator. Four of the policies are Perdure's, too. Jobs change their batch as they
train: by Accordion in its critical phases, or by the gradient noise scale at epochs that the authors had measured and
their simulator repeats. A job's time alone is the sum over its epochs, at the rates that the trace itself tells (steps
over the time of other jobs with that batch); a policy knows it beforehand, as theirs does not.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, RateProfile
from perdure.scheduling.elastic_policies import elastic_named
from perdure.scheduling.gavel_policy import Gavel
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.throughput.application import rated_applications
from perdure.throughput.traits import Traits

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CLUSTER, ROUND_S, RESTARTS_S = "8x4:v100", 120.0, (0.0, 5.0, 30.0)

EXAMPLES = {"ResNet-18": 50000, "ResNet-50": 100000, "Transformer": 10000, "LM": 59675, "Recommendation": 117907}
LARGEST = {"ResNet-18": 256, "ResNet-50": 128, "Transformer": 128, "LM": 80, "Recommendation": 8192}
DOUBLES_AT: Mapping[tuple[str, int], Mapping[int, tuple[int, ...]]] = {  # by model and GPUs, then first batch: epochs
    ("ResNet-18", 1): {16: (31, 41, 51, 71), 32: (21, 31, 51), 64: (11, 31), 128: (11,)},
    ("ResNet-18", 2): {16: (21, 31, 91, 111), 32: (11, 21, 41), 64: (21, 41), 128: (41,)},
    ("ResNet-18", 4): {16: (11, 21, 81, 91), 32: (21, 31, 61), 64: (11, 61), 128: (11,)},
    ("ResNet-50", 1): {64: (101,)},
    ("ResNet-50", 2): {32: (101, 111), 64: (81,)},
    ("ResNet-50", 4): {32: (131, 221), 64: (191,)},
    ("LM", 1): {5: (31, 41, 61, 71), 10: (11, 21, 41), 20: (11, 41), 40: (11,)},
    ("LM", 2): {5: (31, 51, 61, 71), 10: (11, 31, 41), 20: (31, 41), 40: (11,)},
    ("LM", 4): {5: (11, 31, 71, 91), 10: (11, 31, 61), 20: (11, 61), 40: (61,)},
    ("Recommendation", 1): {512: (21, 41, 71, 91), 1024: (21, 51, 91), 2048: (21, 41), 4096: (41,)},
}


@dataclass(frozen=True, slots=True)
class Published:
    """What the authors measured and simulated: makespan and mean time from submission to end, in seconds."""

    title: str
    measured: tuple[float, float]
    simulated: tuple[float, float]


PUBLISHED: Mapping[str, Published] = {  # by Perdure's name of the policy
    "gavel-las": Published("max-min fairness", (34619, 12113), (33207.663, 11274.117)),
    "gavel-ftf": Published("finish-time fairness", (27841, 10930), (31928.739, 11301.977)),
    "gavel-cost": Published("most throughput", (34701, 9703), (31909.031, 9654.7)),
    "gavel-makespan": Published("least makespan", (25555, 17831), (24204.816, 19806.728)),
}


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """One line of the trace."""

    model: str
    batch: int
    gpus: int
    steps: int
    mode: str
    alone_s: float  # with its first batch
    submit_s: float

    @property
    def epochs(self) -> int:
        return math.ceil(self.steps / math.ceil(EXAMPLES[self.model] / self.batch))

    def batches(self) -> list[int]:
        """The batch of each epoch."""
        change = {"accordion": self._by_phase, "gns": self._by_noise}.get(self.mode, lambda _: self.batch)
        return [change(epoch) for epoch in range(self.epochs)]

    def _by_phase(self, epoch: int) -> int:
        """The first batch in the first three tenths, and in critical phases; else the largest."""
        return self.batch if epoch <= 0.3 * self.epochs or self._is_critical(epoch) else LARGEST[self.model]

    def _is_critical(self, epoch: int) -> bool:
        match self.model:
            case "ResNet-18":
                return epoch < (20 if self.batch == 256 else 10) or 150 <= epoch < 160 or 250 <= epoch < 260
            case "ResNet-50":
                return epoch < 600 and epoch % 30 < 10
            case "LM":
                return epoch < 10
            case "Recommendation":
                first = 30 if self.batch <= 1024 else 40 if self.batch == 2048 else 10
                return epoch < first or 60 <= epoch < 70 or 80 <= epoch < 90
        return True

    def _by_noise(self, epoch: int) -> int:
        """Doubled at each of its epochs, up to the largest."""
        at = DOUBLES_AT.get((self.model, self.gpus), {}).get(self.batch, ())
        return int(min(self.batch * 2 ** sum(epoch >= each for each in at), max(LARGEST[self.model], self.batch)))


def read_jobs(path: Path) -> list[PublishedJob]:
    """The jobs of the trace, in the order in which they came."""
    found = []
    for line in path.read_text().splitlines():
        name, _, _, _, _, steps, gpus, mode, _, _, alone_s, submit_s = line.split("\t")
        model, _, batch = name.partition(" (batch size ")
        numbers = int(batch[:-1]), int(gpus), int(steps)
        found.append(PublishedJob(model, *numbers, mode, float(alone_s), float(submit_s)))
    return found


def rates(jobs: list[PublishedJob]) -> Callable[[PublishedJob, int], float]:
    """Steps a second of a job with a batch; of one with which no job began as on one GPU, else by its examples."""
    known = {(job.model, job.gpus, job.batch): job.steps / job.alone_s for job in jobs}

    def rate(job: PublishedJob, batch: int) -> float:
        if (job.model, job.gpus, batch) in known:
            return known[job.model, job.gpus, batch]
        near = min(
            (b for m, g, b in known if (m, g) == (job.model, job.gpus)), key=lambda other: abs(math.log(other / batch))
        )
        one, other = known.get((job.model, 1, batch)), known.get((job.model, 1, near))
        return known[job.model, job.gpus, near] * (one / other if one and other else near / batch)

    return rate


def alone_s(jobs: list[PublishedJob]) -> list[float]:
    """What each job takes with its GPUs to itself, its changes of batch included."""
    rate = rates(jobs)
    return [sum(EXAMPLES[job.model] / batch / rate(job, batch) for batch in job.batches()) for job in jobs]


def replayed(jobs: list[PublishedJob], policy: str, restart_s: float) -> ElasticResult:
    """The jobs on the authors' cluster, in rounds of their length."""
    made = elastic_named(policy)
    assert isinstance(made, Gavel)
    names, gpus = np.array([f"job{row}" for row in range(len(jobs))]), np.array([job.gpus for job in jobs])
    kinds, together = np.full(2 * len(jobs), "v100"), np.tile([True, False], len(jobs))
    told = RateProfile(np.repeat(names, 2), kinds, np.repeat(gpus, 2), together, np.ones(2 * len(jobs)))
    known = rated_applications(told, names.tolist())
    submit_s = np.array([job.submit_s for job in jobs])
    given = AdaptiveJobs(names, submit_s, names, gpus, gpus, steps=np.array(alone_s(jobs)))
    traits = dict.fromkeys(known, Traits(restart_s, restart_s))
    return replay_elastic(given, Cluster.parse(CLUSTER), replace(made, round_s=ROUND_S), known, traits)


def differences(found: tuple[float, float], measured: tuple[float, float]) -> tuple[float, float]:
    """Of makespan and mean time, in percent of what was measured."""
    makespan, mean = (100 * (one / other - 1) for one, other in zip(found, measured, strict=True))
    return makespan, mean


def table(jobs: list[PublishedJob]) -> Iterator[str]:
    """A row a policy: what was measured, and how far from it their simulator and each replay are; the means below."""
    last_s = np.array([job.submit_s for job in jobs])
    off: dict[str, list[tuple[float, float]]] = {}
    heads = ["their simulator", *(f"Perdure, a restart of {seconds:g} s" for seconds in RESTARTS_S)]
    yield f"| policy | measured, s | {' | '.join(heads)} |\n|{'---|' * (2 + len(heads))}"
    for name, published in PUBLISHED.items():
        ours = [replayed(jobs, name, seconds) for seconds in RESTARTS_S]
        told = [published.simulated]
        told += [(float((last_s + each.jct_s).max()), float(each.jct_s.mean())) for each in ours]
        found = [differences(each, published.measured) for each in told]
        for head, each in zip(heads, found, strict=True):
            off.setdefault(head, []).append(each)
        measured = " / ".join(f"{each:,.0f}" for each in published.measured)
        yield f"| {published.title} (`{name}`) | {measured} | {' | '.join(f'{a:+.1f} / {b:+.1f}' for a, b in found)} |"
    means = [np.abs(off[head]).mean(axis=0) for head in heads]
    yield f"| mean of the four, without signs | | {' | '.join(f'{a:.1f} / {b:.1f}' for a, b in means)} |"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("data", type=Path, nargs="?", default=DATA)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    jobs = read_jobs(given.data / "golden-schedulers" / "shockwave" / "tacc32_120jobs.trace")
    lines = [
        "Made by `python -m benchmarks.hardware_check`. Makespan / mean time from submission to end, differences in %.",
        "",
    ]
    text = "\n".join([*lines, *table(jobs)]) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
