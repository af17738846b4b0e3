"""What slurm.conf says, as scontrol prints it."""

import pytest

from perdure.backends.slurm.config import read_config


@pytest.mark.parametrize(
    ("said", "expected"),
    [("75", {75}), ("75,100-102", {75, 100, 101, 102}), ("(null)", set()), ("9-7,x,300-999999999", set())],
)
def test_lists_of_exit_codes_are_read(said: str, expected: set[int]) -> None:
    config = read_config(f"ClusterName             = c\nRequeueExit             = {said}\n".encode(), "m")
    assert config.codes("RequeueExit") == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [("accounting_storage/slurmdbd", True), ("accounting_storage/none", False), ("(null)", False)],
)
def test_whether_a_slurmdbd_is_told_of_jobs(said: str, expected: bool) -> None:
    assert read_config(f"AccountingStorageType = {said}\n".encode(), "m").accounts is expected
