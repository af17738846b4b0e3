"""Many tasks in one order: who broke first is named, and by what it was told."""

import pytest

from perdure.triage.evidence.ranks import HitOrder, merged
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText, Source, TextWindow
from perdure.triage.text.prefixes import rank_of
from perdure.triage.text.when import Form, Stamp, comparable, stamp_of
from perdure.triage.verdict import CauseRole, Label

CALM = "step 1\nstep 2\n"
ROOT = "KeyError: 'labels'"
LOST = "RuntimeError: Connection closed by peer [10.0.0.2]:3000"
TIMED_OUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9) ran for 600000 milliseconds"


def files(**logs: str) -> LogText:
    """One file a rank; the last one named was written last."""
    sources = [Source(f"{name}.log", name.removeprefix("r"), 100.0 + i) for i, name in enumerate(logs)]
    return LogText(tuple(TextWindow(log.encode(), source=s) for s, log in zip(sources, logs.values(), strict=True)))


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank3]: Traceback", "3"),
        ("[Rank 12] Watchdog caught", "12"),
        ("[default0]:step 1", "0"),
        ("[1,7]<stderr>:x", "7"),
        ("[5]<stderr>:x", "5"),
        ("[5]: x", "5"),
        ("17: x", "17"),
        ("  3: x", "3"),
        ("(RayTrainWorker pid=4711, ip=10.0.0.2) x", "pid 4711 on 10.0.0.2"),
        ("(train_fn pid=4711) x", "pid 4711"),
        ("n7:1021:1188 [2] NCCL WARN x", "n7 GPU 2"),
        ("[n1:04242] *** Process received signal ***", "n1:04242"),
        ("[pod/train-worker-3/pytorch] x", "train-worker-3"),
        ("2025-01-02 03:04:05 [rank1]: x", "1"),
        ("step 7 loss 0.3", ""),
        ("Epoch 3: 17 %", ""),
        ("x[3]: y", ""),
        ("", ""),
    ],
)
def test_a_line_says_which_task_wrote_it(line: str, rank: str) -> None:
    assert rank_of(line.encode()) == rank


@pytest.mark.parametrize("actor", [b"a(\xff\xfe)", b"a(SECRET \x1b words)", b"PPO(env=CartPole, [rank7]: lr)"])
def test_a_task_of_ray_is_called_by_its_process_whatever_its_actor_is_called(actor: bytes) -> None:
    assert rank_of(b"(" + actor + b" pid=12, ip=10.0.0.2) ValueError: x") == "pid 12 on 10.0.0.2"


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("2025-01-02 03:04:05,500 ERROR", Form.DATE),
        ("[rank3]: 2025-01-02T03:04:05.500Z ERROR", Form.DATE),
        ("01/02/2025 03:04:05.500 - INFO", Form.DATE),
        ("25/01/02 03:04:05.500 WARN", Form.DATE),
        ("Thu Jan  2 03:04:05.500 2025[1,0]<stdout>:x", Form.DATE),
        ("Jan  2 03:04:05.500 n1 kernel: x", Form.DAY_OF_YEAR),
        ("[rank3]:[E0102 03:04:05.500000 ProcessGroupNCCL.cpp:616] x", Form.DAY_OF_YEAR),
        ("03:04:05.500 x", Form.TIME_OF_DAY),
    ],
)
def test_times_are_read_in_every_form(line: str, form: Form) -> None:
    stamp = stamp_of(line.encode())
    assert stamp is not None
    assert stamp.form is form
    assert stamp.seconds % 86400 == pytest.approx(3 * 3600 + 4 * 60 + 5.5)


@pytest.mark.parametrize("line", ["step 17 of 20", "", "2025-02-31 00:00:00 x", "0x12:34", "\xff" * 50])
def test_what_is_no_time_is_none(line: str) -> None:
    assert stamp_of(line.encode("latin-1")) is None


def test_times_without_a_date_are_compared_across_midnight_and_with_dates() -> None:
    assert comparable([Stamp(Form.TIME_OF_DAY, 86_390.0), Stamp(Form.TIME_OF_DAY, 5.0)]) == [86_390.0, 86_405.0]
    assert comparable([Stamp(Form.DATE, 1e6), Stamp(Form.DATE, 3e6)]) == [1e6, 3e6]
    assert comparable([Stamp(Form.DATE, 10 * 86_400 + 7.0), Stamp(Form.TIME_OF_DAY, 9.0)]) == [7.0, 9.0]


def test_in_one_file_the_first_line_names_the_rank() -> None:
    verdict = judge(f"[rank3]: {ROOT}\n[rank0]: {LOST}\n[rank1]: {LOST}\n".encode())
    assert verdict.summary.endswith("rank 3 broke first, then rank 0 and rank 1 (by the order of the lines)")
    assert [evidence.source for evidence in verdict.evidence] == ["rank 3", "rank 0"]


def test_in_one_file_times_are_believed_before_the_order_of_lines() -> None:
    log = "[rank0]: 2025-01-01 00:10:00 ValueError: x\n[rank3]: 2025-01-01 00:00:01 ValueError: y\n"
    verdict = judge(log.encode())
    assert verdict.summary.endswith("2 ranks alike, rank 3 first (by the times in the log)")
    assert verdict.evidence[0].line == 2


