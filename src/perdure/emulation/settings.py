"""What a user asked of an emulation, as it is handed to each process of a program."""

from __future__ import annotations

import os

from msgspec import Struct, json

VARIABLE = "PERDURE_EMULATE"
"""The environment variable that holds it, as JSON; processes that a program starts have it too."""


class EmulationSettings(Struct, frozen=True, omit_defaults=True):
    """The options of ``perdure emulate run``."""

    gpu: str
    model: str
    gpus: int = 1
    virtual: bool = False
    profiles: str = ""
    jitter: float = 0.0
    seed: int = 0
    faults: tuple[str, ...] = ()
    link_gbit: float = 100.0
    transport: str = "tcp"
    inside: str = "pcie"
    report: str = ""
    kernel_log: str = ""
    share: str = ""  # the socket of a manager that programs share a GPU by, or a folder of one for each GPU
    numbers: tuple[int, ...] = ()  # of the GPUs on their node; without, from 0 on

    def number(self, index: int) -> int:
        """The node's number of the program's GPU `index`."""
        return self.numbers[index] if index < len(self.numbers) else index


def given() -> EmulationSettings:
    """The settings of this process."""
    return json.decode(os.environ[VARIABLE], type=EmulationSettings)


def as_variable(settings: EmulationSettings) -> str:
    return json.encode(settings).decode()
