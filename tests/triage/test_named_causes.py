"""Messages of tools, services and nodes whose cause has a name: what is said, and whether a retry is worth it."""

import pytest

from perdure.triage.evidence.context import Context
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label

STEPS = "".join(f"step {i} loss 0.5\n" for i in range(9))
STOP, RETRY, UNSURE = Label.DETERMINISTIC, Label.TRANSIENT, Label.UNSURE
BOX = (
    "-----------------------------------\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n"
    "with errorcode 1.\n-----------------------------------\n"
)
BROKEN_PIPE = (
    "Traceback (most recent call last):\n"
    '  File "/home/u/train.py", line 12, in <module>\n    {}\nBrokenPipeError: [Errno 32] Broken pipe\n'
)
PYXIS = "slurmstepd: error: pyxis: {}\n"
OWN_ERROR = (
    "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 3, in <module>\nNameError: name 'x'\n"
)
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU.\n"
MOUNTING = "FATAL:   while mounting image /proc/self/fd/3: failed to mount squashfs filesystem: {}\n"
EXTRACTING = "FATAL:   while extracting /home/a/i.sif: root filesystem extraction failed: extract command failed: {}\n"
CHDIR = "slurmstepd: error: couldn't chdir to `/data/u': No such file or directory: going to /tmp instead\n"