def test_of_files_with_times_the_earliest_names_the_rank() -> None:
    text = files(
        r0=f"2025-01-01 00:00:01 step 1\n2025-01-01 00:10:00 ERROR {TIMED_OUT}\n",
        r1=f"2025-01-01 00:00:01 step 1\n2025-01-01 00:00:02 step 2\nTraceback (most recent call last):\n{ROOT}\n",
        r2=f"2025-01-01 00:00:01 step 1\n2025-01-01 00:10:01 ERROR {TIMED_OUT}\n",
    )
    verdict = judge(text)
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "index")
    assert verdict.summary.endswith("rank 1 broke first, then rank 0 and rank 2 (by the times in the log)")
    assert [(e.source, e.line) for e in verdict.evidence if e.rule == "python-index"] == [("r1.log", 4)]


def test_of_a_clock_that_was_set_back_the_later_time_counts() -> None:
    text = files(
        r0="2025-01-01 00:10:00 ERROR ValueError: x\n2025-01-01 00:00:01 ERROR KeyError: 'y'\n",
        r1="2025-01-01 00:05:00 ERROR ValueError: z\n",
    )
    found = merged(own_rules().hits(text))
    assert found.order is HitOrder.TIMES
    assert [(hit.rank, hit.line) for hit in found.hits] == [("1", 1), ("0", 1), ("0", 2)]


def test_of_files_without_times_the_one_that_fell_silent_first_names_the_rank() -> None:
    text = files(r5="ValueError: x\n", r4="ValueError: y\nstep\n")
    found = merged(own_rules().hits(text))
    assert (found.order, found.hits[0].rank) == (HitOrder.LAST_WRITES, "5")
    assert "by when their logs were last written" in judge(text).summary


def test_a_cascade_that_was_written_first_does_not_take_the_blame() -> None:
    text = files(r0=f"2025-01-01 00:00:01 {LOST}\n", r1=f"2025-01-01 00:00:02 {ROOT}\n")
    assert "rank 1 broke first" in judge(text).summary


def test_who_is_blamed_is_not_said_to_have_broken_first_where_another_did() -> None:
    full = "OSError: [Errno 28] No space left on device"
    log = f"2025-01-01 10:00:01 [rank0]: ValueError: invalid literal: x\n2025-01-01 10:05:09 [rank1]: {full}\n"
    verdict = judge(log.encode())
    told = "this is of rank 1; rank 0 complained before (by the times in the log)"
    assert (verdict.rank, verdict.summary.endswith(told)) == ("1", True)
    swapped = judge(log.replace("10:00:01", "10:09:01").encode()).summary
    assert swapped.endswith("rank 1 broke first, then rank 0 (by the times in the log)")


def test_times_of_day_and_places_in_code_are_no_tasks() -> None:
    log = "[10:00:09] [train.py:42] ValueError: x\n[10:00:11] [engine.py:99] ConnectionResetError: y\n"
    verdict = judge(log.encode())
    assert (verdict.rank, "rank" in verdict.summary, "broke first" in verdict.summary) == ("", False, False)


def test_who_complains_of_a_lost_peer_is_not_named_as_the_first_to_fail() -> None:
    for line in (LOST, "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:19358"):
        assert judge(f"[rank0]: step 1\n[rank1]: step 1\n[rank0]: {line}\n".encode()).rank == ""


def test_forty_ranks_interleaved_name_the_one() -> None:
    rounds = [f"[rank{rank}]: 2025-01-01 00:00:{i:02} step {i}" for i in range(20) for rank in range(40)]
    end = [f"[rank17]: 2025-01-01 00:00:20 {ROOT}", *(f"[rank{r}]: {LOST}" for r in range(40) if r != 17)]
    verdict = judge("\n".join([*rounds, *end]).encode())
    assert "rank 17 broke first, then 39 others" in verdict.summary
    assert verdict.category == "index"


def test_calm_lines_of_many_ranks_do_not_make_a_failure_survived() -> None:
    others = [f"[rank{rank}]: step {i}" for i in range(60) for rank in range(1, 8)]
    log = "\n".join([f"[rank0]: {ROOT}", *others, *(f"[rank{rank}]: {LOST}" for rank in range(1, 8))])
    assert judge(log.encode()).category == "index"


def test_a_log_of_one_task_names_none() -> None:
    verdict = judge(f"[rank0]: {ROOT}\n[rank0]: {LOST}\n".encode())
    assert "rank" not in verdict.summary
    assert {evidence.source for evidence in verdict.evidence} == {""}


def test_a_failure_before_all_times_has_none() -> None:
    """What is written after it does not tell when it came."""
    early = f"{CALM}{ROOT}\n2025-01-02 03:04:05,000 INFO cleanup begins\n"
    late = f"2025-01-02 03:04:01,000 INFO step 1\n{LOST}\n"
    assert merged(own_rules().hits(files(r0=early, r1=late))).order is HitOrder.LAST_WRITES


PAIR_OF_RANKS = (
    ("KeyError: 'labels'", "RuntimeError: [pair.cc:525] Connection closed by peer [10.0.0.3]:1234"),
    ("AssertionError: batch must be even", "torch.distributed.DistBackendError: NCCL communicator was aborted"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB", "Received SIGTERM, exiting"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/data/a'", "ConnectionResetError: [Errno 104] reset"),
)


@pytest.mark.parametrize(("cause", "echo"), PAIR_OF_RANKS)
@pytest.mark.parametrize("echo_first", [True, False])
def test_of_a_pair_of_ranks_the_error_of_its_own_is_the_cause(cause: str, echo: str, echo_first: bool) -> None:
    frames = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    run()\n'
    pair = [(3, frames + cause), (0, frames + echo)]
    ordered = reversed(pair) if echo_first else pair
    lines = [f"[rank{rank}]: {line}" for rank, words in ordered for line in words.splitlines()]
    verdict = judge("\n".join(lines).encode())
    shown = [line.text for line in verdict.evidence if line.role is CauseRole.ROOT]
    assert (verdict.rank, shown[0]) == ("3", cause)
