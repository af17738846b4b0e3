"""Records of jobs and nodes are read as Slurm meant them, whatever users wrote into them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.backends.slurm import picture
from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.het import component_numbers, merge_records, merge_rows, read_one_job, whole_of
from perdure.backends.slurm.node_records import read_nodes
from perdure.backends.slurm.paths import expand_patterns
from perdure.backends.slurm.records import JobRecords, OwnerClaim, claims_in_doubt, read_jobs, repair
from perdure.model.nodes import NodeState
from tests.backends.slurm.text import MARK, job, node
from tests.copying import replace

FORGED = job(7, name="forged", user="root", uid=0, mark="guessed").strip()


def read(*texts: str) -> JobRecords:
    return read_jobs("".join(texts).encode(), MARK)


def test_names_and_paths_may_hold_blanks_and_signs() -> None:
    (found,) = read(job(1, name="a b=c|d", work_dir="/my home", stdout="/my home/a b.out")).whole
    assert (found.name, found.work_dir, found.stdout) == ("a b=c|d", "/my home", "/my home/a b.out")


def test_a_relative_path_is_below_the_working_directory() -> None:
    (found,) = read(job(1, stdout="logs/1.out")).whole
    assert found.stdout == "/home/logs/1.out"


def test_what_slurm_leaves_of_a_pattern_is_written_out() -> None:
    pattern = "/o/%x-%N-%A_%a-%04j-%u-%%.out"
    text = job(8, before_name="ArrayJobId=5 ArrayTaskId=3 ", name="x", stdout=pattern, nodes="n7")
    (found,) = read(text).whole
    assert expand_patterns(found, {}).stdout == "/o/x-n7-5_3-0008-ada-%.out"


def test_a_name_cannot_forge_the_owner() -> None:
    (found,) = read(job(1, name="x UserId=root(0) GroupId=root(0) JobState=PENDING")).whole
    assert (found.user, found.uid, found.state) == ("ada", 1000, "RUNNING")


def test_a_network_option_cannot_forge_what_follows() -> None:
    (found,) = read(job(1, network="x NodeList=n9 StartTime=5 TRES=gres/gpu=99 ExcNodeList=n8")).whole
    assert (found.nodes, found.start_s, found.gpus, found.excluded) == (("n1",), 100, 0, ())


def test_a_forged_record_makes_its_neighbours_number_doubtful_and_no_more() -> None:
    records = read(job(1), job(2, stdout=f"/x\n{FORGED}"), job(3, user="bob", uid=1001, submit=95))
    assert [r.raw_id for r in records.whole] == [1, 2]
    (torn,) = records.torn
    assert {number for number, _ in torn.candidates} == {7, 3}
    repaired = repair(records.torn, {1, 2}, {3: {OwnerClaim(1001, 95)}, 7: {OwnerClaim(0, 90)}}, MARK)
    assert [(r.raw_id, r.user) for r in repaired.whole] == [(3, "bob")]


def test_a_number_that_another_record_has_is_not_a_forged_ones() -> None:
    records = read(job(7, user="root", uid=0), job(3, name=f"x\n{FORGED}"))
    repaired = repair(records.torn, {7}, {3: {OwnerClaim(1000, 90)}, 7: {OwnerClaim(0, 90)}}, MARK)
    assert [(r.raw_id, r.user) for r in repaired.whole] == [(3, "ada")]


def test_a_number_that_a_job_of_the_same_user_and_second_has_is_not_a_forged_ones() -> None:
    """Who submits in a loop has many jobs of one second: owner and instant alone do not tell them apart."""
    forged = job(7, mark="guessed").strip()
    records = read(job(7), job(3, name=f"x\n{forged}"))
    claims = {number: {OwnerClaim(1000, 90)} for number in (3, 7)}
    repaired = repair(records.torn, {7}, claims, MARK)
    assert [r.raw_id for r in repaired.whole] == [3]


def test_a_torn_record_stays_mended_when_accounting_is_no_longer_asked_for_its_job() -> None:
    records = read(job(3, name=f"x\n{FORGED}"))
    told = [(3, OwnerClaim(1000, 90)), (7, OwnerClaim(0, 90)), (8, OwnerClaim(0, 90))]
    claims = claims_in_doubt(records.torn, told, {})
    assert claims == {3: {OwnerClaim(1000, 90)}, 7: {OwnerClaim(0, 90)}}
    later = claims_in_doubt(records.torn, [(3, OwnerClaim(1000, 95))], claims)
    assert later == {3: {OwnerClaim(1000, 90), OwnerClaim(1000, 95)}, 7: {OwnerClaim(0, 90)}}
    assert [r.raw_id for r in repair(records.torn, set(), later, MARK).whole] == [3]
    assert claims_in_doubt((), [], later) == {}


def test_without_accounting_a_torn_record_stays_unread() -> None:
    records = read(job(3, name=f"x\n{FORGED}"))
    assert repair(records.torn, set(), {}, MARK).unreadable == 1


def test_asked_for_one_job_its_own_text_cannot_make_it_another() -> None:
    text = job(3, name=f"x\n{FORGED}").encode()
    found = read_one_job(text, MARK, "3")
    assert found is not None
    assert (found.job_id, found.user) == ("3", "ada")
    assert read_one_job(text, MARK, "7") is None
    assert read_one_job(b"", MARK, "7") is None


def test_an_instant_that_bears_another_mark_is_none() -> None:
    (found,) = read_jobs(job(1, start="5~0123z", end="7").encode(), MARK).whole
    assert (found.start_s, found.end_s) == (None, 7)


def test_a_heterogeneous_job_is_one_job_by_its_plain_id() -> None:
    text = component(5, 0, "a") + component(6, 1, "b", nodes="n2", state="FAILED", exit_code="3:0", end="110")
    found = read_one_job(text.encode(), MARK, "5")
    assert found is not None
    assert (found.raw_id, found.name, found.nodes, found.state) == (5, "a", ("n1", "n2"), "RUNNING")
    over = component(5, 0, "a", state="COMPLETED", end="109") + component(
        6, 1, "b", nodes="n2", state="FAILED", exit_code="3:0", end="110"
    )
    found = read_one_job(over.encode(), MARK, "5")
    assert found is not None
    assert (found.state, found.exit_code, found.end_s, found.gpus) == ("FAILED", 3, 110, 0)


def test_what_failed_in_any_component_failed_in_the_job() -> None:
    parts = [read_jobs(component(5 + at, at, "a").encode(), MARK).whole[0] for at in range(2)]
    one, two = (replace(part, failed_nodes=(f"n{at}",), job_id=f"5+{at}") for at, part in enumerate(parts))
    (found,) = merge_records([two, one])
    assert found.failed_nodes == ("n0", "n1")


def test_the_number_of_a_component_is_no_other_jobs_though_the_controller_has_forgotten_it() -> None:
    parts = read_jobs((component(5, 0, "a") + component(6, 1, "b")).encode(), MARK).whole
    seen = component_numbers(parts, frozenset())
    assert seen == {5, 6}
    assert component_numbers((), seen) == seen
    assert component_numbers(read_jobs(job(6).encode(), MARK).whole, seen) == {5}


def test_a_component_tells_which_job_it_belongs_to() -> None:
    assert whole_of(component(6, 1, "b").encode(), MARK) == "5"
    assert whole_of(job(6).encode(), MARK) == whole_of(b"", MARK) == ""


@pytest.mark.parametrize("flag", [0, 1, 2])
def test_an_allocation_is_no_batch_job(flag: int) -> None:
    found = read_one_job(job(7, batch=flag).encode(), MARK, "7")
    assert found is not None
    assert found.is_batch is bool(flag)
    assert picture.jobs("c", picture.Sources((found,), (), ()), 100.0)[0].is_batch is bool(flag)


def test_a_heterogeneous_job_that_one_part_forbids_to_requeue_is_not_requeued() -> None:
    for parts in ((1, 0), (0, 1), (1, 1)):
        text = "".join(component(5 + at, at, "a", requeue=may) for at, may in enumerate(parts))
        assert read_one_job(text.encode(), MARK, "5").requeue is all(parts)


def row(part: int, start_s: int, end_s: int | None, nodes: str) -> AccountingRow:
    return AccountingRow(f"5+{part}", 5 + part, "FAILED", 1, 0, 90, start_s, end_s, 1000, "ada", (nodes,), 1, "")


def test_rows_of_one_start_are_one_row_and_those_of_another_start_another() -> None:
    first, again = row(0, 100, 110, "n1"), row(0, 400, 410, "n1")
    rows = (first, row(1, 102, 115, "n2"), again, row(1, 401, 405, "n3"))
    assert [(r.job_id, r.start_s, r.end_s, r.nodes) for r in merge_rows(rows)] == [
        ("5", 100, 115, ("n1", "n2")),
        ("5", 400, 410, ("n1", "n3")),
    ]


def test_an_attempt_of_which_a_part_runs_has_not_ended() -> None:
    (found,) = merge_rows((row(0, 100, 110, "n1"), replace(row(1, 100, None, "n2"), state="RUNNING")))
    assert (found.state, found.end_s) == ("RUNNING", None)


def component(number: int, offset: int, name: str, **more: Any) -> str:
    return job(number, before_name=f"HetJobId=5 HetJobOffset={offset} ", name=f"{name} HetJobIdSet=5-6", **more)


OTHER_MARK = "fedcba9876543210z"
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


@given(
    name=texts, renamed=texts, state=st.sampled_from(["RUNNING", "PENDING", "COMPLETING"]), ran=st.integers(1, 59),
    start=st.sampled_from(["100", "Unknown"]), restarts=st.integers(0, 1),
)  # fmt: skip
def test_records_that_are_remembered_are_what_is_read(
    name: str, renamed: str, state: str, ran: int, start: str, restarts: int
) -> None:
    first = read_jobs((job(1, name=name) + job(2, name=" RunTime=1 ")).encode(), MARK)
    text = job(1, name=renamed, state=state, start=start, restarts=restarts, mark=OTHER_MARK)
    text = (text + job(2, name=" RunTime=2 ", mark=OTHER_MARK)).replace("RunTime=00:00:01", f"RunTime=00:00:{ran}")
    anew, again = read_jobs(text.encode(), OTHER_MARK), read_jobs(text.encode(), OTHER_MARK, first.by_text)
    assert again == anew


def test_a_record_that_says_the_same_is_the_same_object() -> None:
    first = read_jobs(job(1).encode(), MARK)
    text = job(1, mark=OTHER_MARK).replace("RunTime=00:00:01", "RunTime=00:00:09")
    assert read_jobs(text.encode(), OTHER_MARK, first.by_text).whole[0] is first.whole[0]


@pytest.mark.parametrize("task", ["1-3%1", "4294967294"])
def test_what_is_left_of_an_array_goes_by_the_arrays_number(task: str) -> None:
    (found,) = read(job(4, before_name=f"ArrayJobId=4 ArrayTaskId={task} ")).whole
    assert found.job_id == "4"


def test_gpus_come_from_what_was_given_else_from_what_was_asked_for() -> None:
    (given_,) = read(job(1, tres="cpu=1,gres/gpu=4")).whole
    (asked,) = read(job(1, tail="TresPerNode=gres:gpu:2")).whole
    assert (given_.gpus, asked.gpus) == (4, 2)


def test_a_job_that_waits_has_as_many_nodes_as_it_asks_for() -> None:
    """Seen with 22.05: a job of ``-N 2-4`` that was put back has ``NumNodes=4``, as it had when it ran."""
    (waits,) = read(job(1, state="PENDING", tres="cpu=2,mem=128M,node=2,billing=2,gres/gpu=4")).whole
    (runs,) = read(job(1, state="RUNNING", tres="cpu=2,node=2")).whole  # NumNodes=1 in this text
    (unsaid,) = read(job(1, state="PENDING", tres="(null)")).whole
    assert (waits.node_count, runs.node_count, unsaid.node_count) == (2, 1, 1)


def test_a_prompt_may_stand_before_the_first_record() -> None:
    assert [r.raw_id for r in read("scontrol: show job\n", job(1)).whole] == [1]
    assert [r.raw_id for r in read("scontrol: ", job(1)).whole] == [1]


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            "\n",
            " ",
            "JobId=2 JobName=",
            "JobId=9 ArrayJobId=2 ArrayTaskId=1 JobName=",
            " UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1",
            " SubmitTime=90~guess EligibleTime=90~guess",
            " StartTime=5",
            " Features=(null)",
            " Comment=perdure:retry=never",
            " StdOut=/etc/shadow",
            " NodeList=n9",
            FORGED,
            "é",
            "\x00",
            "scontrol: ",
        ]
    ),
    max_size=4,
).map("".join)


@settings(max_examples=250)
@given(
    st.lists(st.tuples(st.integers(1000, 1003), FRAGMENTS, FRAGMENTS, FRAGMENTS), min_size=1, max_size=5),
    st.booleans(),
)
def test_no_text_of_a_users_passes_for_slurms(jobs: list[Any], accounting_is_up: bool) -> None:
    """What is read whole is true in all that Slurm says of it; a torn record is never given to another owner."""
    truth = {number: (uid, 90 + number, 100 + number, f"n{number}") for number, (uid, *_) in enumerate(jobs, start=1)}
    text = "".join(
        job(n, name=name, uid=uid, comment=comment, stdout=path, submit=90 + n, start=100 + n, nodes=f"n{n}")
        for n, (uid, name, comment, path) in enumerate(jobs, start=1)
    )
    records = read(text)
    claims = {n: {OwnerClaim(uid, submit)} for n, (uid, submit, *_) in truth.items()} if accounting_is_up else {}
    repaired = repair(records.torn, {r.raw_id for r in records.whole}, claims, MARK)
    for found in (*records.whole, *repaired.whole):
        assert (found.uid, found.submit_s, found.start_s, *found.nodes) == truth[found.raw_id]
    if accounting_is_up:
        assert len(records.whole) + len(repaired.whole) == len(jobs)


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(data: bytes) -> None:
    read_jobs(data, MARK)
    read_jobs(job(1).encode() + data + job(2).encode(), MARK)
    read_nodes(data, MARK)


@pytest.mark.parametrize(
    ("state", "reason", "set_down"),
    [
        ("DOWN", "moved to another rack", True),
        ("DOWN*", "Not responding", False),
        ("DOWN", "Node unexpectedly rebooted", False),
        ("DOWN", "NHC: check_fs_mount failed", False),
        ("DOWN", "node.unreachable [perdure 4711]", False),
        ("DOWN", "", False),
        ("IDLE+DRAIN", "moved to another rack", False),
    ],
)
def test_a_person_sets_a_node_down_in_other_words_than_slurms(state: str, reason: str, set_down: bool) -> None:
    (record,) = read_nodes(node("n1", state, reason).encode(), MARK)
    assert record.node.is_set_down is set_down


def test_nodes_are_read_with_their_reasons() -> None:
    text = "scontrol: show node\n" + node("n1") + node("n2", "DOWN*", "Not responding [x]") + node("n3", "FUTURE")
    first, second = read_nodes(text.encode(), MARK)
    assert (first.node.state, first.node.gpus, first.node.gpus_used, first.boot_s) == (NodeState.UP, 4, 2, 10)
    assert (second.node.state, second.node.reason, second.node.since_s) == (NodeState.DOWN, "Not responding [x]", 50.0)


@pytest.mark.parametrize(
    ("word", "names"),
    [("(null)", ()), ("pfs:2", ("pfs",)), ("pfs,ansys@flex:3", ("pfs", "ansys")), ("a:1|b:2", ("a", "b")), ("", ())],
)
def test_licences_are_known_by_their_names(word: str, names: tuple[str, ...]) -> None:
    text = job(7).replace(" Features=(null)", f" Features=(null) Licenses={word} Network=(null)")
    assert read(text).whole[0].licences == names


def test_a_job_of_a_scrontab_is_its_manager_s_to_start_again() -> None:
    text = job(7, cron='CronJob=Yes CrontabSpec="*/5 * * * *" ')
    found = read_one_job(text.encode(), MARK, "7")
    assert found is not None
    assert found.is_cron
    (seen,) = picture.jobs("c", picture.Sources((found,), (), ()), 100.0)
    assert seen.is_cron
    assert not seen.may_requeue
    assert not read_one_job(job(7, comment="CronJob=Yes", tail="CronJob=Yes").encode(), MARK, "7").is_cron


def test_the_line_of_submission_is_its_owners_words_and_no_record() -> None:
    """Slurm 26.05 prints it before the working directory: there it must hide neither that nor the script."""
    said = "sbatch --comment=x StdOut=/etc/shadow Comment=perdure:retry=never -o /home/out"
    text = job(7, work_dir="/data").replace(" WorkDir=", f" SubmitLine={said} WorkDir=")
    (record,) = read_jobs(text.encode(), MARK).whole
    assert (record.command, record.work_dir, record.stdout, record.comment) == ("/run.sh", "/data", "/home/out", "")


def test_a_path_in_a_comment_is_not_the_jobs() -> None:
    (record,) = read_jobs(job(7, comment="x StdOut=/etc/shadow").encode(), MARK).whole
    assert record.stdout == "/home/out"