@pytest.mark.parametrize(
    ("log", "label", "bound", "says"),
    [
        # the node's fault
        ("Failed to initialize NVML: Driver/library version mismatch\n", RETRY, Bound.NODE, "driver was changed"),
        (
            "n2:5:8 [1] transport/nvls.cc:11 NCCL WARN Cuda failure 1 'invalid argument'\nLast error:\n"
            "Cuda failure 802 'system not yet initialized'\n",
            RETRY,
            Bound.NODE,
            "a GPU or its link failed",
        ),
        (
            "ImportError: libcuda.so.1: cannot open shared object file: No such file\n",
            UNSURE,
            Bound.NODE,
            "not on this node",
        ),
        ("FATAL:   container creation failed: failed to find loop device\n", RETRY, Bound.NODE, "no loop device"),
        (
            PYXIS.format("child 7 failed with error code: 1")
            + PYXIS.format("failed to create container filesystem")
            + PYXIS.format("    FATAL ERROR: write_block: No space left on device"),
            RETRY,
            Bound.NODE,
            "disk for containers is full",
        ),
        (
            "slurmstepd: error: spank: required plugin spank_x.so: task_init() failed with rc=-1\n",
            RETRY,
            Bound.NODE,
            "plugin",
        ),
        (
            "Error while creating shared memory segment /dev/shm/nccl-7: No space left on device (28)\n",
            UNSURE,
            Bound.NODE,
            "shared memory",
        ),
        (
            PYXIS.format("container start failed with error code: 1")
            + PYXIS.format("    enroot-mount: failed to mount: /data/a at /run/enroot/data: No such file or directory")
            + PYXIS.format("couldn't start container")
            + "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n",
            STOP,
            Bound.NOTHING,
            "source of a mount",
        ),
        # what one node lacks and another has
        ("KeyError: 'getpwuid(): uid not found: 5012'\n", RETRY, Bound.NODE, "user database"),
        ("whoami: cannot find name for user ID 5012\n", RETRY, Bound.NODE, "user database"),
        ("id: cannot find name for user ID 5012\n", RETRY, Bound.NODE, "user database"),
        ("I have no name!@n1:/$ python train.py\n", RETRY, Bound.NODE, "user database"),
        (f"whoami: cannot find name for user ID 5012\n{OWN_ERROR}", STOP, Bound.NOTHING, "malformed"),
        (NO_DRIVER, UNSURE, Bound.NODE, "no usable GPU"),
        (MOUNTING.format("input/output error"), RETRY, Bound.NODE, "image could not be read"),
        (MOUNTING.format("invalid argument"), STOP, Bound.NOTHING, "cannot be set up as asked"),
        (EXTRACTING.format("Write on output file failed because No space left on device"), RETRY, Bound.NODE, "disk"),
        (EXTRACTING.format("write /tmp/rootfs-7/x: no space left on device"), RETRY, Bound.NODE, "disk"),
        (EXTRACTING.format("write /home/a/box/x: no space left on device"), STOP, Bound.NOTHING, "quota"),
        (
            f"{CHDIR}python: can't open file '/tmp/train.py': [Errno 2] No such file\n",
            UNSURE,
            Bound.NODE,
            "a mount may",
        ),
        (f"{CHDIR}slurmstepd: error: execve(): run.sh: No such file or directory\n", UNSURE, Bound.NODE, "a mount may"),
        (
            "ERROR  : Failed to create user namespace: maximum number of user namespaces exceeded, check "
            "/proc/sys/user/max_user_namespaces\n",
            RETRY,
            Bound.NODE,
            "no further user namespace",
        ),
        ("unshare: unshare failed: No space left on device\n", RETRY, Bound.NODE, "no further user namespace"),
        # a pipe whose reader had ended
        (BROKEN_PIPE.format('print("step", step, flush=True)'), STOP, Bound.NOTHING, "whose reader had ended"),
        (BROKEN_PIPE.format("sys.stdout.write(line)"), STOP, Bound.NOTHING, "whose reader had ended"),
        (
            'Traceback (most recent call last):\n  File "<string>", line 2, in f\nBrokenPipeError: Broken pipe\n',
            STOP,
            Bound.NOTHING,
            "whose reader had ended",
        ),  # python -c "..." | head
        (BROKEN_PIPE.format("sock.sendall(data)"), RETRY, Bound.NOTHING, "a peer closed the connection"),
        (BROKEN_PIPE.format("print(step, file=sock)"), RETRY, Bound.NOTHING, "a peer closed the connection"),
        # services and lost nodes
        (
            "psycopg2.OperationalError: FATAL:  sorry, too many clients already\n",
            RETRY,
            Bound.CALLER,
            "no connection left",
        ),
        (
            "ray.exceptions.ActorDiedError: The actor died.\nThe actor is dead because its node has died. "
            "health check failed due to missing too many heartbeats\n",
            RETRY,
            Bound.NODE,
            "node of the Ray cluster was lost",
        ),
        (
            "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.\n",
            RETRY,
            Bound.CALLER,
            "tracker",
        ),
        ("Exception: The wandb backend process has shutdown\n", RETRY, Bound.CALLER, "tracker"),
        ("Abaqus Error: all licenses are in use\n", RETRY, Bound.CALLER, "licence"),
        ("gurobipy.GurobiError: No tokens available\n", RETRY, Bound.CALLER, "licence"),
        ("ERROR 10009: Failed to connect to token server 'lic1' (port 41954)\n", RETRY, Bound.CALLER, "licence"),
        (
            "distributed.scheduler.KilledWorker: Attempted to run task f on 3 different workers\n",
            UNSURE,
            Bound.NOTHING,
            "Dask",
        ),
        # the user's
        (f"ERROR: Lost atoms: original 900 current 899 (src/thermo.cpp:1)\n{BOX}", STOP, Bound.NOTHING, "unstable"),
        (f"ERROR: input grid x.nc not found\n{BOX}", UNSURE, Bound.NOTHING, "x.nc not found"),
        ("{Error using  * \nIncorrect dimensions for matrix multiplication.\n", STOP, Bound.NOTHING, "shapes"),
        (
            "Error in library(abc) : there is no package called 'abc'\nExecution halted\n",
            STOP,
            Bound.NOTHING,
            "package is missing",
        ),
        (
            "ERROR: LoadError: ArgumentError: Package Abc not found in current path.\n",
            STOP,
            Bound.NOTHING,
            "package is missing",
        ),
        ("Error: cannot allocate vector of size 9.5 Gb\nExecution halted\n", STOP, Bound.NOTHING, "9.5 Gb"),
        (
            "Error in file(f) : cannot open the connection\n  cannot open file 'a.csv': No such file or directory\n"
            "Execution halted\n",
            STOP,
            Bound.NOTHING,
            "not where the job looks",
        ),
        ("[0]PETSC ERROR: Argument out of range\n", STOP, Bound.NOTHING, "library refuses"),
        (
            "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.\n",
            STOP,
            Bound.NOTHING,
            "library",
        ),
        (
            "fatal: destination path 'r' already exists and is not an empty directory.\n",
            STOP,
            Bound.NOTHING,
            "already there",
        ),
        ("LockException:\nError: Directory cannot be locked.\n", UNSURE, Bound.NOTHING, "locked"),
        ("learning_rate must be positive, got -1\n", STOP, Bound.NOTHING, "input or settings"),
        ('j.sh: line 2: 1/n: division by 0 (error token is "n")\n', STOP, Bound.NOTHING, "divided by zero"),
    ],
)
def test_a_cause_has_its_name(log: str, label: Label, bound: Bound, says: str) -> None:
    verdict = judge((STEPS + log).encode())
    assert (verdict.label, verdict.bound) == (label, bound), verdict.summary
    assert says in (verdict.quoted or verdict.summary)


