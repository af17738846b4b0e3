"""Failure models: which attempts of a trace's jobs fail, why, and what a retry of each would meet.

Node faults: 584 on 400 GPU servers in 348 days (fault trace of an LLM cluster published with InfiniteHBD, SIGCOMM
2025). GPU faults: 111 double-bit errors and 30 GPUs off the bus in 25,144 GPU-years of Titan's second batch of K20X
(G. Ostrouchov et al., "GPU lifetimes on Titan supercomputer", SC 2020); the first batch had fifteen times as many.

Failures are drawn before anything is scheduled: as a list of each job's attempts, in which a retry of a failure that is
bound to a node runs elsewhere. Where nodes are simulated, `faults` says whether it comes back to the bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from perdure.errors import ConfigError
from perdure.model.table import Attempts, JobTable, TableEnding
from perdure.simulation.faults import NodeFaults
from perdure.traces.failure_table import REASONS, SHARE_FAILING, draw_reasons, draw_rtf_s, draw_trials

REPAIR_DAYS = {0.05: 0.008, 0.25: 0.122, 0.5: 1.06, 0.75: 3.84, 0.9: 15.1, 0.95: 30.2, 0.99: 58.3, 1.0: 88.5}
"""Quantiles of how long nodes stay bad.

Source: fault trace of an LLM cluster of 400 GPU servers, published with InfiniteHBD (SIGCOMM 2025): the time from
start to end of the 399 faults of its first 250 days that are over by then.
"""

DAY_S = 86_400.0
NODE_FAULTS_PER_DAY = 584 / (400 * 348)
GPU_FAULTS_PER_DAY = (111 + 30) / 25_144 / 365.25
NODE_GPUS = 8  # GPUs that a gang has on each of its nodes, where faults are drawn
NODE_FAULT = "node fault"
RECORDED = "recorded"
_OF_NODE = frozenset({"cuda failure", "cuda init failed", "gpu ecc error"})
_MOST_FAULTS = 16  # of one attempt


class Nature(IntEnum):
    """What a retry of a failed attempt meets."""

    PASSED = 0  # it did not fail
    DETERMINISTIC = 1  # it fails again, on any node
    NODE_BOUND = 2  # it fails again on that node only
    TRANSIENT = 3  # in the end it passes, wherever it runs
    KILLED = 4  # its owner ended it


_HEALING = frozenset({int(Nature.NODE_BOUND), int(Nature.TRANSIENT)})


@dataclass(frozen=True, slots=True)
class Failures:
    """A table of which every job has attempts, and what each attempt is; rows as in ``table.attempts``."""

    table: JobTable
    nature: NDArray[np.int8]  # Nature, shape (n_attempts,)
    causes: NDArray[np.object_]  # words that attempts share, "" where it passed

    def gpu_time(self) -> dict[Nature, float]:
        """The share that attempts of each nature have in all GPU time, if all of them run."""
        tries = self.table.attempts
        assert tries is not None
        gpu_s = tries.duration_s * np.repeat(self.table.gpus, np.diff(tries.first))
        whole = float(gpu_s.sum()) or 1.0
        return {nature: float(gpu_s[self.nature == nature].sum()) / whole for nature in Nature}

    def heals(self, attempt: int) -> bool:
        """Whether retries of this failed attempt get past it, if they run where they should."""
        return int(self.nature[attempt]) in _HEALING

    def node_faults(self, seed: int) -> NodeFaults:
        """What attempts that are bound to a node leave behind there, by `seed`.

        Every node of an attempt is as likely to be the bad one. A node fault is a new one each time; the other failures
        of a job that are bound to a node are tries against one fault.
        """
        tries = self.table.attempts
        assert tries is not None
        bound = self.nature == Nature.NODE_BOUND
        again = bound & (self.causes != NODE_FAULT)
        rows = np.flatnonzero(again)
        owner = np.searchsorted(tries.first, rows, "right") - 1
        again[rows[np.diff(owner, prepend=-1) > 0]] = False
        again[tries.first[1:] - 1] = False
        pick, repair_s = np.zeros(len(bound)), np.zeros(len(bound))
        rng = _stream(seed, 3)
        pick[bound] = rng.random(int(bound.sum()))
        repair_s[bound] = draw_repairs_s(int(bound.sum()), rng)
        return NodeFaults(bound, again, pick, repair_s)


FailureModel = Callable[[JobTable, int], Failures]
"""``model(table, seed)``: the same draw for the same seed, whatever is then simulated."""


def model_named(text: str) -> FailureModel:
    """The failure model that "none", "recorded", "philly" or "nodes" names, or several as in "philly+nodes".

    The first says what fails by itself, "recorded" where it is left out; "nodes" adds faults of nodes and GPUs.
    Raises `ConfigError`.
    """
    first, *more = text.split("+")
    if first == "nodes" and not more:
        first, more = RECORDED, ["nodes"]
    if first not in MODELS or more not in ([], ["nodes"]):
        fix = f"Use one of: {', '.join(MODELS)}, nodes; or join two, as in philly+nodes"
        raise ConfigError(f"failure model {text!r}", "no failure model has that name", fix)
    model = MODELS[first].draw
    return (lambda table, seed: with_node_faults(model(table, seed), seed)) if more else model


def nothing_fails(table: JobTable, seed: int = 0) -> Failures:  # noqa: ARG001
    """Every job passes at its first attempt, after its duration."""
    n = len(table)
    tries = Attempts(np.arange(n + 1), table.duration_s.astype(np.float64), np.ones(n, np.bool_))
    return Failures(replace(table, attempts=tries), np.zeros(n, np.int8), np.full(n, "", np.object_))


def recorded(table: JobTable, seed: int = 0) -> Failures:  # noqa: ARG001
    """The attempts that the trace has. A job without any has one, that ended as the trace says of the job.

    A failed attempt heals if a later one passed, or ran until its owner killed it; a record tells no more. So a job
    that failed, of which no more is told, fails for good. One whose ending is not known passes.
    """
    tries = _completed(table)
    counts = np.diff(tries.first)
    owner = np.repeat(np.arange(len(table)), counts)
    place = np.arange(len(owner)) - tries.first[:-1][owner]
    last = place == counts[owner] - 1
    killed = last & ~tries.passed & (table.ending[owner] == TableEnding.KILLED)
    got_there = tries.passed | killed
    latest = np.full(len(table), -1)
    np.maximum.at(latest, owner[got_there], place[got_there])
    nature = np.where(latest[owner] > place, Nature.TRANSIENT, Nature.DETERMINISTIC)
    nature[tries.passed], nature[killed] = Nature.PASSED, Nature.KILLED
    words = np.array(["", "failed for good", "node bound", "healed", "killed"], np.object_)
    return Failures(replace(table, attempts=tries), nature.astype(np.int8), words[nature])


def philly(table: JobTable, seed: int, share: float = SHARE_FAILING) -> Failures:
    """Recorded attempts where the table has any; else drawn per job from the failure table of Philly.

    A `share` of the jobs fails at least once. Each failing job has one reason, and as many failed attempts as the
    table has trials a job for it. What fails for good is over then, and has failed after the same time on each try.
    What heals runs its duration after that. Jobs that the trace says failed are those that fail for good, and the
    time that they ran is shared by their tries; where it says of no job how it ended, they are drawn, and run
    times to failure come from the table, so that these jobs no longer run for the duration that the trace gives.
    """
    if table.attempts is not None:
        return recorded(table, seed)
    rng = _stream(seed, 1)
    reason = _reasons(table, share, rng)
    rows = np.flatnonzero(reason >= 0)
    trials = np.zeros(len(table), np.int64)
    trials[rows] = draw_trials(reason[rows], rng)
    heals = np.ones(len(table), np.bool_)
    heals[rows] = np.array([each.heals for each in REASONS])[reason[rows]]
    first = np.concatenate([[0], np.cumsum(trials + heals)]).astype(np.int64)
    owner = np.repeat(np.arange(len(table)), trials + heals)
    fails = np.arange(len(owner)) - first[:-1][owner] < trials[owner]
    took_s = np.where(fails, 0.0, table.duration_s[owner])
    took_s[fails] = _failed_after_s(table, reason, trials, heals, owner[fails], rng)
    passed = ~fails & (table.ending[owner] != TableEnding.KILLED)
    nature = np.where(passed, Nature.PASSED, Nature.KILLED)
    nature[fails] = _natures()[reason[owner[fails]]]
    words = np.array([*(each.name for each in REASONS), "killed"], np.object_)
    causes = np.where(passed, "", words[np.where(fails, reason[owner], -1)])
    table = replace(table, attempts=Attempts(first, took_s, passed), duration_s=_sums(took_s, first))
    return Failures(table, nature.astype(np.int8), causes)


def with_node_faults(failures: Failures, seed: int) -> Failures:
    """Add faults of nodes and GPUs to `failures`; an attempt that they interrupt starts from its beginning.

    A gang is taken to have `NODE_GPUS` on each node. Each fault is bound to the node on which it came.
    """
    table, tries = failures.table, failures.table.attempts
    assert tries is not None
    rng = _stream(seed, 2)
    owner = np.repeat(np.arange(len(table)), np.diff(tries.first))
    gpus = table.gpus[owner]
    mean_s = DAY_S / (-(-gpus // NODE_GPUS) * NODE_FAULTS_PER_DAY + gpus * GPU_FAULTS_PER_DAY)
    hit = np.arange(len(owner))
    struck, after_s = [], []
    for _ in range(_MOST_FAULTS):
        at_s = np.ceil(rng.exponential(mean_s[hit]))
        hit, at_s = hit[at_s < tries.duration_s[hit]], at_s[at_s < tries.duration_s[hit]]
        struck.append(hit)
        after_s.append(at_s)
    of = np.concatenate([*struck, np.arange(len(owner))])
    order = np.argsort(of, kind="stable")  # the faults of an attempt, then the attempt itself
    new = len(of) - len(owner)
    took_s = np.concatenate([*after_s, tries.duration_s])[order]
    passed = np.concatenate([np.zeros(new, np.bool_), tries.passed])[order]
    nature = np.concatenate([np.full(new, Nature.NODE_BOUND, np.int8), failures.nature])[order]
    causes = np.concatenate([np.full(new, NODE_FAULT, np.object_), failures.causes])[order]
    first = np.concatenate([[0], np.cumsum(np.bincount(owner[of], minlength=len(table)))]).astype(np.int64)
    table = replace(table, attempts=Attempts(first, took_s, passed), duration_s=_sums(took_s, first))
    return Failures(table, nature.astype(np.int8), causes)


class FailureForm(NamedTuple):
    """A failure model, and what it means to people."""

    draw: FailureModel
    says: str


MODELS: Mapping[str, FailureForm] = {  # a new model is a function, and an entry here; the usual one first
    RECORDED: FailureForm(recorded, "those of the trace"),
    "none": FailureForm(nothing_fails, "nothing fails"),
    "philly": FailureForm(philly, "drawn as in Philly's study"),
}
"""What fails by itself."""

FAILURE_WORDS: Mapping[str, str] = {
    **{name: form.says for name, form in MODELS.items()},
    **{
        "nodes" if name == RECORDED else f"{name}+nodes": f"{form.says}, and node failures"
        for name, form in MODELS.items()
        if name != "none"
    },
}
"""The names that people are offered, the usual one first, with what each means."""


def _completed(table: JobTable) -> Attempts:
    """The recorded attempts, and one for each job without any."""
    tries = table.attempts or Attempts(np.zeros(len(table) + 1, np.int64), np.empty(0), np.empty(0, np.bool_))
    counts = np.diff(tries.first)
    bare = np.flatnonzero(counts == 0)
    if not len(bare):
        return tries
    places = tries.first[bare]
    first = np.concatenate([[0], np.cumsum(np.maximum(counts, 1))]).astype(np.int64)
    passed = ~np.isin(table.ending[bare], (TableEnding.FAILED, TableEnding.KILLED))
    return Attempts(
        first, np.insert(tries.duration_s, places, table.duration_s[bare]), np.insert(tries.passed, places, passed)
    )


def _reasons(table: JobTable, share: float, rng: Generator) -> NDArray[np.intp]:
    """The row of `REASONS` for each job that fails, -1 for the others."""
    reason = np.full(len(table), -1)
    fails = rng.random(len(table)) < share
    reason[fails] = draw_reasons(int(fails.sum()), rng)
    if not table.ending.any():
        return reason
    heals = np.array([each.heals for each in REASONS])
    reason[fails & ~heals[reason]] = -1  # the trace tells which jobs fail for good
    failed = np.flatnonzero(table.ending == TableEnding.FAILED)
    weights = np.array([0 if each.heals else each.jobs for each in REASONS], np.float64)
    reason[failed] = rng.choice(len(REASONS), len(failed), p=weights / weights.sum())
    return reason


def _failed_after_s(
    table: JobTable,
    reason: NDArray[np.intp],
    trials: NDArray[np.int64],
    heals: NDArray[np.bool_],
    owner: NDArray[np.intp],
    rng: Generator,
) -> NDArray[np.float64]:
    """Whole seconds that each failed attempt ran, from the job that it is of."""
    drawn = draw_rtf_s(reason[owner], rng)
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    of_first = np.repeat(drawn[begins], np.diff([*begins, len(owner)]))
    took = np.where(heals[owner], drawn, of_first)
    told = ~heals[owner] & (table.ending[owner] == TableEnding.FAILED)
    took[told] = table.duration_s[owner[told]] / trials[owner[told]]
    after: NDArray[np.float64] = np.maximum(1.0, took.round())
    return after


def _natures() -> NDArray[np.int8]:
    def nature(name: str, heals: bool) -> Nature:
        if not heals:
            return Nature.DETERMINISTIC
        return Nature.NODE_BOUND if name in _OF_NODE else Nature.TRANSIENT

    return np.array([nature(each.name, each.heals) for each in REASONS], np.int8)


def _sums(took_s: NDArray[np.float64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    whole = np.concatenate([[0.0], np.cumsum(took_s)])
    sums: NDArray[np.float64] = whole[first[1:]] - whole[first[:-1]]
    return sums


def _stream(seed: int, what: int) -> Generator:
    """Draws that depend on the seed and on what they are for alone."""
    return Generator(Philox(key=[seed, what]))


def draw_repairs_s(count: int, rng: Generator) -> NDArray[np.float64]:
    """Whole seconds until this many faults are over: straight in the logarithm between the quantiles, none below
    them.
    """
    places, days = np.array([*REPAIR_DAYS.items()]).T
    drawn: NDArray[np.float64] = np.rint(np.exp(np.interp(rng.random(count), places, np.log(days))) * DAY_S)
    return drawn
