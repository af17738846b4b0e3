"""What of an application is no measurement of its steps: what a restart takes, and how much slower it really ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Traits:
    """Seconds of a restart, as it is and as a policy takes it to be; how much longer steps really took; limits."""

    restart_s: float = 30.0
    expected_restart_s: float = 30.0
    slowdown: float = 1.0
    most_gpus: int | None = None  # that it can use, where it asks for none itself
    batch: int | None = None  # where it never chooses one
    largest_local: int | None = None  # examples on a GPU, where it is less than was measured


# Source: the values of the public simulator of S. Jayaram Subramanya et al., "Sia", SOSP 2023.
PUBLISHED: Mapping[str, Traits] = MappingProxyType(
    {
        "bert": Traits(120, 120, 1.2),
        "cifar10": Traits(50, 30, 1.8),
        "deepspeech2": Traits(25, 25, 1.2),
        "gpt_pmp": Traits(),
        "imagenet": Traits(250, 250, 1.2),
        "ncf": Traits(15, 30, 1.5),
        "yolov3": Traits(80, 45, 1.2),
    }
)

# Source: the public simulator of A. Qiao et al., "Pollux", OSDI 2021.
POLLUX: Mapping[str, Traits] = MappingProxyType(
    {name: Traits() for name in ("bert", "cifar10", "deepspeech2", "imagenet")}
    | {"ncf": Traits(most_gpus=1, batch=32768), "yolov3": Traits(largest_local=8)}
)
