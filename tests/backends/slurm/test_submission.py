"""Options of sbatch as a chain takes them, and what no chain can be made of."""

from __future__ import annotations

import subprocess

import pytest

from perdure.backends.slurm.links import environment_for_links, walltime_of
from perdure.backends.slurm.submission import (
    for_later_links,
    interpreter_of,
    last_value,
    link_script,
    script_options,
    split_options,
    submission_of,
    words_of,
)
from perdure.errors import InputError
from perdure.waits.queue import QueuedPartition

DAY = QueuedPartition("day", is_default=True, max_time_s=86_400.0, default_time_s=None)
SHORT = QueuedPartition("short", max_time_s=3600.0, default_time_s=600.0)
ENDLESS = QueuedPartition("endless", max_time_s=None, default_time_s=None)


def test_options_stand_before_and_after_the_script_and_take_their_values_along() -> None:
    words = ["-N2", "--mem", "4G", "train.sh", "-t", "1:00:00", "--exclusive", "-J", "mine"]
    made = submission_of(words, ("--lr", "0.1"))
    assert (made.script, made.arguments) == ("train.sh", ("--lr", "0.1"))
    assert made.options == ("-N2", "--mem", "4G", "-t", "1:00:00", "--exclusive", "-J", "mine")


def test_what_was_for_the_first_link_is_left_out_later() -> None:
    options, _ = split_options(["--begin=now+1hour", "-d", "afterok:7", "-H", "--mem=1G"])
    assert words_of(for_later_links(options)) == ["--mem=1G"]


def test_a_shortened_option_is_the_one_that_sbatch_takes_it_for() -> None:
    options, bare = split_options(["--dep=afterok:7", "--part", "day", "-Hn2", "--job=a", "--time-min=1", "train.sh"])
    assert bare == ["train.sh"]
    assert [each.name for each in options] == ["dependency", "partition", "hold", "n", "job-name", "time-min"]
    assert words_of(for_later_links(options)) == ["--part", "day", "-n2", "--job=a", "--time-min=1"]


def test_links_get_no_option_by_the_environment_that_no_chain_can_have() -> None:
    given = {
        "SBATCH_ARRAY_INX": "1-2",
        "SBATCH_WAIT": "1",
        "SBATCH_CLUSTERS": "b",
        "SBATCH_QOS": "low",
        "SLURM_JOB_ID": "1",
    }
    assert environment_for_links(given) == {"SBATCH_QOS": "low"}


def test_the_last_of_an_option_counts_by_whichever_name() -> None:
    options, _ = split_options(["--time=1", "-t", "2"])
    assert last_value(options, "time") == "2"


def test_a_links_script_keeps_the_options_of_the_users() -> None:
    options = script_options(b"#!/bin/bash\n#SBATCH -N 2 --gres=gpu:4\n#SBATCH --comment='a b'\ntrue\n", "train.sh")
    text = link_script(options, ["run", "it's"])
    assert script_options(text.encode(), "link") == options
    assert subprocess.run(["sh", "-n"], input=text.encode(), check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no script is named"),
        (["--time=2"], "no script is named"),
        (["train.sh", "--array=1-4"], "a chain is one job at a time"),
        (["train.sh", "--wrap=true"], "a chain needs a script"),
        (["train.sh", "--test-only"], "a chain is really submitted"),
        (["train.sh", "--arr=1-4"], "a chain is one job at a time"),
        (["train.sh", "--arr", "1-4"], "a chain is one job at a time"),
        (["train.sh", "-Ha1-4"], "a chain is one job at a time"),
        (["-M", "other", "train.sh"], "a chain stays on the cluster"),
    ],
)
def test_a_command_line_that_is_no_chain_is_refused_in_a_line(words: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says) as told:
        submission_of(words)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (b"#!/bin/sh\n#SBATCH --array=1-4\n", "a chain is one job at a time"),
        (b"#!/bin/sh\n#SBATCH -N 1\n#SBATCH hetjob\n#SBATCH -N 2\n", "it is a heterogeneous job"),
    ],
)
def test_a_script_that_is_no_chain_is_refused(script: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        script_options(script, "train.sh")


def test_a_script_with_line_breaks_of_dos_is_refused_as_sbatch_does() -> None:
    with pytest.raises(InputError, match="line breaks of DOS"):
        interpreter_of(b"#!/bin/bash\r\ntrue\r\n", "train.sh")


def test_a_script_without_its_first_line_is_refused_as_sbatch_does() -> None:
    with pytest.raises(InputError, match="does not begin with #!"):
        interpreter_of(b"python train.py\n", "train.sh")


def test_the_walltime_is_the_scripts_or_its_partitions() -> None:
    assert walltime_of((DAY, SHORT), [], 7200.0, "train.sh") == 7200.0
    assert walltime_of((DAY, SHORT), ["short"], None, "train.sh") == 600.0
    assert walltime_of((DAY, SHORT), [], None, "train.sh") == 86_400.0  # the longest that it allows


@pytest.mark.parametrize(
    ("names", "asked_s", "says"),
    [
        (["endless"], None, "it has no walltime"),
        (["short"], 7200.0, "--time asks for 2 h, and short allows 1 h"),
        (["nowhere"], 60.0, "no such partition"),
    ],
)
def test_a_walltime_that_cannot_be_is_refused(names: list[str], asked_s: float | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        walltime_of((DAY, SHORT, ENDLESS), names, asked_s, "train.sh")
