"""The true speed of jobs that scale ideally, for tests of policies that ask an oracle."""

from __future__ import annotations


class IdealSpeed:
    """Twice the GPUs, half the time."""

    def step_s(self, gpu_type: int, gpus: int) -> float:
        return 1.0 / gpus

    def steps_left(self) -> float:
        return 1.0

    def most_gpus(self) -> int:
        return 8
