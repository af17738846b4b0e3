"""The demonstration workload as data: which programs arrive when, what is done to the nodes, and what each shows.

A scenario is a short story of jobs and faults that need one another. A round tells all scenarios once: the first
within minutes, so that there is much to see, the later ones slowly, without end. Programs that fail beside a
companion (a port taken, a lock held) truly meet it: the companion holds the thing while they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from numpy.random import Generator

from perdure.model.jobs import Wish


class Truth(StrEnum):
    """What is known of a program, because it was written to be so."""

    GOOD = "good"  # nothing is wrong with it
    DETERMINISTIC = "deterministic"  # it fails however often it is tried
    TRANSIENT = "transient"  # it fails by what happens around it; a later try, elsewhere, passes


class End(StrEnum):
    """What should become of a job in the end."""

    COMPLETED = "completed"
    STOPPED = "stopped"  # failed, explained, and not tried again


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that arrives `after_s` seconds into its scenario."""

    after_s: float
    name: str
    user: str
    program: str  # a file of `perdure.demo.programs`
    truth: Truth
    shows: str  # a text that its first attempt's log holds
    args: tuple[str, ...] = ()  # "{key}" becomes a word that is the same within a scenario and new in each round
    category: str = ""  # of the cause that should be found; "" where nothing fails, or nothing tells
    tells: bool = True  # False where no reader of the log could be sure; one probing retry can
    gpu_quarters: int = 0  # GPUs on each node, in quarters of what a node has
    node_count: int = 1
    least_nodes: int = 1  # a smaller site is left without it
    pin: int | None = None  # the node it must start on, counted from 0; unpinned ones crowd on the first that fits
    walltime_s: float = 120.0
    early_signal_s: float = 0.0  # USR1 comes this long before the walltime is over; 0 is never
    memory_mib: int | None = None
    file_size_mib: int | None = None
    may_requeue: bool = True
    requeue_on_node_fail: bool = True  # by the cluster itself
    wish: Wish = Wish.AUTO
    priority: int = 0
    preemptible: bool = False
    fenced: bool = False  # runs under ``perdure exec``

    @property
    def end(self) -> End:
        """What should become of it: only transient failures are recovered, and only where the owner lets us."""
        refused = not self.may_requeue or self.wish is Wish.NEVER
        stops = self.truth is Truth.DETERMINISTIC or (self.truth is Truth.TRANSIENT and refused)
        return End.STOPPED if stops else End.COMPLETED


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Something that is done to a node, `after_s` seconds into a scenario."""

    after_s: float
    node: int  # counted from 0
    what: Literal["fail", "freeze", "thaw", "return"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs and faults that belong together, `at_s` seconds into a round."""

    at_s: float
    tells: str
    steps: tuple[Arrival | PlannedFault, ...]

    @property
    def has_fault(self) -> bool:
        return any(isinstance(step, PlannedFault) for step in self.steps)


@dataclass(frozen=True, slots=True)
class Timed:
    """One step of a round, at its instant in seconds since the demonstration began."""

    at_s: float
    step: Arrival | PlannedFault
    key: str  # the same for all steps of one scenario in one round


ROUND_S = 300.0
STRETCH = 6.0
"""How much slower the later rounds are: their retries stay within what a small cluster is allowed in an hour."""

JITTER_S = 15.0

