"""What programs print and go on: whatever fails later, the verdict is the same as without such lines."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.judge import judge

NAMES = [
    "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None)) after connection broken by"
    " 'NewConnectionError('<x>: Failed to establish: [Errno -3] Temporary failure in name resolution')': /simple/x/",
    "DEBUG:urllib3.connectionpool:NameResolutionError(\"Failed to resolve 'wandb.ai' ([Errno -3] Temporary failure\")",
    "2026-11-22 10:00:00 DEBUG aiohttp: getaddrinfo failed for ::1",
    "[rank0]:[W1122 10:00:00.12 ProcessGroupGloo.cpp:760] Warning: Unable to resolve hostname to a (local) address.",
    "wandb: WARNING Could not resolve host api.wandb.ai, running offline",
    "INFO hydra: Failed to resolve interpolation ${oc.env:WANDB_NAME}, using default",
    "vite: Failed to resolve entry for package 'x'",
    'level=warning msg="lookup registry on 10.0.0.2:53: i/o timeout, trying next mirror"',
    'level=debug msg="dial tcp: lookup s3.local: server misbehaving"',
    "Could not reach the hub (Temporary failure in name resolution): using the cached weights",
    "mlflow tracking: EAI_AGAIN on attempt 1/5, sleeping 2 s",
]
_LIB = "/v/lib/python3.11/site-packages/torch"
_STD = "/usr/lib/python3.11/multiprocessing"
WORKERS = [
    f"""Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3>
Traceback (most recent call last):
  File "{_LIB}/utils/data/dataloader.py", line 1663, in __del__
    self._shutdown_workers()
  File "{_STD}/resource_sharer.py", line 86, in get_connection
    c = Client(address, authkey=process.current_process().authkey)
ConnectionRefusedError: [Errno 111] Connection refused""",
    f"""Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3>
Traceback (most recent call last):
  File "{_LIB}/utils/data/dataloader.py", line 1646, in _shutdown_workers
    if w.is_alive():
  File "{_STD}/process.py", line 160, in is_alive
    assert self._parent_pid == os.getpid(), 'can only test a child process'
AssertionError: can only test a child process""",
    f"""[rank1]: Exception ignored in: <Finalize object, dead>
[rank1]: Traceback (most recent call last):
[rank1]:   File "{_STD}/util.py", line 227, in __call__
[rank0]: step 400 loss 0.1
[rank1]:     res = self._callback(*self._args, **self._kwargs)
[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pymp-8x'""",
    """Exception ignored while calling deallocator <function SharedMemory.__del__ at 0x7f>:
Traceback (most recent call last):
BufferError: cannot close exported pointers exist""",
    f"{_STD}/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 6 leaked semaphore objects",
    "[W CudaIPCTypes.cpp:15] Producer process has been terminated before all shared CUDA tensors released.",
    f'Thread 0x7f:\n  File "{_STD}/resource_sharer.py", line 145 in _serve\n  File "{_STD}/threading.py", line 7 in x',
    "Thread 12 (idle): resource_sharer\n    get_connection (multiprocessing/resource_sharer.py:86)",
    "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker is 2",
    "DEBUG data: worker 3 of the loader ended",
]
LOADS = [
    f"{_LIB}/serialization.py:1189: SourceChangeWarning: source code of class 'Net' has changed.",
    "train.py:30: FutureWarning: You are using `torch.load` with `weights_only=False` (the current default value)",
    f'Current thread 0x7f (most recent call first):\n  File "{_LIB}/serialization.py", line 1568 in load',
    'Thread 12 (active): "MainThread"\n    load (torch/serialization.py:1568)',
    f"        1    0.000    0.000    0.002    0.002 {_LIB}/serialization.py:1568(load)",
    "INFO resume: no checkpoint in checkpoints/, starting from scratch",
    "INFO resume: torch.load of checkpoints/step-200.pt took 3.1 s",
    "WARNING: checkpoint step-300.pt is damaged (PytorchStreamReader failed reading zip archive), falling back",
    "Missing keys in the checkpoint are initialised anew: 2, unexpected keys ignored: 0",
    f"Exception ignored in: <function Reader.__del__ at 0x7f>\nTraceback (most recent call last):\n"
    f'  File "{_LIB}/serialization.py", line 1568, in load\nValueError: I/O operation on closed file',
]  # fmt: skip
STEPS = "".join(f"step {i} loss {3 / i:.4f}\n" for i in range(1, 400))
RAISED = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n'
ENDS = {
    "value": f"{RAISED}ValueError: bad value\n",
    "runtime": f"{RAISED}RuntimeError: it did not work\n",
    "shape": f"{RAISED}RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x31 and 32x64)\n",
    "peer": "RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:3\n",
    "srun": "srun: error: node1: task 1: Killed\n",
    "crash": "Segmentation fault (core dumped)\n",
}


@pytest.mark.parametrize("between", ["step 400 loss 0.1\n", STEPS], ids=["near", "far"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("line", NAMES + WORKERS + LOADS)
def test_a_line_that_was_no_failure_changes_no_verdict(line: str, end: str, between: str) -> None:
    alone = judge(f"{STEPS}{ENDS[end]}".encode())
    beside = judge(f"{STEPS}{line}\n{between}{ENDS[end]}".encode())
    assert (beside.category, beside.label) == (alone.category, alone.label), beside.evidence


KILLED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 60.0, exit_code=137)


@pytest.mark.parametrize("line", ["curl: (6) Could not resolve host: metadata.google.internal", *NAMES, ENDS["value"]])
def test_what_stands_hundreds_of_steps_before_a_kill_is_not_its_cause(line: str) -> None:
    assert judge(f"{line}\n{STEPS}".encode(), KILLED).category == "killed"
    assert judge(f"{STEPS}{ENDS['shape']}".encode(), KILLED).category == "shape"


def test_a_step_of_slurm_is_no_step_of_the_program() -> None:
    words = "slurmstepd: error: *** STEP 7511822.0 ON node41 CANCELLED AT 2025-03-08T03:29:01 ***\n"
    found = judge(f"RuntimeError: NCCL error: unhandled system error\n{words}".encode())
    assert "7511822" not in "".join(each.text for each in found.evidence if each.rule == "far-along")
