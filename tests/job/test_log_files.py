"""Which files of a job's processes are read as its logs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.job.logfiles import own_logs_of


@pytest.mark.parametrize(
    ("name", "mode", "is_read"),
    [
        ("train.log", "w", True),
        ("train.log", "a", True),
        ("train.log", "r+", True),
        ("train.log", "r", False),
        ("model.pt", "w", False),
    ],
)
def test_a_log_of_its_own_is_what_a_process_has_open_to_write(
    tmp_path: Path, name: str, mode: str, is_read: bool
) -> None:
    path = tmp_path / name
    path.touch()
    with path.open(mode):
        found = [os.readlink(each) for each in own_logs_of([os.getpid()])]
    assert (str(path) in found) is is_read


def test_a_process_that_has_gone_has_no_logs() -> None:
    assert not list(own_logs_of([2**22 + 1]))
