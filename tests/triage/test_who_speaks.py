"""Who speaks decides what a word means: the node, the fabric, a compiler, a build tool, a program of science."""

import pytest

from perdure.triage.evidence.matching import RuleBook
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label, Verdict

RETRY, STOP, UNSURE = Label.TRANSIENT, Label.DETERMINISTIC, Label.UNSURE
DEATHS = [
    "srun: error: r03u05: task 9: Killed",
    "mpirun noticed that process rank 9 with PID 0 on node r03u05 exited on signal 9 (Killed).",
    "mpirun noticed that process rank 9 with PID 0 on node r03u05 exited on signal 1 (Hangup).",
    "slurmstepd: error: *** STEP 7.0 ON r03u05 task 9: Terminated",
]
OF_HARDWARE = [
    " 3a | 05/02/2026 | 03:51:12 | Power Supply #0x52 | Power Supply Failure detected | Asserted",
    " 3b | 05/02/2026 | 03:51:12 | Power Unit #0x01 | Power off/down | Asserted",
    " 3c | 05/02/2026 | 03:51:12 | Temperature CPU0 | Upper Critical going high | Asserted",
    " 3d | 05/02/2026 | 03:51:12 | Processor #0x61 | IERR | Asserted",
    "May  2 03:51:12 r03u05 kernel: EDAC MC0: 1 UE memory read error on CPU_SrcID#0",
]


def judged(text: str) -> Verdict:
    return judge(f"reading the input\n{text}\n".encode())


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("told", OF_HARDWARE)
def test_what_the_node_tells_before_a_death_is_its_cause(told: str, death: str) -> None:
    verdict = judged(f"it=1\n{told}\n{death}")
    assert (verdict.label, verdict.category) == (RETRY, "node_loss")
    root = next(line for line in verdict.evidence if line.rule != "own-frame" and line.role == "root")
    assert root.text.split()[-1] == told.split()[-1]


@pytest.mark.parametrize("death", DEATHS)
def test_a_death_alone_says_nothing_of_the_node(death: str) -> None:
    assert judged(f"it=1\nfan speed 4200 RPM ok\n{death}").category != "node_loss"
    assert judged(f"Power Supply AC lost test passed\nTypeError: f() got x\n{death}").category == "api"