GOOD, DETERMINISTIC, TRANSIENT = Truth.GOOD, Truth.DETERMINISTIC, Truth.TRANSIENT

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        0.0,
        "a run that is well",
        (Arrival(0, "resnet-8", "mira", "resnet.py", GOOD, "finished: weight", gpu_quarters=1, fenced=True),),
    ),
    Scenario(
        0.5,
        "two arrays that do not fit",
        (
            Arrival(
                0,
                "unet-w48",
                "jonas",
                "unet.py",
                DETERMINISTIC,
                "ValueError: matmul",
                category="shape",
                gpu_quarters=1,
                pin=1,
            ),
        ),
    ),
    Scenario(
        1.0,
        "a port that another job on the node holds",
        (
            Arrival(0, "notebook", "aiko", "notebook.py", GOOD, "listening on port", pin=0),
            Arrival(
                3,
                "seg-board",
                "mira",
                "board.py",
                TRANSIENT,
                "Address already in use",
                category="port_busy",
                gpu_quarters=1,
                pin=0,
            ),
        ),
    ),
    Scenario(
        1.5,
        "a data set that is not there",
        (
            Arrival(
                0,
                "asr-100h",
                "aiko",
                "speech.py",
                DETERMINISTIC,
                "FileNotFoundError",
                category="missing_file",
                gpu_quarters=1,
                pin=2,
            ),
        ),
    ),
    Scenario(
        2.5,
        "a program that is not one",
        (
            Arrival(
                0,
                "ablation-dropout",
                "tunde",
                "ablation.py",
                DETERMINISTIC,
                "SyntaxError: expected ':'",
                category="syntax",
                gpu_quarters=1,
                pin=3,
            ),
        ),
    ),
    Scenario(12.0, "a sweep that is well", (Arrival(0, "lr-sweep", "tunde", "sweep.py", GOOD, "finished", pin=3),)),
    Scenario(
        18.0,
        "a server that refuses, and comes back",
        (
            Arrival(0, "params", "jonas", "params.py", GOOD, "finished: clients served", args=("params-{key}",)),
            Arrival(
                2,
                "recsys",
                "jonas",
                "recsys.py",
                TRANSIENT,
                "ConnectionRefusedError",
                args=("params-{key}",),
                category="net",
                gpu_quarters=1,
                pin=3,
            ),
        ),
    ),
    Scenario(
        30.0,
        "a learning rate that is too high",
        (
            Arrival(
                0,
                "diffusion-lr40",
                "mira",
                "diffusion.py",
                DETERMINISTIC,
                "loss is nan",
                category="numeric",
                gpu_quarters=2,
                pin=2,
            ),
        ),
    ),
    Scenario(
        40.0,
        "a rank that is killed, and its peer",
        (
            Arrival(
                0,
                "bert-ddp",
                "tunde",
                "bert.py",
                TRANSIENT,
                "ConnectionResetError",
                tells=False,
                gpu_quarters=1,
                node_count=2,
            ),
        ),
    ),
    Scenario(52.0, "data preparation that is well", (Arrival(0, "prep", "aiko", "prep.py", GOOD, "finished", pin=1),)),
    Scenario(
        60.0,
        "a node that dies under a run, and returns a minute later",
        (
            Arrival(
                0,
                "resnet-32",
                "jonas",
                "resnet.py",
                TRANSIENT,
                "checkpoint saved at step 10",
                args=("--steps", "50"),
                category="node_loss",
                gpu_quarters=2,
                pin=1,
                requeue_on_node_fail=False,
                fenced=True,
            ),
            PlannedFault(12, 1, "fail"),
            PlannedFault(60, 1, "return"),
        ),
    ),
    Scenario(
        80.0,
        "a package that is not installed",
        (
            Arrival(
                0,
                "longctx-128k",
                "mira",
                "longctx.py",
                DETERMINISTIC,
                "ModuleNotFoundError",
                category="config",
                gpu_quarters=1,
                pin=3,
            ),
        ),
    ),
    Scenario(
        90.0,
        "an index that another job is writing",
        (
            Arrival(0, "reindex", "aiko", "reindex.py", GOOD, "finished"),
            Arrival(
                3,
                "retrieval",
                "aiko",
                "retrieval.py",
                TRANSIENT,
                "database is locked",
                category="lock",
                gpu_quarters=1,
                pin=2,
            ),
            Arrival(
                4,
                "retrieval-once",
                "tunde",
                "retrieval.py",
                TRANSIENT,
                "database is locked",
                category="lock",
                gpu_quarters=1,
                may_requeue=False,
                pin=1,
            ),
        ),
    ),
    Scenario(
        110.0,
        "a checkpoint larger than files may be, and the run that starts from its half",
        (
            Arrival(
                0,
                "lm-pretrain",
                "mira",
                "lm_pretrain.py",
                DETERMINISTIC,
                "File too large",
                category="disk_quota",
                gpu_quarters=1,
                file_size_mib=2,
                pin=2,
            ),
            Arrival(
                14,
                "lm-finetune",
                "mira",
                "lm_finetune.py",
                DETERMINISTIC,
                "BadZipFile",
                category="ckpt",
                gpu_quarters=1,
                pin=3,
            ),
        ),
    ),
    Scenario(134.0, "an evaluation that is well", (Arrival(0, "eval", "jonas", "evaluate.py", GOOD, "finished"),)),
    Scenario(
        142.0,
        "a walltime shorter than the work",
        (
            Arrival(
                0,
                "resnet-long",
                "tunde",
                "resnet.py",
                DETERMINISTIC,
                "SIGUSR1: the walltime is near",
                args=("--steps", "400"),
                category="time_limit",
                gpu_quarters=1,
                pin=1,
                walltime_s=15.0,
                early_signal_s=5.0,
            ),
        ),
    ),
    Scenario(
        156.0,
        "a tool that may not be run",
        (
            Arrival(
                0,
                "tokenise",
                "aiko",
                "tokenise.py",
                DETERMINISTIC,
                "PermissionError",
                category="permission",
                pin=2,
            ),
        ),
    ),
    Scenario(
        166.0,
        "an urgent job that pushes another aside",
        (
            Arrival(
                0,
                "resnet-low",
                "jonas",
                "resnet.py",
                TRANSIENT,
                "SIGTERM: asked to leave",
                args=("--steps", "50"),
                category="preempt",
                gpu_quarters=3,
                pin=3,
                preemptible=True,
                fenced=True,
            ),
            Arrival(8, "eval-urgent", "mira", "evaluate.py", GOOD, "finished", gpu_quarters=2, pin=3, priority=10),
        ),
    ),
    Scenario(
        186.0,
        "more memory than was asked for",
        (
            Arrival(
                0,
                "gnn-full",
                "tunde",
                "graph.py",
                DETERMINISTIC,
                "Unable to allocate",
                category="host_oom",
                gpu_quarters=2,
                memory_mib=512,
                pin=1,
            ),
        ),
    ),
    Scenario(
        198.0,
        "a node that freezes under a run, and thaws when the run has gone on elsewhere",
        (
            Arrival(
                0,
                "resnet-16",
                "mira",
                "resnet.py",
                TRANSIENT,
                "checkpoint saved at step 10",
                args=("--steps", "60"),
                category="node_loss",
                gpu_quarters=2,
                pin=2,
                requeue_on_node_fail=False,
                fenced=True,
            ),
            PlannedFault(12, 2, "freeze"),
            PlannedFault(45, 2, "thaw"),
        ),
    ),
    Scenario(
        214.0,
        "an option that no longer exists",
        (
            Arrival(
                0,
                "distill",
                "jonas",
                "distill.py",
                DETERMINISTIC,
                "unrecognized arguments: --warmup-steps",
                args=("--teacher", "resnet-32", "--warmup-steps", "500"),
                category="config",
                gpu_quarters=1,
                pin=1,
            ),
        ),
    ),
    Scenario(
        226.0,
        "a label beyond the last class",
        (
            Arrival(
                0,
                "classify-10",
                "jonas",
                "classify.py",
                DETERMINISTIC,
                "IndexError: index 10 is out of bounds",
                category="index",
                gpu_quarters=1,
                pin=2,
            ),
        ),
    ),
    Scenario(
        252.0,
        "a rank that never arrives, and the watchdog of its peer",
        (
            Arrival(0, "warm-cache", "aiko", "warm_cache.py", GOOD, "holding the cache lock", pin=0),
            Arrival(
                3,
                "moe-2x",
                "tunde",
                "moe.py",
                TRANSIENT,
                "watchdog: all_reduce",
                category="hang",
                gpu_quarters=1,
                node_count=2,
                pin=0,
            ),
        ),
    ),
    Scenario(
        262.0,
        "another run that is well",
        (Arrival(0, "resnet-8b", "aiko", "resnet.py", GOOD, "finished: weight", gpu_quarters=2, fenced=True),),
    ),
)


