"""Options of the command line that take numbers: a bad one is refused in one line, however long it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.cli.speed_choice import choice_of, examples_of
from perdure.cli.study_successors import study_call
from perdure.cli.workers import executor_named, processes_named
from perdure.errors import InputError, PerdureError
from perdure.model.cluster import Cluster

LONG = "9" * 5000  # int() raises ValueError for so many digits
COUNTS = ("x", "0", "-1", "1.5", "nan", LONG)


def study(**changes: str) -> object:
    given = {"gpus": "8", "link_gpus": "1", "days": "1-2", "models": "true"} | changes
    return study_call(None, given["gpus"], given["link_gpus"], None, given["models"], given["days"], 1, 1, 0, "", None)


@pytest.mark.parametrize(
    ("read", "words", "said"),
    [
        (lambda text: study(gpus=text), (*COUNTS, "8,", "8,0", "1000001"), "not numbers from 1 to 1000000. Write"),
        (lambda text: study(link_gpus=text), (*COUNTS, "", "1000001"), "not numbers from 1 to 1000000. Write"),
        (lambda text: study(days=text), ("", "1", "2-1", "2-2", "a-b", "1-", f"1-{LONG}", f"1-{9:09}0"),
         "not two rising numbers of days. Write it as --days 60-150."),
        (lambda text: study(models=text), ("best", "true,best", "", "TRUE"), "no model of the scheduler has that"),
        (executor_named, (*COUNTS, "1025", f"slurm:{LONG}"), "not a number of workers up to 1024. Write a number of"),
        (processes_named, ("0", "1025", LONG), "not a number of workers up to 1024. Write a number of"),
        (processes_named, ("x", "slurm", ""), "a study runs in processes of this machine. Write a number, such as 4."),
        (choice_of, ("", "0 GPUs", "8", "8 GPUs in nan hours", f"{LONG} GPUs", f"8 GPUs in {LONG} hours"),
         "is no choice. Give GPUs and when they are there: "),
        (lambda text: examples_of(text, 8, 2), ("nan steps", "8", "-1 steps", f"{LONG} steps"), "is no work. Say what"),
        (lambda text: examples_of(text, 8, 2), ("0 steps", "0 epochs of 9"), "is 0 examples. Give 1 to "),
        (lambda text: examples_of(text, 8, 2), ("",), "--work: it is missing. Say what is left: "),
    ],
)  # fmt: skip
def test_a_word_that_is_no_value(read: Callable[[str], object], words: tuple[str, ...], said: str) -> None:
    for word in words:
        with pytest.raises(PerdureError) as refused:
            read(word)
        told = str(refused.value)
        assert said in told
        assert told.startswith("--")
        assert "\n" not in told
        assert len(told) < 300


@pytest.mark.parametrize("nodes", ["", "x", "0", "-1", "1000001", LONG])
def test_nodes_of_a_rack_that_cannot_be(nodes: str) -> None:
    with pytest.raises(InputError, match=r"is not a number of nodes a rack\. Write it like 32x8"):
        Cluster.parse(f"8x8/{nodes}")
