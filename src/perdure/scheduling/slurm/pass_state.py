"""What a pass of slurmctld reads and writes: what jobs hold, how long they may run, and why the others wait."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from perdure.scheduling.slurm.eligible import Eligible, SlurmReason
from perdure.scheduling.slurm.limits import LimitCounts
from perdure.scheduling.slurm.requests import JobRequests
from perdure.scheduling.slurm.usage import DecayedUsage
from perdure.scheduling.view import View


@dataclass(slots=True)
class PassState:
    """The state of one run, shared by the main pass and the backfill cycles.

    A pass names a job; whether it was started the view tells afterwards, and `take_note` books it: counts of limits and
    usage change there and in `leave` alone.
    """

    view: View
    requests: JobRequests
    usage: DecayedUsage | None  # None: no priority depends on it
    eligible: Eligible
    counts: LimitCounts = field(default_factory=LimitCounts)

    @property
    def holds(self) -> dict[int, SlurmReason]:
        """What holds each job that waits, as the last pass found it."""
        return self.eligible.holds

    def length(self, row: int) -> int:
        """Ticks that a job is expected to take: its limit, or its true running time where nobody set one."""
        return max(1, int(self.requests.limit[row]) or self.view.work[row])

    def expected_end(self, row: int) -> int:
        """Of a running job; one that has outstayed its limit is expected to end next."""
        return max(self.view.now + 1, self.view.running[row] + self.length(row))

    def limited(self, row: int) -> str | None:
        """The limit that a job would exceed by starting now."""
        holders = self.requests.holders[row]
        return self.counts.reason(holders, self.view.gpus[row]) if holders else None

    def wait(self, row: int, reason: str, ahead: int) -> None:
        """A pass has found what holds a job; when it was planned to start stays as the last cycle found it."""
        self.holds[row] = replace(self.holds[row], reason=reason, ahead=ahead)

    def take_note(self, row: int) -> bool:
        """Whether a job that a pass has named was started; if so, it holds its GPUs, and nothing holds it."""
        if row not in self.view.running:
            return False
        self.eligible.start(row)
        self._hold(row, self.view.gpus[row])
        return True

    def leave(self, row: int) -> None:
        """A job's attempt is over."""
        self._hold(row, -self.view.gpus[row])

    def _hold(self, row: int, gpus: int) -> None:
        self.counts.hold(self.requests.holders[row], gpus)
        if self.usage is not None:
            self.usage.hold(self.requests.associations.of_job[row], gpus, self.view.now)