LONG_RUN = Arrival(
    0, "lm-small", "jonas", "resnet.py", GOOD, "finished: weight", args=("--steps", "440"), gpu_quarters=1, pin=0,
    walltime_s=600.0, least_nodes=2,
)  # fmt: skip
"""What runs between the scenarios of the later rounds, of which there is one a minute or none."""
LONG_RUN_EVERY_S = 230.0


def round_start_s(number: int) -> float:
    """When round `number` (from 0) begins, in seconds since the demonstration began."""
    return 0.0 if number == 0 else ROUND_S + (number - 1) * ROUND_S * STRETCH


def a_round(number: int, rng: Generator, scenarios: Sequence[Scenario] = SCENARIOS) -> tuple[Timed, ...]:
    """The steps of round `number` (from 0), by time.

    The first round tells the scenarios as they stand. Later ones take `STRETCH` times as long, though within a
    scenario nothing slows down, and long runs fill the time between them; scenarios without a fault change places and
    shift by up to `JITTER_S` seconds.
    """
    told = list(scenarios) if number == 0 else _mixed(scenarios, rng)
    steps = []
    for scenario in told:
        key = f"{number}-{int(rng.integers(1 << 30)):08x}"
        start_s = round_start_s(number) + scenario.at_s
        steps += [Timed(start_s + step.after_s, step, key) for step in scenario.steps]
    if number:
        runs = range(int(ROUND_S * STRETCH // LONG_RUN_EVERY_S) + 1)
        steps += [Timed(round_start_s(number) + run * LONG_RUN_EVERY_S, LONG_RUN, f"{number}-{run}") for run in runs]
    return tuple(sorted(steps, key=lambda timed: timed.at_s))


def _mixed(scenarios: Sequence[Scenario], rng: Generator) -> list[Scenario]:
    free = [scenario for scenario in scenarios if not scenario.has_fault]
    places = [scenario.at_s for scenario in free]
    moved = [
        replace(free[int(i)], at_s=at_s * STRETCH + float(rng.uniform(0, JITTER_S)))
        for at_s, i in zip(places, rng.permutation(len(free)), strict=True)
    ]
    return [*moved, *(replace(s, at_s=s.at_s * STRETCH) for s in scenarios if s.has_fault)]
