"""What the resource manager says of one job of a chain, at one look."""

from __future__ import annotations

from msgspec import Struct

from perdure.slurm_words.states import ENDS, WAITING

_WAITS = WAITING | {"RESV_DEL_HOLD"}


class LinkJob(Struct, frozen=True):
    """One job. Instants are seconds since the epoch, 0 where they are not known."""

    job_id: str
    state: str
    reason: str = ""
    submit_s: float = 0.0
    start_s: float = 0.0  # of one that waits: when it is planned
    end_s: float = 0.0  # of one that runs: its walltime's end
    chain: str = ""  # which it says that it belongs to
    key: str = ""  # and as which submission
    exit_code: int | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDS

    @property
    def waits(self) -> bool:
        return self.state in _WAITS
