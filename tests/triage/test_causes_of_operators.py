"""Kinds of causes that operators meet: each by its words, and by words that look alike and mean another."""

from __future__ import annotations

import pytest

from perdure.triage.judge import judge
from perdure.triage.reading_order import in_order_of_reading
from perdure.triage.verdict import CauseRole, Label, Verdict

TRACEBACK = 'Traceback (most recent call last):\n  File "/home/a/x.py", line 3, in <module>\n    {}\n'
WAITS = TRACEBACK.format("lock()") + "TimeoutError: could not acquire lock /scratch/x.lock\n"
KILLED = "/var/spool/slurmd/job5/slurm_script: line 3: 915 Killed                  python fit.py\n"
SHORT = "RuntimeError: basic_ios::clear: iostream error\n"
DF = "Filesystem      Size  Used Avail Use% Mounted on\nstor:/x  3.0T  {}  {} /mnt/ckpt\n"
EAGAIN = "BlockingIOError: [Errno 11] Resource temporarily unavailable\n"


def verdict(log: str) -> Verdict:
    return judge(log.encode())


@pytest.mark.parametrize(
    "message",
    [
        "urllib3.exceptions.ResponseError: too many 503 error responses",
        "acme.client.ApiError: 503: upstream said invalid response",
        "elastic.TransportError: (502, 'bad gateway')",
        "kube.ApiException: (504)",
    ],
)
def test_a_status_in_a_clients_error_that_passes_is_a_services_trouble(message: str) -> None:
    found = verdict(TRACEBACK.format("get()") + message + "\n")
    assert (found.label, found.category) == (Label.TRANSIENT, "net")
    other = verdict(TRACEBACK.format("get()") + "urllib3.exceptions.ResponseError: too many 404 error responses\n")
    assert other.label is not Label.TRANSIENT


@pytest.mark.parametrize(
    "told",
    [
        "lock /scratch/x.lock held by pid 4411 on n12\npid 4411: not running\n",
        "x.lock was made by job 7712 (job 7712 COMPLETED 2 days ago)\n",
        "x.lock is stale: its owner (host c3, pid 12) is dead\n",
    ],
)
def test_a_lock_whose_owner_is_gone_is_not_released(told: str) -> None:
    found = verdict(told + WAITS)
    assert (found.label, found.category) == (Label.DETERMINISTIC, "lock")
    assert "nobody will release it" in found.summary
    assert not found.quoted


def test_a_lock_that_is_told_to_be_dead_only_after_the_failure_is_not_released() -> None:
    assert (
        judge((WAITS + "x.lock is stale: its owner (host c3, pid 12) is dead\n").encode()).label is Label.DETERMINISTIC
    )


def test_one_dead_lock_that_was_removed_says_that_locks_are() -> None:
    told = "y.lock is stale: its owner is dead, removing it\nx.lock is stale: its owner (pid 12) is dead\n"
    assert judge((told + WAITS).encode()).label is Label.TRANSIENT


@pytest.mark.parametrize(
    "told",
    [
        "lock /scratch/x.lock held by pid 4411 on n12\npid 4411: running\n",
        "found the stale lock of dead pid 44, removed it\nlock /scratch/x.lock held by pid 4411 on n12\n",
        "worker pid 43 exited with code 0\nlock /scratch/x.lock held by pid 4411 on n12\n",
    ],
)
def test_a_lock_whose_owner_lives_is_waited_for(told: str) -> None:
    found = verdict(told + WAITS)
    assert (found.label, found.category) == (Label.TRANSIENT, "lock")


@pytest.mark.parametrize(
    "message",
    [
        "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)",
        "unable to open shared memory object </torch_77_1> in read-write mode: No space left on device (28)",
        "unable to resize shared memory object </torch_1> to the right size: No space left on device (28)",
    ],
)
def test_full_shared_memory_is_no_full_disk(message: str) -> None:
    assert verdict(f"RuntimeError: {message}\n").category == "env_limit"


def test_df_tells_which_disk_a_short_write_filled() -> None:
    wrote = TRACEBACK.format('torch.save(m, "/mnt/ckpt/b.pt")') + SHORT
    full = verdict(wrote + DF.format("3.0T     0", "100%"))
    assert (full.label, full.category) == (Label.DETERMINISTIC, "disk_quota")
    assert "/mnt/ckpt is at 100 %" in full.summary
    elsewhere = verdict(wrote.replace("/mnt/ckpt", "/home/a") + DF.format("3.0T     0", "100%"))
    assert (elsewhere.label, "df" in elsewhere.summary) == (Label.UNSURE, False)
    assert verdict(wrote + DF.format("1.0T  2.0T", " 34%")).label is Label.UNSURE


@pytest.mark.parametrize("call", ["pid = os.fork()", "self.pid = _fork_exec("])
def test_a_process_that_may_not_start_is_a_limit(call: str) -> None:
    found = verdict("workers: 24, RLIMIT_NPROC 12\n" + TRACEBACK.format(call) + EAGAIN)
    assert (found.label, found.category) == (Label.DETERMINISTIC, "env_limit")
    assert in_order_of_reading(found)[0].text == EAGAIN.strip()
    assert verdict(TRACEBACK.format("s.recv(4)") + EAGAIN).label is not Label.DETERMINISTIC


