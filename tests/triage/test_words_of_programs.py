"""The words of programs whose failures were read wrongly, or told in words that lead to the wrong place."""

import pytest

from perdure.cli.diagnosis import diagnoser
from perdure.service.settings import Settings
from perdure.triage.evidence.ending import ending
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Bound, Label

NCCL_OOM = """gpu01:1012:1044 [0] include/alloc.h:246 NCCL WARN Cuda failure 2 'out of memory'
gpu01:1012:1044 [0] NCCL INFO transport.cc:100 -> 1
torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, \
unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
"""
TOLD = "Cuda failure 2 'out of memory'"
ASYNC = "Failed to CUDA calloc async 608 bytes"


@pytest.mark.parametrize(
    "log",
    [
        NCCL_OOM + TOLD,
        NCCL_OOM.partition("\n")[2] + TOLD,
        "".join(f"[rank0]: {line}\n" for line in (NCCL_OOM + TOLD).splitlines()[2:]),
        NCCL_OOM.partition("\n")[2] + ASYNC,
    ],
)
def test_memory_that_nccl_could_not_get_is_the_gpus(log: str) -> None:
    verdict = judge(log.encode())
    assert (verdict.category, verdict.label) == ("gpu_oom", Label.DETERMINISTIC)
    assert any(TOLD in line.text or ASYNC in line.text for line in verdict.evidence)


@pytest.mark.parametrize(
    "log",
    [
        "sh: 1: cd: can't cd to /nope2",
        "/var/spool/slurmd/job7/slurm_script: 4: cd: can't cd to /data/run",
    ],
)
def test_dash_says_that_a_directory_is_missing(log: str) -> None:
    verdict = judge(log.encode())
    assert (verdict.category, verdict.label) == ("missing_file", Label.DETERMINISTIC)


@pytest.mark.parametrize(
    "end",
    [
        "`Trainer.fit` stopped: `max_epochs=10` reached.",
        "`Trainer.fit` stopped: `max_steps=1000` reached.",
        "{'train_runtime': 5472.3, 'train_samples_per_second': 3.1, 'train_loss': 0.42, 'epoch': 3.0}",
        "***** train metrics *****\n  epoch = 3.0\n  train_loss = 0.42\n  train_runtime = 1:31:12.30\n"
        "  train_samples = 900\n  train_samples_per_second = 3.1\n  train_steps_per_second = 0.2",
    ],
)
def test_a_trainer_that_ends_well_has_not_failed(end: str) -> None:
    found = diagnoser(Settings())("a", f"Epoch 9: 100%\n{end}\n".encode())
    assert not found.has_failed


def test_a_trainer_that_goes_on_is_not_done() -> None:
    lines = ["`Trainer.fit` stopped: `max_epochs=10` reached.", *(f"Testing {n}/100" for n in range(20))]
    text = LogText.of("\n".join(lines).encode())
    assert "just stops" in ending(text, judge(text))


@pytest.mark.parametrize(
    "log",
    [
        "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation",
        "License checkout failed: License Manager Error -4",
        "gurobipy.GurobiError: No tokens available",
        "Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in name resolution)",
        'Error: Get "https://nvcr.io/v2/": dial tcp: lookup nvcr.io on 10.0.0.2:53: server misbehaving',
    ],
)
def test_no_node_is_left_out_for_what_lies_outside_of_all(log: str) -> None:
    found = diagnoser(Settings())("a", f"{log}\n".encode())
    assert found.verdict.bound is Bound.CALLER
    assert found.decision.retries
    assert not found.decision.exclude


def test_a_name_of_the_site_may_be_unknown_to_one_node_alone() -> None:
    found = diagnoser(Settings())("a", b"curl: (6) Could not resolve host: s3.site.local\n")
    assert found.verdict.bound is Bound.SERVICE


@pytest.mark.parametrize(
    ("log", "category", "advice"),
    [
        (
            "fatal: unable to access 'https://github.com/org/repo/': Failed to connect to github.com port 443 after"
            " 130012 ms: Couldn't connect to server",
            "net",
            "",
        ),
        ("ERROR: LoadError: CUDA.OutOfGPUMemoryError: Out of GPU memory trying to allocate 4 GiB", "gpu_oom", ""),
        ("Out of GPU memory trying to allocate 4.000 GiB", "gpu_oom", ""),
        ("python: libc.so.6: version `GLIBC_2.34' not found", "version", "container"),
        ("ValueError: No available memory for the cache blocks. Try increasing", "gpu_oom", "gpu_memory_utilization"),
        ("Fatal error:\nToo many LINCS warnings (1003)", "numeric", "time step"),
    ],
)
def test_the_words_of_other_programs_are_known(log: str, category: str, advice: str) -> None:
    verdict = judge(f"{log}\n".encode())
    assert verdict.category == category
    assert advice in verdict.advice
