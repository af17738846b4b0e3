"""What a user submits to the embedded cluster."""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping

from msgspec import Struct, field

from perdure.errors import InputError
from perdure.model.jobs import PolicyConsent, RetryPreference


class JobSpec(Struct, frozen=True):
    """One job: `argv` runs once on each of `node_count` nodes, all tasks started together or none.

    Raises `InputError` where a value makes no sense by itself; whether it fits the cluster is the cluster's word.
    """

    argv: tuple[str, ...]
    name: str = ""  # "" takes the program's name
    user: str = ""  # a label; "" takes the submitter's login name
    gpus_per_node: int = 0
    node_count: int = 1
    min_nodes: int = 0  # that a restart may have where no more can be used; 0: none fewer than `node_count`
    walltime_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # on top of a small base; the cluster's variables win
    workdir: str = ""  # "" takes the submitter's
    memory_mib: int | None = None  # of address space, for each process
    file_size_mib: int | None = None  # of each file written, the log included
    may_requeue: bool = True
    requeue_on_node_fail: bool = True  # by the cluster itself, as Slurm does with JobRequeue=1
    max_requeues: int | None = None  # None is no limit
    wish: RetryPreference = RetryPreference.AUTO
    priority: int = 0  # higher goes first
    preemptible: bool = False  # by a job of higher priority that does not fit otherwise
    exclude: tuple[str, ...] = ()
    require: tuple[str, ...] = ()  # all of these are among its nodes
    signal: str = ""  # such as "USR1"; sent `signal_before_s` seconds before the walltime is over
    signal_before_s: float = 0.0
    consent: PolicyConsent = PolicyConsent.NONE  # what a scheduling policy may do with it
    delay_s: float = 0.0  # does not start before this many seconds have passed
    hold: bool = False

    def __post_init__(self) -> None:
        if fault := next((text for wrong, text in self._faults() if wrong), ""):
            raise InputError("job", fault, "Correct the job and submit it again")

    def _faults(self) -> tuple[tuple[bool, str], ...]:
        limits = {"walltime_s": self.walltime_s, "memory_mib": self.memory_mib, "file_size_mib": self.file_size_mib}
        low = next((f"{name}={value:g}" for name, value in limits.items() if value is not None and value <= 0), "")
        texts = (*self.argv, self.name, self.user, self.workdir, *self.env, *self.env.values())
        return (
            (not self.argv or not self.argv[0], "no program to run"),
            (any("\0" in text for text in texts), "a text holds a NUL character"),
            (any(not key or "=" in key for key in self.env), "a variable's name is empty or holds '='"),
            (self.node_count < 1, f"node_count={self.node_count} is below 1"),
            (not 0 <= self.min_nodes <= self.node_count, f"min_nodes={self.min_nodes} is not in 0-{self.node_count}"),
            (self.gpus_per_node < 0, f"gpus_per_node={self.gpus_per_node} is below 0"),
            (bool(low), f"{low} is not above 0"),
            (self.delay_s < 0 or self.signal_before_s < 0, "a time is below 0"),
            (self.max_requeues is not None and self.max_requeues < 0, f"max_requeues={self.max_requeues} is below 0"),
            (len(self.require) > self.node_count, f"{len(self.require)} nodes required, {self.node_count} asked for"),
            (bool({*self.require} & {*self.exclude}), "a node is both required and excluded"),
            (bool(self.signal) and signal_number(self.signal) is None, f"no signal is called {self.signal!r}"),
        )


def signal_number(name: str) -> int | None:
    """The number of "USR1" or "SIGUSR1"; None where there is no such signal.

    >>> signal_number("SIGTERM") == signal_number("TERM") == 15
    True
    """
    full = name if name.startswith("SIG") else f"SIG{name}"
    return signals.Signals[full].value if full in signals.Signals.__members__ else None
