"""What the rest of a log says against the usual meaning of a line: the job is probed, neither stopped nor retried."""

import pytest

from perdure.triage.evidence.context import Context
from perdure.triage.judge import NoModel, judge
from perdure.triage.verdict import Label, Verdict

STEPS = "".join(f"step {step}/1000 loss 0.3\n" for step in range(1, 61))
DNS = "socket.gaierror: [Errno -3] Temporary failure in name resolution\n"
GONE = """Traceback (most recent call last):
  File "train.py", line 5, in <module>
    value = float(open(f"{root}/{i}.txt").read())
FileNotFoundError: [Errno 2] No such file or directory: '/lustre/ann/train/61.txt'
"""
TIMEOUT = (
    "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=21, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600033 milliseconds\n"
)
CUPY = "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating {:,} bytes (allocated so far: {:,} bytes).\n"
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
XID = "Jan  2 03:04:05 n7 kernel: NVRM: Xid (PCI:0000:3b:00): 94, pid=7, Contained: CE User Channel (0x9). RST: No\n"


def verdict(log: str, context: Context | None = None) -> Verdict:
    return judge(log.encode(), context=context, model=NoModel())


def test_a_way_out_that_was_never_used_is_probed() -> None:
    assert verdict(STEPS + DNS).label is Label.UNSURE
    used = "downloaded https://data.site.local/a.tar\n"
    assert verdict(used + STEPS + DNS).p_transient >= 0.5


def test_a_file_that_is_gone_from_a_folder_in_use_is_probed() -> None:
    named = "data : /lustre/ann/train\n"
    assert verdict(named + STEPS + GONE).label is Label.UNSURE
    assert "worked with" in verdict(named + STEPS + GONE).summary
    for log in (named + GONE, STEPS + GONE, named + STEPS + GONE.replace(").read()", ', "w")')):
        assert verdict(log).label is Label.DETERMINISTIC


@pytest.mark.parametrize(("place", "label"), [(212992, Label.UNSURE), (212990, Label.DETERMINISTIC)])
def test_a_file_that_ends_where_a_buffer_ends_is_probed(place: int, label: Label) -> None:
    error = f"json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column {place + 1} (char {place})\n"
    assert verdict(error).label is label


def test_a_collective_of_one_rank_waits_for_nobody() -> None:
    several, one = verdict(TIMEOUT, Context(gpus=2)), verdict(TIMEOUT, Context(gpus=1))
    told = verdict("n1:7:9 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 1 cudaDev 0\n" + TIMEOUT)
    assert several.label is Label.TRANSIENT
    assert one.label is told.label is Label.UNSURE
    assert "one rank" in one.summary


def test_a_card_that_is_full_before_the_first_allocation_is_probed() -> None:
    assert (verdict(CUPY.format(1 << 27, 0)).label, verdict(CUPY.format(1 << 27, 0)).category) == (
        Label.UNSURE,
        "gpu_busy",
    )
    for log in (CUPY.format(1 << 27, 70 << 30), CUPY.format(60 << 30, 0), STEPS + CUPY.format(1 << 27, 0)):
        assert (verdict(log).label, verdict(log).category) == (Label.DETERMINISTIC, "gpu_oom")


def test_a_crashed_kernel_is_probed_unless_hardware_broke() -> None:
    assert verdict(STEPS + ILLEGAL).label is Label.UNSURE
    for log in (STEPS + ILLEGAL + XID, STEPS + XID + ILLEGAL):
        assert (verdict(log).label, verdict(log).category) == (Label.TRANSIENT, "gpu_hw")


LIMIT = "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
LOST = "[129.2] Lustre: l1-OST0004-osc-ff8f: Connection to l1-OST0004 (at 10.10.4.4@o2ib) was lost; in progress\n"
BLOCKED = "[213.0] INFO: task python:811 blocked for more than 120 seconds.\n"


