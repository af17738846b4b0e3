"""How frameworks want to be told that the end is near.

torchrun's agent ends its workers at TERM, which leaves them 30 s and loses their exit codes: its workers are told TERM
where they listen, and else the agent. Lightning saves and requeues on USR1, submitit on USR2
(or ``SUBMITIT_PREEMPT_SIGNAL``), in every process that has a handler. Anything else is told TERM where it listens.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from pathlib import PurePath

from perdure.errors import ConfigError


class Framework(StrEnum):
    """What drives the program."""

    AUTO = "auto"
    TORCHRUN = "torchrun"
    LIGHTNING = "lightning"
    SUBMITIT = "submitit"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class PrestopSignal:
    """A signal before walltime, and whether it is for the workers of an agent and not for the agent."""

    signum: int
    workers: bool = False
    spares_launchers: bool = False  # srun and its like do not get it: whoever sends it tells their tasks


_NUMBER = re.compile("[1-9][0-9]?")
FRAMEWORK_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals by which a resource manager warns (``sbatch --signal``). torchrun's agent has no handler for them and would
end: it is started with both ignored, and so are its workers, until they listen."""

_TORCHRUN = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic",
    "accelerate.commands.launch",
}  # fmt: skip
_LIGHTNING = {"lightning", "pytorch_lightning", "lightning.pytorch", "lightning_fabric", "fabric", "litgpt"}
_SUBMITIT_SIGNAL = "SUBMITIT_PREEMPT_SIGNAL"
_SUBMITIT = {"submitit.core._submit", "submitit"}


def recognised(argv: Sequence[str], environment: Mapping[str, str]) -> Framework:
    """Guess the framework from a command and its environment; `PLAIN` where neither tells. What follows the name of a
    script is the script's."""
    words = {PurePath(word).name for word in takewhile(lambda word: not word.endswith(".py"), argv)}
    if words & _SUBMITIT or "SUBMITIT_EXECUTOR" in environment:
        return Framework.SUBMITIT
    if words & _TORCHRUN or {"accelerate", "launch"} <= words:
        return Framework.TORCHRUN
    if words & _LIGHTNING or any(name.startswith(("PL_", "LIGHTNING_")) for name in environment):
        return Framework.LIGHTNING
    return Framework.PLAIN


def prestop_signal_of(framework: Framework, environment: Mapping[str, str]) -> PrestopSignal:
    """What a framework expects before walltime. Raises `ConfigError` where its own setting is not a signal."""
    if framework is Framework.LIGHTNING:
        return PrestopSignal(signal.SIGUSR1)
    if framework is Framework.SUBMITIT:
        return PrestopSignal(signal_of(environment.get(_SUBMITIT_SIGNAL, "USR2"), _SUBMITIT_SIGNAL))
    return PrestopSignal(signal.SIGTERM, workers=framework is Framework.TORCHRUN)


def framework_of(name: str) -> Framework:
    """Raises `ConfigError`."""
    try:
        return Framework(name)
    except ValueError as err:
        fix = f"Name one of {', '.join(Framework)}"
        raise ConfigError("--framework", f"{name[:40]!r} is not a framework", fix) from err


def signal_of(name: str, where: str) -> int:
    """The number of a signal: of ``USR1``, ``SIGUSR1``, or ``35``, which has no name. Raises `ConfigError`."""
    plain = name.upper().removeprefix("SIG")
    if _NUMBER.fullmatch(plain) and int(plain) < signal.NSIG:
        return int(plain)
    try:
        return signal.Signals[f"SIG{plain}"].value
    except KeyError as err:
        raise ConfigError(where, f"{name[:40]!r} is not a signal", "Name one such as TERM, USR1 or USR2") from err
