"""What launchers say of the task that failed first is read as it is meant, whatever else stands in the log."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.hangs.culprit import HangFinding
from perdure.hangs.rank_state import Life, RankState
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import Output
from perdure.triage.evidence.launchers import END_BYTES, LauncherReport, first_failure
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText, Source, TextWindow
from perdure.triage.verdict import Label, Verdict

PEER = (
    "[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[10.0.0.{rank}]:9634. This is typically caused by a remote worker crashing."
)
CODES = {9: "SIGKILL", 11: "SIGSEGV", 6: "SIGABRT", 7: "SIGBUS", 15: "SIGTERM"}


def torchrun(rank: int, code: int, host: str = "n1", at: str = "2026-01-02_03:04:05", local: int | None = None) -> str:
    """The end of what torchrun 2.13 prints where `rank` failed first and rank 0 was ended after it."""
    name = f" ({CODES[-code]})" if -code in CODES else ""
    local = rank if local is None else local
    return f"""\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : {at}
  host      : {host}
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 28)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 28
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : {at}
  host      : {host}
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: 29) {name}
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def told(text: str) -> Verdict:
    return judge(text.encode())


@pytest.mark.parametrize(
    ("code", "category"),
    [(-9, "killed"), (-11, "native_crash"), (-6, "native_crash"), (-7, "env_limit"), (-15, "killed"), (7, "unknown")],
)
def test_a_death_is_explained_by_its_code_and_not_by_its_peers(code: int, category: str) -> None:
    verdict = told("\n".join(["step 5 loss 0.3", PEER.format(rank=0), PEER.format(rank=2), torchrun(1, code)]))
    assert (verdict.category, verdict.rank, verdict.node) == (category, "1", "n1")
    assert "rank 1 on n1 failed first, as torchrun tells" in verdict.summary
    assert verdict.p_transient < 0.5


@pytest.mark.parametrize(
    "memory",
    [
        "[ 4711.1] Memory cgroup out of memory: Killed process 29 (python) total-vm:9kB, anon-rss:9kB",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed.",
    ],
)
def test_with_a_word_of_memory_a_kill_is_for_memory(memory: str) -> None:
    assert told("\n".join([PEER.format(rank=0), memory, torchrun(1, -9)])).category == "host_oom"


def test_the_words_of_the_rank_that_failed_first_explain_its_end() -> None:
    own = "[rank1]: RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x31 and 32x64)"
    verdict = told("\n".join([PEER.format(rank=0), own, torchrun(1, 1)]))
    assert (verdict.category, verdict.rank) == ("shape", "1")


@pytest.mark.parametrize(
    "agent",
    [
        "torch.distributed.elastic.agent.server.api: [ERROR] [default] Worker group FAILED. 3/3 attempts left",
        "The node 'n2_7' has failed to shutdown the rendezvous '7' due to an error of type RendezvousConnectionError.",
    ],
)
def test_what_an_agent_says_of_a_failed_rank_does_not_explain_it(agent: str) -> None:
    for log in (f"{agent}\n{torchrun(1, 1)}", f"{torchrun(1, 1)}{agent}\n"):
        verdict = told(log)
        assert (verdict.label, verdict.category, verdict.rank) == (Label.UNSURE, "unknown", "1")
        assert "exit code 1" in verdict.summary
        assert "no traceback" in verdict.summary


def test_an_agent_that_names_no_rank_says_nothing_of_the_cause() -> None:
    assert told("[default] Worker group FAILED. 0/3 attempts left\n").label is Label.UNSURE


def test_another_ranks_error_of_its_own_is_not_taken_for_that_of_the_first() -> None:
    verdict = told("\n".join(["[rank0]: RuntimeError: odd", torchrun(1, -11)]))
    assert (verdict.category, verdict.rank) == ("native_crash", "1")


def test_a_sibling_that_torchrun_ended_was_not_told_to_end_from_outside() -> None:
    verdict = told(torchrun(1, 1))  # its words are in a file of its own
    assert (verdict.category, verdict.rank) == ("unknown", "1")
    assert "this log holds no traceback of it" in verdict.summary


def test_of_several_nodes_reports_the_earliest_counts() -> None:
    late, early = torchrun(3, 1, "n2", "2026-01-02_03:04:09", 1), torchrun(1, -11, "n1", "2026-01-02_03:04:05")
    for text in (late + early, early + late):
        verdict = told(PEER.format(rank=3) + "\n" + text)
        assert (verdict.category, verdict.rank, verdict.node) == ("native_crash", "1", "n1")


