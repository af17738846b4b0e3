"""Categories that what stands around the decisive line makes narrower; and no verdict that changes with them."""

from __future__ import annotations

import pytest

from perdure.triage.judge import judge
from perdure.triage.verdict import Label, Verdict

RAISED = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\n'
HANDLING = "During handling of the above exception, another exception occurred:"
LOADER = "{0}: Caught {0} in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
FRAME = '  File "/home/ada/data.py", line 9, in __getitem__\n    assert ok\n'


def said(text: str) -> Verdict:
    return judge(text.encode())


@pytest.mark.parametrize(
    ("log", "category"),
    [
        (f"{RAISED}TimeoutError: timed out\n", "net"),
        (
            f"{RAISED}TimeoutError: timed out\n\n{HANDLING}\n\n"
            f"{RAISED}urllib3.exceptions.ConnectTimeoutError: (<x>, 'Connection to api.wandb.ai timed out.')\n",
            "tracker",
        ),
        ("error: http2: client connection lost\n", "k8s_infra"),
        (f"{RAISED}RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 6x7)\n", "shape"),
        (f"{RAISED}RuntimeError: expected mat1 and mat2 to have the same dtype, but got: double != float\n", "dtype"),
        (f"{RAISED}IndexError: too many indices for tensor of dimension 2\n", "index"),
        (f"{RAISED}AssertionError\n", "assertion"),
        (f"{RAISED}{LOADER.format('AssertionError')}{FRAME}AssertionError\n", "data"),
        (f"{RAISED}{LOADER.format('KeyError')}{FRAME}KeyError: 'image'\n", "data"),
        (f"{RAISED}{LOADER.format('NameError')}{FRAME}NameError: name 'np' is not defined\n", "syntax"),
    ],
)
def test_what_stands_around_narrows_a_category(log: str, category: str) -> None:
    assert said(log).category == category


@pytest.mark.parametrize(
    ("log", "category"),
    [
        (
            f"{RAISED}requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://hub.org/x\n",
            "net",
        ),
        (
            f"{RAISED}botocore.exceptions.ClientError: An error occurred (SlowDown) when calling PutObject\n",
            "obj_store",
        ),
        (f"{RAISED}    data = pickle.load(f)\n_pickle.UnpicklingError: invalid load key, '<'.\n", "data"),
        (
            f"{RAISED}    magic_number = pickle_module.load(f)\n_pickle.UnpicklingError: invalid load key, '<'.\n",
            "ckpt",
        ),
        (f"{RAISED}    raise KeyError(key) from None\nKeyError: 'DATA_ROOT'\n", "config"),
        (f"{RAISED}    value = found['DATA_ROOT']\nKeyError: 'DATA_ROOT'\n", "api"),
        (f"{RAISED}KeyError: 'optimizer_state_dict'\n", "ckpt"),
        (f"{RAISED}KeyError: 'SwinNet is not in the model registry'\n", "config"),
        (f"{RAISED}NotImplementedError: unknown loss huber2\n", "config"),
        (f"{RAISED}FileNotFoundError: Checkpoint file not found: runs/last.ckpt\n", "missing_file"),
        (f"{RAISED}OSError: broken data stream when reading image file\n", "data"),
        (f"{RAISED}RuntimeError: pool_cuda does not have a deterministic implementation, but you set it\n", "api"),
        (f"{RAISED}NotImplementedError\n", "api"),
        (f"{RAISED}TypeError: Got unsupported ScalarType BFloat16\n", "dtype"),
        (f"{RAISED}yaml.scanner.ScannerError: mapping values are not allowed here\n", "config"),
    ],
)
def test_a_message_tells_more_than_the_class_or_the_rule(log: str, category: str) -> None:
    assert said(log).category == category


def test_what_is_true_of_any_service_is_still_said() -> None:
    verdict = said(
        f"{RAISED}requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://x.org/\n"
    )
    assert verdict.label is Label.TRANSIENT
    assert verdict.summary.startswith("an object store or a remote service")


def test_what_a_program_only_remarks_on_narrows_nothing() -> None:
    chatter = "wandb: WARNING Could not resolve host api.wandb.ai, running offline\n"
    assert said(f"{chatter}{RAISED}TimeoutError: timed out\n").category == "net"


