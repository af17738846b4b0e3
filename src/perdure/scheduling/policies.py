"""The registry of scheduling policies: a name, perhaps with an argument, to a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, nan
from typing import Literal, NamedTuple

from perdure.errors import ConfigError
from perdure.scheduling import backfill, capacity, drf, fifo, las, maxmin, philly, shortest, tetris
from perdure.scheduling.live_limits import LiveLimits, UnderLimits
from perdure.scheduling.protocol import PlanningPolicy, Policy
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import SchedulerSettings

Compat = Literal["tiresias"]


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Settings that policies share; each takes those that concern it, and ignores the others.

    `compat` "tiresias" makes policies repeat the schedules of Tiresias' public simulator, its late demotions and its
    order of equals included.
    """

    queue_limits: tuple[float, ...] = las.QUEUE_LIMITS  # (GPU-)seconds of service at which a job sinks a queue
    gittins_samples: tuple[float, ...] = ()  # services of past jobs in GPU-seconds; empty: those of the trace
    quotas: Mapping[str, float] = field(default_factory=dict)  # GPUs of each virtual cluster; empty: by demand
    compat: Compat | None = None
    slurm: SchedulerSettings = field(default_factory=SchedulerSettings)
    limits: LiveLimits | None = None  # within which a preemptive policy is put in force; None: at once, and always

    @property
    def like_tiresias(self) -> bool:
        return self.compat == "tiresias"


Maker = Callable[[str, PolicyOptions], Policy]


def _sjf(argument: str, options: PolicyOptions) -> Policy:
    if options.like_tiresias:  # there "sjf" is fewest GPUs first
        return shortest.FewestGpus(inert=True)
    return shortest.ShortestJob(blocks=_flag("sjf", argument, "skip"))


def _conservative(argument: str, options: PolicyOptions) -> Policy:  # noqa: ARG001
    keeps = _flag("conservative", argument, "replan")
    return backfill.Conservative() if keeps else backfill.ReplannedConservative()


def _las(counts_gpus: bool) -> Maker:
    """A maker that reads the promote knob from the argument."""

    def make(argument: str, options: PolicyOptions) -> Policy:
        return las.LeastAttained(counts_gpus, options.queue_limits, _knob(argument), options.like_tiresias)

    return make


def _gittins(argument: str, options: PolicyOptions) -> Policy:
    _none("gittins-2d", argument)
    return las.Gittins2D(
        queue_limits=options.queue_limits, late_demotion=options.like_tiresias, samples=options.gittins_samples
    )


def _plain(name: str, make: Callable[[PolicyOptions], Policy]) -> Maker:
    """A maker that refuses an argument."""

    def checked(argument: str, options: PolicyOptions) -> Policy:
        _none(name, argument)
        return make(options)

    return checked


def _philly(argument: str, options: PolicyOptions) -> Policy:
    most = _most("philly", argument)
    return philly.Philly(options.quotas, most=most, name=_with(argument, "philly", most))


def _capacity(argument: str, options: PolicyOptions) -> Policy:
    most = _most("capacity", argument)
    return capacity.Capacity(options.quotas, most, name=_with(argument, "capacity", most))


class PolicyForm(NamedTuple):
    """What makes a policy of its argument and the options, what the field calls it, and how it chooses."""

    make: Maker
    title: str
    chooses: str