@pytest.mark.parametrize(("gpus", "label"), [(4, UNSURE), (0, STOP)])
def test_a_missing_driver_is_the_nodes_only_where_gpus_were_asked_for(gpus: int, label: Label) -> None:
    assert judge(NO_DRIVER.encode(), context=Context(gpus=gpus)).label is label


def test_who_requeued_a_job_is_not_known() -> None:
    line = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-22T16:44:50 DUE TO JOB REQUEUE ***\n"
    verdict = judge((STEPS + line).encode())
    assert verdict.label is RETRY
    assert "requeued" in verdict.summary
    assert "preempted" not in verdict.summary


@pytest.mark.parametrize(
    ("line", "not_told"),
    [
        ("ZeroDivisionError: division by zero", "learning rate"),
        (" Convergence failure -- run terminated.", "learning rate"),
        ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", "call"),
        ("Error in mean(y) : object 'y' not found", "traceback"),
        ("Error in rule align:", "usually starts"),
        ("  Process `ALIGN (1)` terminated with an error exit status (137)", "usually starts"),
    ],
)
def test_advice_is_about_what_happened(line: str, not_told: str) -> None:
    verdict = judge((STEPS + line + "\n").encode())
    assert verdict.advice
    assert not_told not in verdict.advice


def test_of_a_gigantic_line_its_words_are_shown() -> None:
    verdict = judge(b"x" * 70_000 + b" AssertionError: batch must be even\n")
    assert any(each.text.endswith("batch must be even") and len(each.text) < 400 for each in verdict.evidence)


EXPIRED = "License checkout failed.\nLicense Manager Error -10\nYour license for MATLAB has expired.\n"
RSYNC = "rsync: [sender] write error: Broken pipe (32)\nrsync error: unexplained error (code 255) at io.c(848)\n"
LFS = (
    "batch response: This repository is over its data quota. Account responsible for LFS bandwidth should purchase more"
    " data packs to restore access.\nerror: failed to fetch some objects from 'https://github.com/a/b.git/info/lfs'\n"
)
RESET = "ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))\n"
HERE = "slurm_script: line 9: cannot create temp file for here-document: {}\n"
NO_TMP = "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', '/home/eli']\n"


@pytest.mark.parametrize(
    ("log", "label", "bound", "says"),
    [
        (HERE.format("No space left on device"), RETRY, Bound.NODE, "the node's own directory for temporary files"),
        (HERE.format("Read-only file system"), RETRY, Bound.NODE, "the node's own directory for temporary files"),
        (NO_TMP, RETRY, Bound.NODE, "the node's own directory for temporary files"),
        (HERE.format("Disk quota exceeded"), STOP, Bound.NOTHING, "the disk, the quota"),
        (EXPIRED, STOP, Bound.NOTHING, "the licence does not cover"),
        (RSYNC, RETRY, Bound.NOTHING, "closed the connection"),
        ("cat: write error: Broken pipe\n", STOP, Bound.NOTHING, "as head does"),
        ("In 'config': Could not find 'model/resnet52'\n\nmodel/a\n", STOP, Bound.NOTHING, "Hydra"),
        (LFS, STOP, Bound.NOTHING, "git lfs"),
        ("fatal: detected dubious ownership in repository at '/proj/x'\n", STOP, Bound.NOTHING, "does not trust"),
        ("kinit: Client's credentials have been revoked while getting initial credentials\n", STOP, Bound.NOTHING,
         "Kerberos"),
        (RESET, RETRY, Bound.SERVICE, "a service closed the connection"),
    ],
)  # fmt: skip
def test_a_message_of_a_tool_is_known_by_its_own_words(log: str, label: Label, bound: Bound, says: str) -> None:
    verdict = judge(log.encode())
    assert (verdict.label, verdict.bound) == (label, bound), verdict.summary
    assert says in verdict.summary