def test_what_numba_cannot_type_is_quoted_with_its_reason() -> None:
    message = "numba.core.errors.TypingError: Failed in nopython mode pipeline (step: nopython frontend)\n"
    found = verdict(TRACEBACK.format("f(1)") + message + "Unknown attribute 'n' of type array(int64, 1d, C)\n")
    assert (found.label, found.category) == (Label.DETERMINISTIC, "api")
    assert "Unknown attribute 'n'" in found.quoted


def test_tracebacks_of_ranks_behind_their_nodes_names_are_read() -> None:
    raised = TRACEBACK.format("raise ValueError(") + "ValueError: num_heads (20) must be at least 32"
    lines = [f"n0{11 + rank // 8}: [rank{rank}]: {line}" for line in raised.split("\n") for rank in (14, 3)]
    ends = [
        f"n0{n}: srun: error: n0{n}: tasks {tasks}: Exited with exit code 1" for n, tasks in ((12, "8-15"), (11, "0-7"))
    ]
    found = verdict("\n".join([*lines, *ends]) + "\n")
    assert found.label is Label.DETERMINISTIC
    assert "num_heads (20)" in found.quoted
    assert "num_heads (20)" in in_order_of_reading(found)[0].text


@pytest.mark.parametrize(
    "told",
    [
        "Broadcast message from root@n7 (Mon 2026-11-23 02:00:00 UTC):\n\nThe system will reboot now!\n",
        "The system is going down for maintenance NOW!\n",
        "Emergency: CRAC-3 cooling failure, nodes n1-n9 will be powered off NOW.\n",
    ],
)
def test_an_announcement_right_before_a_kill_is_its_cause(told: str) -> None:
    found = verdict("iteration 5 loss 3\n" + told + KILLED)
    assert (found.label, found.category) == (Label.TRANSIENT, "node_loss")
    steps = "".join(f"step {n} loss {9 / n:.2f}\n" for n in range(1, 40))
    assert verdict(told + steps + KILLED).category == "killed"


def test_a_pull_limit_is_believed_before_a_volume_that_was_mounted_at_last() -> None:
    mount = '4m9s Warning FailedMount pod/{} MountVolume.SetUp failed for volume "c" : timed out waiting\n'
    pull = 'Warning Failed pod/a-1 Failed to pull image "x:y": toomanyrequests: You have reached your pull rate limit\n'
    assert "registry" in verdict(mount.format("a-1") + pull).summary
    assert "volume" in verdict(mount.format("b-2") + pull).summary


def test_a_banner_of_openfoam_is_no_failure() -> None:
    banner = "trapFpe: Floating point exception trapping enabled (FOAM_SIGFPE).\nTime = 1\n"
    wrong = '--> FOAM FATAL IO ERROR:\nkeyword nu is undefined in dictionary "constant/transportProperties"\n'
    assert verdict(banner + wrong).category == "config"
    assert verdict(banner + "Floating point exception (core dumped)\n").category == "numeric"


@pytest.mark.parametrize(
    "wrong",
    ["[E::bwa_idx_load_from_disk] fail to locate the index files", "[E::main_mem] failed to open file `/d/R1.fq'."],
)
def test_a_reader_of_nothing_follows_from_what_should_have_written(wrong: str) -> None:
    found = verdict(f'{wrong}\nsamtools sort: failed to read header from "-"\n')
    assert (found.category, in_order_of_reading(found)[0].text) == ("missing_file", wrong)


@pytest.mark.parametrize(
    ("line", "label", "category"),
    [
        ("@ERROR: max connections (40) reached -- try again later", Label.TRANSIENT, "net"),
        ("bob@store: Permission denied (publickey).", Label.DETERMINISTIC, "auth"),
        ("@ERROR: Unknown module 'climate'", Label.DETERMINISTIC, "config"),
        ("@ERROR: auth failed on module data", Label.DETERMINISTIC, "auth"),
        ("FATAL ERROR: Reached heap limit - JavaScript heap out of memory", Label.DETERMINISTIC, "host_oom"),
        ("distributed.nanny.memory - WARNING - Worker tcp://n2:4711 (pid=7) exceeded 95% memory budget. Restarting...",
         Label.DETERMINISTIC, "host_oom"),
    ],
)  # fmt: skip
def test_tools_say_whose_fault_it_is(line: str, label: Label, category: str) -> None:
    found = verdict(line + "\n")
    assert (found.label, found.category) == (label, category)


def test_a_warning_is_no_complaint_before_a_failure() -> None:
    warned = "2: gpu-b07:91877:91877 [0] NCCL WARN NET/IB : Unable to open device mlx5_bond_0, skipping\n"
    raised = "".join(f"3: {line}\n" for line in (TRACEBACK.format("step()") + "KeyError: 'a'").split("\n"))
    follows = "2: [rank2]: torch.distributed.DistBackendError: NCCL error, remote process exited\n"
    found = verdict(warned + raised + follows)
    assert "complained before" not in found.summary
    assert (found.rank, in_order_of_reading(found)[0].role) == ("3", CauseRole.ROOT)


def test_a_message_of_the_day_that_is_missing_is_no_root() -> None:
    found = verdict(
        "cat: /etc/hpc/motd: No such file or directory\n=>> PBS: job killed: walltime 3621 exceeded limit 3600\n"
    )
    assert [line.rule for line in found.evidence if line.role is CauseRole.ROOT] == ["batch-walltime"]
    assert "walltime" in found.summary