def test_a_walltime_spent_waiting_for_storage_is_probed() -> None:
    stalled = verdict(STEPS + LOST + BLOCKED + LIMIT)
    assert (stalled.label, stalled.category) == (Label.UNSURE, "fs")
    went_on = "[140.0] Lustre: l1-OST0004-osc-ff8f: Connection restored to 10.10.4.4@o2ib (at 10.10.4.4@o2ib)\n"
    for log in (STEPS + LIMIT, STEPS + LOST + STEPS + LIMIT, STEPS + LOST + went_on + LIMIT):
        assert (verdict(log).label, verdict(log).category) == (Label.DETERMINISTIC, "time_limit")


def test_a_file_on_what_was_not_mounted_is_probed() -> None:
    failed = "Oct 18 04:11:32 n7 automount[1873]: failed to mount /lustre/ann\n"
    found = verdict(failed + GONE)
    assert (found.label, found.category) == (Label.UNSURE, "fs")
    for log in (GONE, failed.replace("/ann", "/bob") + GONE, failed.replace("/ann", "/an") + GONE):
        assert (verdict(log).label, verdict(log).category) == (Label.DETERMINISTIC, "missing_file")


def test_a_host_that_is_asked_by_default_is_a_setting() -> None:
    refused = 'OperationalError: connection to server at "localhost" (127.0.0.1), port 5 failed: Connection refused\n'
    by_default = "WARNING DB_HOST is not set, using default 'localhost'\n"
    found = verdict(by_default + refused)
    assert (found.label, found.category) == (Label.UNSURE, "config")
    assert verdict(refused).category == "net"
    assert verdict(by_default + refused.replace("localhost", "db7").replace("127.0.0.1", "10.0.0.7")).category == "net"


def test_a_port_that_the_job_itself_had_taken_is_probed() -> None:
    taken = "torch.distributed.DistNetworkError: failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
    assert verdict("task 0 launches an agent on port 29500\n" + taken).label is Label.UNSURE
    for before in ("", "task 0 launches an agent on port 29501\n", "waits for a free port: 29500\n"):
        assert verdict(before + taken).label is Label.TRANSIENT


def test_a_card_with_little_memory_left_explains_no_error_of_the_programs_own() -> None:
    created = (
        "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 12 MB memory:  -> device: 0, name: A100\n"
    )
    assert verdict(f"{created}KeyError: 'labels'\n").category == verdict("KeyError: 'labels'\n").category


def test_a_file_that_another_rank_still_fetches_is_probed() -> None:
    cut = "[rank2]: RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    bar = "[rank0]: weights.pt:  {}%|##   | 2/9\n"
    assert verdict(bar.format(28) + cut).label is Label.UNSURE
    for log in (cut, bar.format(100) + cut, bar.format(28).replace("rank0", "rank2") + cut):
        assert verdict(log).label is Label.DETERMINISTIC


def test_a_mount_that_a_health_check_missed_is_why_a_file_is_missing() -> None:
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/work/ann/train.npz'\n"
    for told in ("ERROR: nhc: check_fs_mount:  /work not mounted\n", "node check: /work is not mounted\n"):
        assert (verdict(told + missing).label, verdict(told + missing).category) == (Label.UNSURE, "fs")
    assert verdict("ERROR: nhc: check_fs_mount:  /home not mounted\n" + missing).label is Label.DETERMINISTIC


def test_a_file_that_another_rank_still_writes_is_probed() -> None:
    cut = "[rank2]: RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    begun, whole = "[rank0]: saving checkpoint to last.pt\n", "[rank0]: saved last.pt\n"
    assert verdict(begun + cut).label is Label.UNSURE
    for log in (begun + whole + cut, begun.replace("rank0", "rank2") + cut, begun.replace("[rank0]: ", "") + cut):
        assert verdict(log).label is Label.DETERMINISTIC


@pytest.mark.parametrize("name", ["last.pt.tmp' -> '/home/ann/last.pt", "tok.arrow.incomplete", "tmpab12_x9z"])
def test_a_file_that_is_gone_under_its_working_name_is_probed(name: str) -> None:
    gone = "FileNotFoundError: [Errno 2] No such file or directory: '/home/ann/{}'\n"
    assert verdict(gone.format(name)).label is Label.UNSURE
    for other in ("last.pt", "template.tmpl", "parts.csv", "tmp/x.csv"):
        assert verdict(gone.format(other)).label is Label.DETERMINISTIC
