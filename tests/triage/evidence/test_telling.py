"""Of several lines that tell the same cause, the one that names what it is about is read first."""

import pytest
from msgspec.structs import replace

from perdure.triage.evidence.rules import own_rules
from perdure.triage.evidence.telling import most_telling
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import CauseRole, Verdict

TRACEBACK = 'Traceback (most recent call last):\n  File "fetch.py", line 9, in main\n    get(url)\n'
CHAINED = "\nDuring handling of the above exception, another exception occurred:\n\n"


def first_of(verdict: Verdict) -> str:
    """The first line that says the cause."""
    return next(line.text for line in verdict.evidence if line.role is not CauseRole.CONFIRMATION)


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            f"{TRACEBACK}TimeoutError: The read operation timed out\n{CHAINED}{TRACEBACK}"
            "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='mirror.example.org', port=443): timed out.\n"
            "srun: error: n3: task 0: Exited with exit code 1\n",
            "mirror.example.org",
        ),
        (
            "[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address.\n"
            f"{TRACEBACK}torch.distributed.DistNetworkError: The server socket has failed to bind to [::]:29511 "
            "(errno: 98 - Address already in use).\n",
            "errno: 98",
        ),
        (
            "Reason:  Evicted\nMessage: The node was low on resource: memory. Container main was using 900Mi, request "
            "is 4Gi, has larger consumption of memory.\n",
            "low on resource",
        ),
        (
            "terminate called after throwing an instance of 'std::out_of_range'\n  what():  map::at: key 7\n"
            "Aborted (core dumped)\n",
            "map::at",
        ),
        (
            "E0212 07:45:41.906611 2391 agent.cc:755] Polled an error from coordination service (this can be an error "
            "from this or another task).\n/job:worker/replica:0/task:5\nThe tasks have crashed. heartbeat timeout\n",
            "heartbeat timeout",
        ),
        (
            'Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/numpy/linalg/_linalg.py", '
            "line 144, in _raise_linalgerror_singular\n    raise LinAlgError(x)\n"
            "numpy.linalg.LinAlgError: Singular matrix\n",
            "LinAlgError: Singular matrix",
        ),
        (
            f"{TRACEBACK}tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n\n"
            "OOM when allocating tensor with shape[9,9] and type float on /device:GPU:0 by allocator GPU_0_bfc\n",
            "shape[9,9]",
        ),
        (
            f"{TRACEBACK}requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://hub.example/m\n"
            f"{CHAINED}{TRACEBACK}OSError: You are trying to access a gated repo.\n",
            "gated",
        ),
    ],
    ids=[
        "chained exception",
        "errno",
        "message of a reason",
        "what",
        "announcement",
        "frame of a library",
        "graph of TensorFlow",
        "access to a hub",
    ],
)
def test_the_line_that_names_the_object_is_read_first(log: str, told: str) -> None:
    assert told in first_of(judge(log.encode()))


def test_a_line_of_another_rank_that_names_the_object_does_not_speak_for_the_first() -> None:
    messages = ("ReadTimeout: timed out", "ReadTimeout: HTTPSConnectionPool(host='mirror.example.org'): timed out")
    failed = [f"{TRACEBACK}requests.exceptions.{message}".splitlines() for message in messages]
    log = "".join(f"[rank{rank}]: {line}\n" for rank, lines in enumerate(failed) for line in lines)
    assert first_of(judge(log.encode())).endswith("ReadTimeout: timed out")


def test_a_line_that_names_its_object_stays_first() -> None:
    log = f"nfs: server nas03 not responding, timed out\n{TRACEBACK}OSError: [Errno 5] Input/output error: '/data/x'\n"
    assert "nas03" in first_of(judge(log.encode()))


def test_a_warning_is_not_read_before_the_error() -> None:
    log = (
        "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address in use).\n"
        "[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address.\n"
    )
    assert first_of(judge(log.encode())).startswith("[E socket")


def test_what_another_run_of_failure_lines_names_tells_nothing_of_this_one() -> None:
    """A later launch may fail at something else."""
    log = f"{TRACEBACK}ConnectionError: HTTPSConnectionPool(host='a.org', port=443)\n{CHAINED}{TRACEBACK}TimeoutError\n"
    first, *_, last = own_rules().hits(LogText.of(log.encode()))
    alike = replace(last, text="TimeoutError: [Errno 110] to https://a.org", line=first.line)
    told = [most_telling(last, [replace(alike, run=last.run + n), last]).line for n in (0, 1)]
    assert told == [first.line, last.line]


LOOKUP = 'Traceback (most recent call last):\n  File "build.py", line 3, in get\n    return KNOWN[name]\n'
FROM = "\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (f"{LOOKUP}KeyError: 'cosine'\n{FROM}{TRACEBACK}ValueError: unknown scheduler 'cosine'\n", "ValueError"),
        (f"{LOOKUP}KeyError: 7\n{FROM}{TRACEBACK}ValueError: class 7 is not in the list of names\n", "ValueError"),
        (f"{LOOKUP}KeyError: 'lr'\n{CHAINED}{TRACEBACK}configparser.NoOptionError: No option 'lr'\n", "NoOption"),
        # what fails while a program cleans up, reports or closes does not name the key
        (f"{LOOKUP}KeyError: 'lr'\n{CHAINED}{TRACEBACK}TypeError: unsupported format string passed to x\n", "KeyError"),
        (f"{LOOKUP}KeyError: 'a'\n{CHAINED}{TRACEBACK}OSError: [Errno 39] Directory not empty: '/t/a'\n", "KeyError"),
        (f"{LOOKUP}KeyError: 'a'\n{CHAINED}{TRACEBACK}BrokenPipeError: [Errno 32] Broken pipe\n", "KeyError"),
        (f"{LOOKUP}KeyError: 'lr'\n{FROM}{TRACEBACK}RuntimeError: could not set up\n", "KeyError"),
        (f"{LOOKUP}KeyError: 'lr'\n{FROM}{TRACEBACK}KeyError: 'lr'\n", "KeyError"),
    ],
)
def test_a_missing_key_is_told_by_what_says_of_what_it_is(log: str, told: str) -> None:
    assert told in first_of(judge(log.encode()))


def test_what_fails_while_a_program_cleans_up_gives_a_missing_key_no_other_category() -> None:
    key = f"{LOOKUP}KeyError: 'labels'\n"
    cleaning = f"{CHAINED}{TRACEBACK}OSError: [Errno 39] Directory not empty: '/scratch/tmp/x'\n"
    assert judge((key + cleaning).encode()).category == judge(key.encode()).category


def test_the_sentence_quotes_what_says_of_what_a_key_is() -> None:
    log = f"{LOOKUP}KeyError: 'resnet999'\n{FROM}{TRACEBACK}RuntimeError: model 'resnet999' is not registered\n"
    assert "model 'resnet999' is not registered" in judge(log.encode()).quoted
