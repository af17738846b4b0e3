"""What a failure does to the jobs that depend on it, and what is given back to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.slurm.dependants import dependants, is_dependant, of_job, parts, repaired_dependency, word_on
from tests.backends.slurm.test_plans import record
from tests.copying import replace

WAITS = record(state="PENDING", nodes="", start="Unknown")


@pytest.mark.parametrize(
    ("expression", "given_back"),
    [
        ("afterok:7(failed)", "afterok:7"),
        ("afterok:7(unfulfilled)", None),
        ("afterany:7(unfulfilled),afterok:8(failed)", None),
        ("afterok:7(failed),afterany:8(unfulfilled)", "afterok:7,afterany:8"),
        ("afterok:7(failed)?afterok:8+5(unfulfilled)?singleton(unfulfilled)", "afterok:7?afterok:8+5?singleton"),
        ("aftercorr:7_*(failed)", None),
        ("afternotok:7(failed)", None),
        ("afterok:7(failed) ExcNodeList=n1", None),
        ("", None),
    ],
)
def test_only_what_the_failure_broke_is_given_back(expression: str, given_back: str | None) -> None:
    assert repaired_dependency(expression, "7", ()) == given_back


@pytest.mark.parametrize(
    ("expression", "given_back"),
    [
        ("afterok:7_1(failed)", "afterok:7_1"),
        ("afterok:7_2(failed)", None),
        ("aftercorr:7_*(failed)", "aftercorr:7"),
        ("aftercorr:7_*(unfulfilled)", None),
        ("afterok:7_*(unfulfilled)", "afterok:7_0:7_1"),  # Slurm remembers the failure until the array's end
        ("afterok:7_*(failed),afterok:9_*(unfulfilled)", "afterok:7_0:7_1,afterok:9"),
        ("afterok:7_*+5(failed)", "afterok:7_0+5:7_1+5"),
    ],
)
def test_of_an_array_each_task_is_named(expression: str, given_back: str | None) -> None:
    assert repaired_dependency(expression, "7_1", (0, 1)) == given_back


@given(st.text(alphabet="afterok:12_*+(),?singleton ", max_size=60))
def test_what_is_given_back_can_be_read_and_holds_no_blank(text: str) -> None:
    found = repaired_dependency(text, "1", (1, 2))
    if found is not None:
        assert " " not in found
        assert [p.kind for p in parts(found)] == [p.kind for p in parts(text)]


def test_who_waited_is_remembered_while_both_jobs_are_known() -> None:
    first = record(state="RUNNING")
    after = replace(WAITS, job_id="9", name="other", dependency="afterany:7(unfulfilled)")
    twin = replace(WAITS, job_id="10", dependency="singleton(unfulfilled)")
    known = dependants((first, after, twin), {})
    assert of_job(first, known) == {"9": after.dependency, "10": twin.dependency}
    ran = replace(after, state="COMPLETED", dependency="", nodes=("n1",), start_s=150)
    assert of_job(first, dependants((first, ran), known)) == {"9": after.dependency}
    assert of_job(first, dependants((first,), known)) == {}
    assert dependants((ran,), known) == {}


def test_who_takes_a_dependency_back_while_the_job_runs_is_no_dependant_any_more() -> None:
    runs = replace(record(state="RUNNING"), job_id="7")
    waits = replace(WAITS, job_id="9", dependency="afterany:7(unfulfilled)")
    known = dependants((runs, waits), {})
    assert of_job(runs, known) == {"9": waits.dependency}
    freed = replace(waits, dependency="")
    assert of_job(runs, dependants((runs, freed), known)) == {}
    failed = replace(runs, state="FAILED")  # then Slurm itself takes it away
    assert of_job(failed, dependants((failed, freed), known)) == {"9": waits.dependency}


def test_singletons_wait_for_their_own_users_jobs_and_not_for_themselves() -> None:
    first = replace(WAITS, dependency="singleton(unfulfilled)")
    twin = replace(first, job_id="10")
    strangers = replace(first, job_id="11", uid=first.uid + 1)
    assert of_job(first, dependants((first, twin, strangers), {})) == {"10": twin.dependency}


def test_what_cannot_be_taken_back_is_said() -> None:
    job = record(state="FAILED", end="110")
    ran = replace(record(state="COMPLETED", start=112), job_id="9")
    assert word_on("afterany:7(unfulfilled)", ran, job, 100) == "job 9 ran at this failure (afterany)"
    assert word_on("afterany:8(unfulfilled)", ran, job, 100) == ""
    for before_s in (90, 100):  # it did not run because of a failure that was still to come
        assert word_on("afterany:7(unfulfilled)", replace(ran, start_s=before_s), job, 100) == ""
    killed = replace(ran, state="CANCELLED", nodes=(), start_s=None, end_s=112)
    assert word_on("afterok:7(unfulfilled)", killed, job, 100) == "job 9 was cancelled at this failure (afterok)"
    assert word_on("afterok:7(unfulfilled)", WAITS, job, 100) == ""
    assert word_on("singleton(unfulfilled)", ran, job, 100) == "job 9 ran at this failure (singleton)"
    stopped = replace(ran, state="CANCELLED", end_s=150)  # it began at the failure, and was cancelled later
    assert word_on("afterany:7(unfulfilled)", stopped, job, 100) == "job 9 ran at this failure (afterany)"
    assert word_on("afterany:7(unfulfilled)", replace(stopped, start_s=90), job, 100) == ""
    task = replace(job, job_id="7_5")
    assert word_on("afterany:7_5(unfulfilled)", ran, task, 100) == "job 9 ran at this failure (afterany)"


def test_a_task_that_ran_after_its_own_counterpart_did_not_run_at_the_failure_of_another() -> None:
    failed, ran = replace(record(state="FAILED", end="110"), job_id="7_5"), record(state="COMPLETED", start=112)
    before = "aftercorr:7_*(unfulfilled)"
    assert word_on(before, replace(ran, job_id="9_3"), failed, 100) == ""
    assert word_on(before, replace(ran, job_id="9_5"), failed, 100) == "job 9_5 ran at this failure (aftercorr)"


@pytest.mark.parametrize(
    ("expression", "waits"),
    [("afterok:7(failed)", True), ("afterany:8,afterok:7", True), ("afterok:77", False), ("", False), ("x:7:", False)],
)
def test_who_waits_for_a_job_is_told_by_its_expression(expression: str, waits: bool) -> None:
    assert is_dependant(expression, "7") is waits