@pytest.mark.parametrize(
    ("text", "label", "category"),
    [
        # the node's operating system, and not its boot
        ("SEL: OS Critical Stop #0x46 | Run-time critical stop | Asserted", RETRY, "node_loss"),
        ("Warning  NodeNotReady  node-controller  Node is not ready", RETRY, "node_loss"),
        ("Warning  NodeNotReady  node-controller  Node is not ready\nNormal  TaintManagerEviction  Marking for "
         "deletion Pod d/x", RETRY, "node_loss"),
        ("Executor 7 lost: executor heartbeat timed out after 132 s", RETRY, "node_loss"),
        ("coordinator: lost heartbeat from worker 12", RETRY, "node_loss"),
        ("watchdog: no progress for 30 s, giving up", RETRY, "hang"),
        ("024 (7.000.000) 2026-05-02 04:51:31 Job reconnection failed", RETRY, "node_loss"),
        ("nhc: Health check failed: check_fs_mount: /scratch is not mounted", RETRY, "node_loss"),
        # an errno means what its speaker does
        ("PSM2 can't poll: hfi1_0: Input/output error", RETRY, "net"),
        ("uct_rc_mlx5 progress: Input/output error", RETRY, "net"),
        ("OSError: [Errno 5] Input/output error: '/data/x'", RETRY, "fs"),
        ("RuntimeError: unable to open shared memory object </torch_7_1> in read-write mode: Too many open files (24)",
         STOP, "env_limit"),
        ("kernel: afs: Lost contact with file server 10.0.0.3 in cell x.org (code -1)", RETRY, "fs"),
        # builds
        ("fused.cpp:3:10: fatal error: nccl.h: No such file or directory\nninja: build stopped: subcommand failed.",
         STOP, "import"),
        ("/usr/bin/ld: cannot find -lfftw3\ncollect2: error: ld returned 1 exit status", STOP, "import"),
        ("CMake Error at CMakeLists.txt:7 (find_package):\n  Could NOT find HDF5 (missing: "
         "HDF5_LIBRARIES)", STOP, "import"),
        ("a.cu:7:3: error: expected ';' before 'return'\nmake: *** [a.o] Error 1", STOP, "syntax"),
        # modules of the environment
        ("Lmod has detected the following error: The following module(s) are unknown: \"gcc/99\"\n./run.sh: line 4: "
         "nvcc: command not found", STOP, "env"),
        ("Lmod has detected the following error: The following module(s) are unknown: \"x/9\"\nTypeError: f() got x",
         STOP, "api"),
        # classes, not words
        ("terminate called after throwing an instance of 'std::out_of_range'\n  what():  map::at", STOP, "index"),
        ("MissingInputException in rule map in file /w/Snakefile, line 3:\nMissing input files for rule map:", STOP,
         "missing_file"),
        ("MissingOutputException in rule map in file /w/Snakefile, line 3:\nmight be due to filesystem latency", UNSURE,
         "missing_file"),
        # programs of science that end by a word about their input
        ("A USER ERROR has occurred: Badly formed genome unclippedLoc", STOP, "config"),
        ("A USER ERROR has occurred: The specified fasta file (file:///r/hg.fa) does not exist.", STOP, "missing_file"),
        ("--> FOAM FATAL IO ERROR: \nkeyword div(phi,U) is undefined in dictionary", STOP, "config"),
        ("Fatal error:\nResidue 'LIG' not found in residue topology database", STOP, "config"),
        ("samtools index: truncated file. Aborting", STOP, "data"),
        # a header is no cause
        ("ERROR: Exception:\nTraceback (most recent call last):\n  File \"x.py\", line 1, in f\n    g()\n"
         "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='i.lan', port=443): Read "
         "timed out.",
         RETRY, "net"),
        ("Unhandled exception:\nTraceback (most recent call last):\n  File \"x.py\", line 1, in f\n    g()\n"
         "KeyError: 'lr'", STOP, "index"),
    ],
)  # fmt: skip
def test_a_word_is_read_by_who_says_it(text: str, label: Label, category: str) -> None:
    verdict = judged(text)
    assert (verdict.label, verdict.category) == (label, category), verdict.summary


@pytest.mark.parametrize("progress", ["epoch 6 dice 0.81", "Epoch 3/90 - loss 0.2", "epoch: 4\nepoch: 5", "Epoch [7]"])
def test_epochs_show_that_a_network_worked(progress: str) -> None:
    assert judged(f"{progress}\nsocket.gaierror: [Errno -3] Temporary failure in name resolution").label is RETRY


@pytest.mark.parametrize("setting", ["epoch: 90", "--epoch 90", "epochs 90", "num_epoch=90", "epoch 0 loss 9"])
def test_a_setting_shows_nothing(setting: str) -> None:
    assert judged(f"{setting}\nsocket.gaierror: [Errno -3] Temporary failure in name resolution").label is UNSURE


@pytest.mark.parametrize(
    ("line", "hard"),
    [
        ("20034, Fatal, Link 32 LTSSM Fault Up", True),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error", False),
        ("99999, Non-fatal, Link 1 x", False),
        ("99999, Fatal, Link 1 x", True),
        ("19059, Link 1 x", False),  # by its number
        ("19084, Link 1 AN1 Heartbeat Timeout Error", True),
        ("19059, Fatal, Link 1 x", True),  # the word is the driver's own
    ],
)
def test_an_sxid_counts_against_a_node_if_it_is_fatal(line: str, hard: bool) -> None:
    rules: RuleBook = own_rules()
    found = rules.match(f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): {line}".encode())
    assert found is not None
    assert found.cause.hard is hard
    assert (found.cause.bound is Bound.NODE) is hard