@pytest.mark.parametrize(("host", "rank"), [("n1", 2), ("localhost", 1)])
def test_of_two_launches_one_after_the_other_the_last_counts(host: str, rank: int) -> None:
    """Of a host without a name of its own only the same rank tells that it was launched again."""
    later = torchrun(rank, -9, host, at="2026-01-02_03:09:05")
    verdict = told(torchrun(1, -11, host) + "trying again\n" + later)
    assert (verdict.category, verdict.rank) == ("killed", str(rank))


def test_a_report_that_was_survived_long_ago_explains_nothing() -> None:
    calm = "".join(f"step {n} loss 0.3\n" for n in range(2000))
    verdict = told(torchrun(1, -11) + calm + "ValueError: bad value\n")
    assert verdict.rank == ""
    assert verdict.category != "native_crash"


MPICH = """\
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4711 RUNNING AT n3
=   EXIT CODE: 139
=   CLEANING UP REMAINING PROCESSES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)
"""
INTEL = """\
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 2 PID 4711 RUNNING AT n3
=   KILLED BY SIGNAL: 9 (Killed)
"""
OPEN_MPI_CODE = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[61183,1],3]
  Exit code:    7
"""
ABORT = """\
MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD
with errorcode 7.
"""
SRUN = """\
srun: error: n2: task 3: {how}
srun: Terminating StepId=5.0
slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-01-02T03:04:05 ***
srun: error: n1: tasks 0-1: Terminated
srun: error: n2: task 2: Killed
"""
DEEPSPEED = """\
[2026-01-02 03:04:05,678] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 28
[2026-01-02 03:04:05,679] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 29
[2026-01-02 03:04:05,679] [ERROR] [launch.py:322:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', \
'--local_rank=3', '--deepspeed'] exits with return code = -11
"""
ACCELERATE = "subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' "


@pytest.mark.parametrize(
    ("report", "category", "rank", "node"),
    [
        ("mpirun noticed that process rank 3 with PID 7 on node n2 exited on signal 9 (Killed).", "killed", "3", "n2"),
        ("prterun noticed that process rank 3 with PID 7 on node n2 exited on signal 11 (Segmentation fault).",
         "native_crash", "3", "n2"),
        (OPEN_MPI_CODE, "unknown", "3", ""),
        (ABORT, "unknown", "3", ""),
        ("application called MPI_Abort(MPI_COMM_WORLD, 7) - process 3", "unknown", "3", ""),
        (MPICH, "native_crash", "", "n3"),
        (INTEL, "killed", "2", "n3"),
        (SRUN.format(how="Killed"), "killed", "3", "n2"),
        (SRUN.format(how="Segmentation fault (core dumped)"), "native_crash", "3", "n2"),
        (SRUN.format(how="Exited with exit code 7"), "unknown", "3", "n2"),
        (DEEPSPEED, "native_crash", "3", ""),
        ("Child process with PID 29 terminated with code -9. Forcefully terminating all other processes to avoid "
         "zombies", "killed", "", ""),
        (ACCELERATE + "died with <Signals.SIGKILL: 9>.", "killed", "", ""),
        (ACCELERATE + "returned non-zero exit status 7.", "unknown", "", ""),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
         "killed", "1", ""),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 7",
         "unknown", "1", ""),
        ("E0102 03:04:05.1 7 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -7) "
         "local_rank: 1 (pid: 29) of binary: /usr/bin/python", "env_limit", "1", ""),
    ],
)  # fmt: skip
def test_each_launcher_is_understood(report: str, category: str, rank: str, node: str) -> None:
    noise = "[n1:28] pml error: Connection reset by peer\nRuntimeError: Connection closed by peer [10.0.0.2]:3\n"
    verdict = told(noise + report)
    assert (verdict.category, verdict.rank, verdict.node) == (category, rank, node)


def test_torchruns_report_is_found_behind_what_srun_puts_before_each_line() -> None:
    mixed = []
    for line in torchrun(1, -11).splitlines():
        mixed += [f"0: {line}", "1: " + PEER.format(rank=3)]
    assert (told("\n".join(mixed)).category, told("\n".join(mixed)).rank) == ("native_crash", "1")


_PIECES = [line for rank in (0, 1) for line in torchrun(rank, -9).splitlines()] + [
    *MPICH.splitlines(), *INTEL.splitlines(), *OPEN_MPI_CODE.splitlines(), *SRUN.format(how="Killed").splitlines(),
    *DEEPSPEED.splitlines(), PEER.format(rank=0), "rank : 99999999999999999999 (local_rank: 1)", "exitcode : --9 (pid",
    "\x1b[31m", "\0", "failed (exitcode: 99999) local_rank: 1 (pid: 1)",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=40), max_size=40))
def test_any_mixture_of_reports_has_a_verdict_that_never_says_retry_for_sure(lines: list[str]) -> None:
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    report = first_failure(LogText.of(text), [])
    if report is not None:
        assert 1 <= report.first_line <= report.last_line <= text.count(b"\n") + 1
        assert [report.exit_code > 0, report.signal > 0, report.hangs].count(True) == 1
    assert 0.0 < judge(text).p_transient < 1.0


def test_a_storm_of_reports_takes_time_in_proportion() -> None:
    storm = (torchrun(1, -9) * (END_BYTES // 900)).encode()
    begun = time.process_time()
    first_failure(LogText.of(storm), [])
    assert time.process_time() - begun < 2.0


HANG = "rank 1 on n2 stopped first: train.py:17 in load; rank 0 waits for it in backward; no sign of life for 22 s"
ENDS = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"


def hung(*more: str, said: str = HANG) -> Verdict:
    alarm = "perdure exec: no sign of life for 20 s, last at step 5: its processes are looked at"
    lines = ["step 5 loss 0.3", alarm, f"perdure exec: hang: {said}", f"perdure exec: ended for a hang: {said}", ENDS]
    attempt = Attempt(AttemptId("c", "7", 1), AttemptState.FAILED, ("n1", "n2"), 0.0, 90.0, exit_code=75)
    return judge("\n".join([*more, *lines, PEER.format(rank=0)]).encode(), attempt)


def test_a_hang_that_the_launcher_ended_is_one_whatever_it_exits_with() -> None:
    """It ends with 75, torchrun tells of a signal, a peer of its lost connection: all that follows from the end."""
    verdict = hung()
    assert (verdict.category, verdict.rank, verdict.node) == ("hang", "1", "n2")
    assert "rank 1 on n2 stopped first" in verdict.summary
    assert any("train.py:17" in line.text for line in verdict.evidence)


@pytest.mark.parametrize(("nodes", "node"), [(("n2", "n2", "n2"), "n2"), (("n2", "n2", "n1"), "")])
def test_of_several_that_stopped_first_the_node_is_told_where_it_is_one(nodes: tuple[str, ...], node: str) -> None:
    culprits = tuple(RankState(rank, name, Life.ELSEWHERE) for rank, name in enumerate(nodes, 1))
    verdict = hung(said=HangFinding(culprits, "flight recorder: they are in no collective").sentence)
    assert (verdict.category, verdict.rank, verdict.node) == ("hang", "1", node)


def test_of_a_hang_without_a_culprit_none_is_named() -> None:
    verdict = hung(said="no rank stands out; no sign of life for 22 s")
    assert (verdict.category, verdict.rank) == ("hang", "")


def test_a_rank_that_had_failed_before_the_others_hung_is_the_cause() -> None:
    said = "rank 0 on n1 stopped first: it ended with exit code 7; rank 1 waits for it; no sign of life for 22 s"
    verdict = hung(said=said)
    assert (verdict.category, verdict.rank) == ("unknown", "0")
    assert "exit code 7" in verdict.summary
    error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"
    assert hung("Traceback (most recent call last):", error, said=said.replace("7", "1")).category == "shape"


def test_a_hang_that_the_program_has_come_back_from_is_none() -> None:
    survived = f"perdure exec: hang: {HANG}\nstep 6 loss 0.2\nstep 7 loss 0.2\n{torchrun(0, -11)}"
    assert told(survived).category == "native_crash"


def test_a_failed_rank_is_told_of_while_others_wait() -> None:
    said = "perdure exec: failed rank: rank 0 on n1 ended with exit code 7 6 s ago, and rank 1 on n2 waits"
    verdict = told(f"step 5 loss 0.3\n{said}\n")
    assert (verdict.rank, verdict.node) == ("0", "n1")
    assert "exit code 7" in verdict.summary


CANCELLED = "slurmstepd-node1: error: *** STEP 5.0 ON node1 CANCELLED AT 2026-11-22T20:20:40 ***"
CANCELLED_IN_26_05 = (
    "[2026-11-27T01:34:07.036] error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-27T01:34:07 DUE to SIGNAL Killed ***"
)
ABORTED = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish."


KILLED_BY_SLURM = "srun: error: node1: tasks 0-1: Killed"


@pytest.mark.parametrize(
    "lines",
    [
        (CANCELLED, ABORTED, "srun: error: node1: task 0: Killed"),
        (CANCELLED, "srun: error: node1: task 0: Terminated", "srun: Force Terminated StepId=5.0"),
        (CANCELLED, CANCELLED.replace("node1", "node2"), "srun: error: node1: tasks 0-1: Exited with exit code 1"),
        (ABORTED, CANCELLED_IN_26_05, KILLED_BY_SLURM),
        (ABORTED, CANCELLED, KILLED_BY_SLURM),  # srun and the step daemon write independently of each other
        (ABORTED, KILLED_BY_SLURM, CANCELLED),
    ],
)
def test_a_step_that_somebody_cancelled_is_not_put_back(lines: tuple[str, ...]) -> None:
    verdict = judge("\n".join(["step 1 loss 0.5", *lines]).encode())
    assert (verdict.label, verdict.category, verdict.rank) == (Label.DETERMINISTIC, "cancelled", "")
    assert verdict.summary == "its step was cancelled, as scancel JOB.STEP does"


TOLD_TO_END = (
    "W1120 12:00:11 torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGTERM death signal, shutting"
    " down workers",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2210 got signal: 15",
)


@pytest.mark.parametrize("lines", [(*TOLD_TO_END, CANCELLED), (CANCELLED, *TOLD_TO_END)])
def test_a_launcher_that_was_told_to_end_as_its_step_was_cancelled_was_not_preempted(lines: tuple[str, ...]) -> None:
    verdict = judge("\n".join(["step 1 loss 0.5", *lines]).encode())
    assert (verdict.label, verdict.category) == (Label.UNSURE, "cancelled")
    alone = judge("\n".join(["step 1 loss 0.5", *TOLD_TO_END]).encode())
    assert (alone.label, alone.category) == (Label.TRANSIENT, "preempt")
    preempted = judge("\n".join([*TOLD_TO_END, f"{CANCELLED[:-4]} DUE TO PREEMPTION ***"]).encode())
    assert preempted.category == "preempt"


@pytest.mark.parametrize(
    ("lines", "signal"),
    [
        (("srun: error: node1: task 1: Exited with exit code 3", "srun: launch/slurm: _step_signal: Terminating "
          "StepId=5.0", CANCELLED, "srun: error: node1: task 0: Terminated"), "exit code 3"),
        (("srun: error: node1: task 1: Killed", ABORTED, CANCELLED), "signal 9"),
        (("srun: forcing job termination", ABORTED, CANCELLED, "srun: error: node1: task 0: Exited with exit code 137"),
         ""),
        (("srun: error: node1: task 1: Exited with exit code 3", CANCELLED, "srun: error: node1: task 0: Exited with "
          "exit code 143"), "exit code 3"),  # srun -K, and -Q: it does not tell that it ends the others
    ],
)  # fmt: skip
def test_a_step_that_srun_cancels_itself_failed_before(lines: tuple[str, ...], signal: str) -> None:
    verdict = judge("\n".join(["step 1 loss 0.5", *lines]).encode())
    assert "cancelled, as scancel" not in verdict.summary
    assert signal in verdict.summary


def test_of_several_tasks_that_srun_names_at_once_none_is_the_first() -> None:
    together = judge(b"srun: error: node1: tasks 0-1: Exited with exit code 2\n")
    assert "first, as srun tells" not in together.summary
    assert together.rank == ""
    alone = judge(b"srun: error: node1: task 1: Exited with exit code 2\n")
    assert "rank 1 on node1 failed first, as srun tells" in alone.summary


def test_srun_counts_the_tasks_of_each_component_of_a_heterogeneous_job() -> None:
    log = (
        b"comp 28 0\ncomp 28 1\nsrun: error: node3: task 0: Exited with exit code 1\nRuntimeError: NCCL communicator"
        b" was aborted on rank 1. Original reason for failure was: [Rank 1] Watchdog caught collective operation"
        b" timeout: WorkNCCL(SeqNum=311, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600712"
        b" milliseconds before timing out.\n"
    )
    alone = Output.of(log)
    assert judge(alone).rank == "0"
    verdict = judge(replace(alone, components=2))
    assert (verdict.rank, verdict.node, verdict.category) == ("", "node3", "nccl_timeout")
    assert "; a task on node3 failed first, as srun tells" in verdict.summary


TRACEBACK = '[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "train.py", line 7, in <module>\n'
STORE = (
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
)
SAVER = (
    "Exception in thread Thread-1:\nTraceback (most recent call last):\n"
    "  File \"train.py\", line 45, in run\nOSError: [Errno 122] Disk quota exceeded: '/scratch/2.pt'\n"
)


@pytest.mark.parametrize("error", ["step.<locals>.ShardError: shard 7", "__main__.BadShard: shard 7"])
def test_an_exception_of_the_programs_own_class_counts_more_than_the_agents_lost_store(error: str) -> None:
    lines = [TRACEBACK.format(rank=1) + f"[rank1]: {error}", PEER.format(rank=0), STORE, torchrun(1, 1)]
    verdict = told("\n".join(lines))
    assert (verdict.category, verdict.rank) == ("unknown", "1")
    assert verdict.p_transient < 0.5


def test_a_rank_whose_peer_closed_the_connection_did_not_fail_first() -> None:
    """Agents look at their workers now and then: the times of their reports tell little."""
    late = "[rank1]: RuntimeError: [/gloo/buffer.cc:78] Timed out waiting 25000ms for recv operation to complete"
    lines = [
        PEER.format(rank=0),
        late,
        torchrun(0, 1, at="2026-01-02_03:04:05").replace("-15", "1"),
        torchrun(1, 1, "n2"),
    ]
    verdict = told("\n".join(lines))
    assert (verdict.category, verdict.rank, verdict.node) == ("nccl_timeout", "1", "n2")


@pytest.mark.parametrize("host", ["localhost", "localhost.localdomain"])
def test_no_machine_is_avoided_that_torchrun_calls_by_a_name_of_its_own(host: str) -> None:
    verdict = told(torchrun(1, 3, host))
    assert (verdict.rank, verdict.node) == ("1", "")
    assert "localhost" not in verdict.summary


def test_what_a_helper_thread_died_of_is_not_explained_by_a_peers_lost_connection() -> None:
    own = TRACEBACK.format(rank=1) + "[rank1]: RuntimeError: the saver is dead"
    lines = ["step 5 loss 0.3", SAVER, "step 6 loss 0.3", own, PEER.format(rank=0), torchrun(1, 1)]
    assert told("\n".join(lines)).category == "disk_quota"
    steps = [f"2026-01-02 03:04:{second} INFO step {second} loss 0.3" for second in range(10, 40)]
    assert told("\n".join([SAVER, *steps, own, PEER.format(rank=0), torchrun(1, 1)])).category == "unknown"


def test_a_hang_stays_one_where_a_helper_thread_had_died_long_before() -> None:
    steps = [f"2026-01-02 03:04:{second} INFO step {second} loss 0.3" for second in range(10, 40)]
    verdict = hung(SAVER, *steps)
    assert (verdict.category, verdict.rank) == ("hang", "1")


def test_who_interrupts_a_job_is_not_taken_for_a_crash() -> None:
    agent = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 2"
    ends = "srun: error: n1: task 0: Exited with exit code 1"
    words = TRACEBACK.format(rank=0) + "[rank0]: KeyboardInterrupt"
    for log in ("\n".join([words, agent, ends]), torchrun(1, -2)):
        verdict = told(log)
        assert (verdict.category, verdict.label) == ("cancelled", Label.DETERMINISTIC)


def test_a_compiler_is_no_task_though_it_is_told_where_pythons_headers_are() -> None:
    log = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\n'
        "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', "
        "'-I/usr/include/python3.9']' returned non-zero exit status 1.\n"
    )
    assert judge(log.encode()).category == "env"


@pytest.mark.parametrize(("code", "category"), [(132, "native_crash"), (139, "native_crash"), (137, "killed")])
def test_flux_says_by_which_signal_a_task_ended(code: int, category: str) -> None:
    before = "chmod: cannot access './wait-fs': No such file or directory\n"
    assert told(f"{before}flux-job: task(s) exited with exit code {code}\n").category == category
    assert told(f"{before}flux-job: task(s) exited with exit code 0\n").category == "missing_file"


def test_a_report_is_made_of_lines_of_its_own_file() -> None:
    sources = (Source("a.log", "", 1.0), Source("b.log", "", 1.0))
    windows = tuple(TextWindow(b"KeyError: 'a'\nKeyError: 'b'\n", source=source) for source in sources)
    report = LauncherReport("srun", 1, "error: task 0", windows[0], 1, 2)
    found = [(hit.block.window.source.name, report.tells(hit)) for hit in own_rules().hits(LogText(windows))]
    assert set(found) == {("a.log", True), ("b.log", False)}
