"""Columns of Slurm's words: what is a number, and how each state ends a job."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.model.table import TableEnding
from perdure.traces.slurm_cells import counts, instants, slurm_ending


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("COMPLETED", TableEnding.PASSED),
        *((state, TableEnding.KILLED) for state in ("CANCELLED by 1000", "TIMEOUT", "DEADLINE", "REVOKED")),
        *((state, TableEnding.KILLED) for state in ("PREEMPTED", "REQUEUED", "RESIZING")),
        *((state, TableEnding.FAILED) for state in ("FAILED", "NODE_FAIL", "OUT_OF_ME+", "BOOT_FAIL")),
        *((state, TableEnding.UNKNOWN) for state in ("RUNNING", "", "COMPLET")),
    ],
)
def test_a_state_ends_a_job(state: str, ending: TableEnding) -> None:
    assert slurm_ending(state) is ending


def test_of_a_number_with_more_digits_than_any_count_has_nothing_is_known() -> None:
    cells = np.array([b"42", b"12345678901", b"123456789012", b"4x", b""])
    assert counts(cells).tolist() == [42, 12345678901, 0, 0, 0]
    assert np.isnan(instants(cells)).tolist() == [False, False, True, True, True]