@pytest.mark.parametrize(
    ("message", "category"),
    [
        ("io.UnsupportedOperation: read", "api"),
        ("RuntimeError: this operation is not supported in this mode", "api"),
        ("ValueError: the option fuse is not supported in this mode", "config"),
        ("UnboundLocalError: cannot access local variable 'loss'", "syntax"),
        ("AssertionError: hashing is not implemented for 5 hops", "config"),
        ("ValueError: require 2 GPUs, but only 1 GPUs available", "config"),
        ("RuntimeError: FlashThing only supports fp16 and bf16 tensors", "dtype"),
        ("ValueError: this needs torch>=2.1 for that", "version"),
        ("sqlite3.OperationalError: unable to open database file", "missing_file"),
        ('sqlite3.OperationalError: near "bat": syntax error', "syntax"),
    ],
)
def test_the_class_of_an_exception_and_its_message_are_read_together(message: str, category: str) -> None:
    assert said(f"{RAISED}{message}\n").category == category


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("ERROR: LoadError: UndefVarError: Args not defined", "syntax"),
        ("nextflow.exception.AbortOperationException: Not a valid project name: align.nf", "missing_file"),
        ("Error in setup: MPI tasks > number of elements!", "dist_config"),
        ("job.sh: line 3: CondaError: Run 'conda init' before 'conda activate'", "config"),
    ],
)
def test_a_word_that_any_program_uses_yields_to_a_table(line: str, category: str) -> None:
    assert said(f"{line}\n").category == category


def test_a_module_that_is_missing_without_its_environment_is_an_import() -> None:
    verdict = said(
        f"CondaError: Run 'conda init' before 'conda activate'\n{RAISED}ModuleNotFoundError: No module named 'torch'\n"
    )
    assert (verdict.category, verdict.summary) == (
        "import",
        "the Python environment is not there or could not be activated",
    )


@pytest.mark.parametrize(
    "message",
    ["mylib.CardError: the accelerator ran out of free memory", "mylib.CardError: unexpected state of the GPU"],
)
def test_words_of_a_gpu_that_nobody_has_seen_stop_no_job(message: str) -> None:
    assert said(f"{RAISED}{message}\n").label is Label.UNSURE


FROZEN = '  File "<frozen os>", line 679, in __getitem__\n'
NO_OPTION = "configparser.NoOptionError: No option 'weight_decay' in section: 'optim'"


@pytest.mark.parametrize(
    ("log", "category"),
    [
        ("env: failed to execute ./launch.sh: Permission denied\n", "permission"),
        ("Failed to execute '/scratch/a/run.exe': (errno=8: 'Exec format error')\n", "config"),
        ("curl: (22) The requested URL returned error: 401\n", "auth"),
        ("curl: (22) The requested URL returned error: 404\n", "config"),
        (f"{RAISED}ImportError: Failed to import any of the following Qt binding modules: PyQt5\n", "import"),
        (f"{RAISED}TypeError: can't convert cuda:0 device type tensor to numpy\n", "device"),
        (f"{RAISED}KeyError: 'weight_decay'\n\n{HANDLING}\n\n{RAISED}{NO_OPTION}\n", "config"),
        (f"{RAISED}KeyError: 'weight_decay'\n\n{HANDLING}\n\n{RAISED}KeyError: 'weight_decay'\n", "index"),
        (f"{RAISED}{NO_OPTION}\n", "config"),
        (f"{RAISED}{FROZEN}KeyError: 'EXPERIMENT_ROOT'\n", "config"),
        (f"{RAISED}KeyError: 'EXPERIMENT_ROOT'\n", "index"),
        ("CMake Error at CMakeLists.txt:1 (x):\n  CMake 4.9 or higher is required.  You are running 3.25\n", "version"),
        ("CMake Error at CMakeLists.txt:1 (x):\n  the directory is odd\n", "config"),
        ("main.o: undefined reference to `f'\n", "syntax"),
        ("make: *** No rule to make target 'all'.  Stop.\n", "config"),
        (f"{RAISED}TypeError: unsupported operand type(s) for |: 'dict' and 'dict'\n", "version"),
        (f"{RAISED}TypeError: unsupported operand type(s) for +: 'dict' and 'dict'\n", "api"),
        (f"{RAISED}TypeError: 'type' object is not subscriptable\n", "version"),
        ("Assertion Failed: Number of MPI ranks must match decomposition, expected 32 ranks\n", "dist_config"),
        (f"{RAISED}_duckdb.CatalogException: Catalog Error: Table with name metrics does not exist!\n", "data"),
        (
            f"{RAISED}    fcntl.flock(f, LOCK_EX)\nBlockingIOError: [Errno 11] Resource temporarily unavailable\n",
            "lock",
        ),
        ("@ERROR: max connections (1) reached -- try again later\n", "net"),
        ("something is busy, try again later\n", "unknown"),
    ],
)
def test_an_error_number_a_status_or_who_speaks_narrows_a_category(log: str, category: str) -> None:
    assert said(log).category == category
