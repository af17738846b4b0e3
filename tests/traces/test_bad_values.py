"""A value that no table can hold is refused by its line: each numeric column of each form that is made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import pytest

from perdure.errors import InputError
from perdure.traces.gavel import read_steps
from perdure.traces.profiles import read_adaptive, read_pairs, read_pipelines, read_profiles, read_rates
from perdure.traces.read import read

NOT_FINITE = ("nan", "inf", "-inf")
OWN = {"job_id": "a", "submit_s": "0", "gpus": "1", "duration_s": "10", "start_s": "1", "end_s": "11"}
OWN |= {"eligible_s": "0", "attempts": "", "ending": ""}


def rows(good: Mapping[str, str], column: str, value: str, **others: str) -> str:
    """A table of a good row, one with this value, and a good one."""
    bad = {**good, column: value}
    each = [good, bad if column in others else {**bad, **others}, {**good, **{name: f"{name}3" for name in others}}]
    return "\n".join([",".join(good), *(",".join(row.values()) for row in each)]) + "\n"


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        *(("submit_s", value, "the submit time is missing or not a time") for value in (*NOT_FINITE, "")),
        ("submit_s", "200000000000", "the submit time is absurd (200000000000.0)"),
        ("submit_s", "-200000000000", "the submit time is absurd (-200000000000.0)"),
        *(("gpus", value, "the number of GPUs is missing or not a whole number") for value in (*NOT_FINITE, "", "1.5")),
        ("gpus", "-1", "the number of GPUs is negative (-1.0)"),
        ("gpus", "10000001", "the number of GPUs is absurd (10000001.0)"),
        ("gpus", "0", "the job has 0 GPUs"),
        *(("duration_s", value, "the duration is missing or not a number") for value in (*NOT_FINITE, "")),
        ("duration_s", "-1", "the duration is negative (-1.0)"),
        ("duration_s", "200000000000", "the duration is absurd (200000000000.0)"),
        ("start_s", "-inf", "start_s is absurd (-inf)"),
        ("end_s", "inf", "end_s is absurd (inf)"),
        ("end_s", "0.5", "the end is before the start"),
        *(("eligible_s", value, f"eligible_s is absurd ({value})") for value in ("inf", "-inf", "1e+300", "-1e+300")),
        *(("attempts", value, f"the attempts are not seconds with + or - ({value})") for value in (
            "nan+", "-1+", "inf-", "1e12-", "5", "5*", "+5", "5+ 6", "5+ x-",
        )),
        ("ending", "gone", "the ending is not known (gone)"),
        ("job_id", "", "the job has no id"),
        *((name, "word", f"{name} is not a number") for name in ("submit_s", "gpus", "duration_s", "eligible_s")),
    ],
)  # fmt: skip
def test_a_bad_value_of_a_hand_made_trace(file: Callable[..., Path], column: str, value: str, what: str) -> None:
    path = file("t.csv", rows(OWN, column, value, job_id="b"))
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}:3: {what}")
    assert str(refused.value).endswith(", or pass --skip-bad to leave such rows out.")
    left = read(path, skip_bad=True).table.job_id.tolist()
    assert left == ["a", "job_id3"]


def test_the_largest_values_are_taken(file: Callable[..., Path]) -> None:
    row = {**OWN, "submit_s": "100000000000", "duration_s": "100000000000", "gpus": "10000000", "attempts": "0+"}
    row |= {"start_s": "-100000000000", "end_s": "100000000000", "eligible_s": "100000000000"}
    assert len(read(file("t.csv", rows(row, "job_id", "b", job_id="b"))).table) == 3


@pytest.mark.parametrize("column", list(OWN)[:4])
def test_each_needed_column_that_lacks_or_comes_twice_is_named(file: Callable[..., Path], column: str) -> None:
    text = rows(OWN, "submit_s", "0", job_id="b")
    for word, what in (("other", f"no column {column}"), (f"{column},{column}", f"column {column} comes twice")):
        path = file("t.csv", text.replace(column, word, 1))
        with pytest.raises(InputError) as refused:
            read(path, format="perdure")
        assert str(refused.value).startswith(f"{path}:1: {what}")


TABLES = {
    "placements": "app,cluster,placement,local_bsz,step_time,sync_time\na,t4,1,8,1.0,0.1\n",
    "scalability": "app,cluster,num_nodes,num_replicas,local_bsz,step_time,sync_time\na,t4,2,2,8,1.0,0.1\n",
    "validation_stat_efficiency": "app,global_batch,progress,grad_sqr,grad_var\na,8,1,1.0,1.0\n",
    "pipelines": "app,cluster,stages,microbatches\nb,t4,2,4\n",
    "throughputs": "gpu,job,scale_factor,co_job,co_scale,steps_per_s\nt4,a,1,a,1,1.0\n",
    "isolated": "gpu,job,scale_factor,steps_per_s\nt4,a,1,1.0\n",
}
READERS: Mapping[str, Callable[[Path], object]] = {
    "placements": read_profiles,
    "scalability": read_profiles,
    "validation_stat_efficiency": read_profiles,
    "pipelines": read_pipelines,
    "throughputs": read_pairs,
    "isolated": read_rates,
}
COUNTS = [
    ("scalability", "num_nodes"),
    ("scalability", "num_replicas"),
    ("validation_stat_efficiency", "global_batch"),
    ("pipelines", "stages"),
    ("pipelines", "microbatches"),
    ("throughputs", "scale_factor"),
    ("isolated", "scale_factor"),
]
FROM_1 = [*COUNTS, ("placements", "local_bsz"), ("scalability", "local_bsz")]
NUMBERS = [
    *FROM_1,
    ("placements", "step_time"),
    ("placements", "sync_time"),
    ("validation_stat_efficiency", "progress"),
    ("validation_stat_efficiency", "grad_sqr"),
    ("validation_stat_efficiency", "grad_var"),
    ("throughputs", "co_scale"),
    ("throughputs", "steps_per_s"),
    ("isolated", "steps_per_s"),
]


def refusal(file: Callable[..., Path], table: str, text: str) -> str:
    """What is said of one table among others that are good."""
    for name, good in TABLES.items():
        file(f"{name}.csv", text if name == table else good)
    folder = file("here", "").parent
    with pytest.raises(InputError) as refused:
        READERS[table](folder)
    assert str(refused.value).startswith(f"{folder / table}.csv:")
    return str(refused.value).removeprefix(f"{folder / table}.csv:")


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        *((*each, "is not a number from 1 on") for each in product(FROM_1, ("nan", "0", "-1", "0.5", "", "-inf"))),
        *((*each, "is absurd") for each in product(FROM_1, ("inf", "1e300", "1000000000001"))),
        *((*each, "is not a whole number") for each in product(COUNTS, ("1.5",))),
        *((*each, "is not a number. Fix the row") for each in product(NUMBERS, ("word",))),
    ],
)
def test_a_bad_count_of_a_profile(file: Callable[..., Path], place: tuple[str, str], value: str, what: str) -> None:
    table, column = place
    head, good = TABLES[table].splitlines()
    row = {**dict(zip(head.split(","), good.split(","), strict=True)), column: value}
    assert refusal(file, table, f"{head}\n{good}\n{','.join(row.values())}\n").startswith(f"3: {column} {what}")


@pytest.mark.parametrize(("table", "column"), [
    (table, column) for table, text in TABLES.items()
    for column in text.split("\n", 1)[0].split(",") if (table, column) not in {
        ("placements", "cluster"), ("scalability", "cluster"),
    }
])  # fmt: skip
def test_each_column_that_a_profile_lacks_is_named(file: Callable[..., Path], table: str, column: str) -> None:
    head, good = TABLES[table].splitlines()
    names = ["other" if name == column else name for name in head.split(",")]
    assert refusal(file, table, f"{','.join(names)}\n{good}\n").startswith(f"1: no column {column}. It needs: ")


@pytest.mark.parametrize("placement", ["", "0", "40", "4,4", "-1", "1.5", "word", "nan"])
def test_a_placement_that_is_not_digits_is_shown(file: Callable[..., Path], placement: str) -> None:
    for name, good in TABLES.items():
        file(f"{name}.csv", good)
    path = file("placements.csv", TABLES["placements"] + f'a,t4,"{placement}",8,1.0,0.1\n')
    with pytest.raises(InputError) as refused:
        read_profiles(path.parent)
    assert str(refused.value) == f"{path}: {placement!r} is not a placement. Write one digit a node: 44."


JOB = {"name": "j", "time": "0", "application": "a", "num_replicas": "1", "batch_size": "8", "work": "1"}
JOB |= {"workload": "1", "rigid": "no", "fails": "", "app": "", "score": "", "search": ""}


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        *(("time", value, "is not a valid number") for value in (*NOT_FINITE, "", "-1", "100000000001")),
        *(("num_replicas", value, "is not a valid number") for value in (*NOT_FINITE, "", "0", "1.5", "10000001")),
        *(("batch_size", value, "is not a valid number") for value in (*NOT_FINITE, "", "0", "1.5", "1000000000001")),
        *(("workload", value, "is not a valid number") for value in (*NOT_FINITE, "", "-1", "1.5", "1000000", "1e300")),
        *(("work", value, "is no number above 0") for value in (*NOT_FINITE, "", "0", "-1")),
        ("rigid", "maybe", "is neither yes nor no nor batch (maybe)"),
        *((name, "word", "is not a number") for name in ("time", "num_replicas", "batch_size", "workload", "work")),
    ],
)
def test_a_bad_value_of_a_job_that_names_an_application(
    file: Callable[..., Path], column: str, value: str, what: str
) -> None:
    path = file("j.csv", rows(JOB, column, value))
    with pytest.raises(InputError) as refused:
        read_adaptive(path)
    assert str(refused.value).startswith(f"{path}:3: {column} {what}")


@pytest.mark.parametrize("fails", ["-0.1", "1.1", "nan", "word", "0.5;", "0.5;2", "inf"])
def test_shares_after_which_attempts_fail_are_between_0_and_1(file: Callable[..., Path], fails: str) -> None:
    with pytest.raises(InputError, match=r"fails is .* not a list of shares of the work\. Write it like 0\.3;0\.5"):
        read_adaptive(file("j.csv", rows(JOB, "fails", fails)))
    assert read_adaptive(file("j.csv", rows(JOB, "fails", "0;1"))).fails[1] == (0.0, 1.0)


def test_a_workload_that_is_not_there(file: Callable[..., Path]) -> None:
    path = file("j.csv", rows(JOB, "workload", "2"))
    with pytest.raises(InputError) as refused:
        read_adaptive(path, 3)
    assert str(refused.value) == f"{path}: it holds no such jobs. Name a workload that is there."
    with pytest.raises(InputError, match=r"it holds the workloads 1, 2\. Choose one: .*j\.csv:1\."):
        read_adaptive(path)


@pytest.mark.parametrize(
    ("steps", "gpus", "arrival", "what"),
    [
        *((value, "1", "0", "a job without steps, GPUs or arrival") for value in (*NOT_FINITE, "0", "-1")),
        *(("9", value, "0", "a job without steps, GPUs or arrival") for value in (*NOT_FINITE, "0", "-1", "0.5")),
        *(("9", "1", value, "a job without steps, GPUs or arrival") for value in NOT_FINITE),
        ("1000000000001", "1", "0", "the number of steps is absurd (1000000000001.0)"),
        ("9", "1.5", "0", "the number of GPUs is not a whole number (1.5)"),
        ("9", "10000001", "0", "the number of GPUs is absurd (10000001.0)"),
        ("9", "1", "-1", "the arrival is negative or absurd (-1.0)"),
        ("9", "1", "100000000001", "the arrival is negative or absurd (100000000001.0)"),
        ("9", "1", "word", "the line has neither 7 nor 10 columns, or a word that is not a number"),
    ],
)
def test_a_bad_job_in_steps(file: Callable[..., Path], steps: str, gpus: str, arrival: str, what: str) -> None:
    def line(*told: str) -> str:
        return "A (batch size 8)\tp\tc\t-n\t1\t{}\t{}\t1\t-1\t{}\n".format(*told)

    path = file("g.trace", line("1000000000000", "10000000", "100000000000") + line(steps, gpus, arrival))
    with pytest.raises(InputError) as refused:
        read_steps(path)
    assert str(refused.value).startswith(f"{path}:2: {what}")