POLICIES: dict[str, PolicyForm] = {  # a new policy is a file, and an entry here
    "fifo": PolicyForm(_plain("fifo", lambda _: fifo.Fifo()), "FIFO", "First come, first served; nothing overtakes"),
    "fjf": PolicyForm(
        _plain("fjf", lambda _: fifo.Fifo(blocks=False)),
        "FIFO, first fit",
        "First come, first served; jobs that do not fit are passed over",
    ),
    "sjf": PolicyForm(_sjf, "SJF", "Shortest job first"),
    "fewest-gpus": PolicyForm(
        _plain("fewest-gpus", lambda options: shortest.FewestGpus(options.like_tiresias)),
        "Fewest GPUs first",
        "The job that asks for the fewest GPUs goes first",
    ),
    "srtf": PolicyForm(
        _plain("srtf", lambda options: shortest.ShortestRemaining(options.like_tiresias)),
        "SRTF",
        "Shortest remaining time first, preemptive",
    ),
    "srsf": PolicyForm(
        _plain("srsf", lambda options: shortest.ShortestService(options.like_tiresias)),
        "SRSF",
        "Shortest remaining service (GPU time) first, preemptive",
    ),
    "las": PolicyForm(_las(counts_gpus=False), "LAS", "Least attained service, counted in time"),
    "las-2d": PolicyForm(
        _las(counts_gpus=True), "Tiresias-LAS", "Least attained service, counted in GPU time (2D-LAS)"
    ),
    "gittins-2d": PolicyForm(
        _gittins, "Tiresias-Gittins", "Highest Gittins index: most likely to end soon (2D-Gittins)"
    ),
    "philly": PolicyForm(_philly, "Philly", "Quotas of virtual clusters; idle GPUs are lent"),
    "capacity": PolicyForm(_capacity, "Capacity scheduler", "Guaranteed shares of virtual clusters"),
    "drf": PolicyForm(_plain("drf", lambda _: drf.DominantShare()), "DRF", "Dominant resource fairness"),
    "tetris": PolicyForm(_plain("tetris", lambda _: tetris.Tetris()), "Tetris", "Multi-resource packing"),
    "easy": PolicyForm(
        _plain("easy", lambda _: backfill.Easy()),
        "EASY backfilling",
        "FIFO; later jobs may start if they do not delay the first in the queue",
    ),
    "conservative": PolicyForm(
        _conservative, "Conservative backfilling", "FIFO; every job is promised a start, which no later job may delay"
    ),
    "maxmin": PolicyForm(
        _plain("maxmin", lambda _: maxmin.MaxMin()),
        "Max-min fairness",
        "In rounds: whoever has had the least of their share goes first (Gavel)",
    ),
    "slurm": PolicyForm(
        _plain("slurm", lambda options: Slurm(options.slurm)),
        "Slurm",
        "By Slurm's defaults: in the order of arrival, each job that waits has a reservation",
    ),
}
ALIASES = {
    "shortest": "srtf",
    "shortest-gpu": "srsf",
    "dlas": "las",
    "dlas-gpu": "las-2d",
    "dlas-gpu-gittins": "gittins-2d",
}


def policy_named(text: str, options: PolicyOptions | None = None) -> Policy:
    """The policy that "srtf", "las-2d:8" or an alias such as "dlas-gpu-8" names. Raises `ConfigError`.

    What is behind a colon is the policy's argument: the knob of ``las`` and ``las-2d``, ``skip`` for ``sjf``,
    ``replan`` for ``conservative``, and for ``philly`` and ``capacity`` how many times its quota a virtual cluster may
    hold.

    >>> policy_named("dlas-gpu-8").name
    'las-2d:8'
    """
    name, argument = _parted(text)
    if name not in POLICIES:
        from perdure.scheduling.elastic_policies import ELASTIC  # which loads SciPy

        if name in ELASTIC:
            fix = "Use perdure whatif elastic, with a folder of measured profiles"
            raise ConfigError(f"policy {text!r}", "it plans for jobs that name an application", fix)
        raise ConfigError(f"policy {text!r}", "no policy has that name", f"Use one of: {', '.join(POLICIES)}")
    options = options or PolicyOptions()
    found = POLICIES[name].make(argument, options)
    if options.limits is None or isinstance(found, PlanningPolicy) or not found.preemptive:
        return found
    return UnderLimits(found, options.limits)


def how_it_chooses(text: str) -> str:
    """A policy in words; nothing of one that is not here.

    >>> how_it_chooses("dlas-gpu-8")
    'Least attained service, counted in GPU time (2D-LAS)'
    """
    name, _ = _parted(text)
    return POLICIES[name].chooses if name in POLICIES else ""


def _parted(text: str) -> tuple[str, str]:
    """The name of a policy here, and its argument."""
    name, _, argument = text.partition(":")
    name = ALIASES.get(name, name)
    if name not in POLICIES and name.startswith("dlas-gpu-") and not argument:
        return "las-2d", name.removeprefix("dlas-gpu-")
    return name, argument


def _knob(argument: str) -> float:
    """The promote knob, 0 unless given. Raises `ConfigError`."""
    try:
        knob = float(argument or 0)
    except ValueError:
        knob = -1.0
    if not 0 <= knob < 1e6:
        raise ConfigError("policy las-2d", f"{argument!r} is not a promote knob", "Write it like las-2d:8")
    return knob


def _most(name: str, argument: str) -> float:
    """How many times its quota a virtual cluster may hold; no limit unless given. Raises `ConfigError`."""
    try:
        most = float(argument) if argument else inf
    except ValueError:
        most = nan
    if not most >= 1 or (argument and most == inf):
        raise ConfigError(f"policy {name}", f"{argument!r} is not a cap of 1 or more", f"Write it like {name}:1.5")
    return most


def _with(argument: str, name: str, number: float) -> str:
    return f"{name}:{number:g}" if argument else name


def _flag(name: str, argument: str, word: str) -> bool:
    """Whether the only argument that `name` knows was left out."""
    if argument not in ("", word):
        raise ConfigError(f"policy {name}", f"it takes no {argument!r}", f"Write {name} or {name}:{word}")
    return not argument


def _none(name: str, argument: str) -> None:
    if argument:
        raise ConfigError(f"policy {name}", f"it takes no argument, got {argument!r}", f"Write {name}")
