"""What only heads a report, or was there before, is not read as the cause: what follows it says more."""

import pytest

from perdure.triage.judge import NoModel, judge
from perdure.triage.verdict import CauseRole, Label, Verdict

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    run()\n'
GRAPH = f"{TRACEBACK}tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:\n\n"
OOM_KILLER = "[28.1] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
BASHRC = "bash: /home/ann/.bashrc: line 31: conda: command not found\n"


def verdict(log: str) -> Verdict:
    return judge(log.encode(), model=NoModel())


def first_of(found: Verdict) -> str:
    return next(line.text for line in found.evidence if line.role is not CauseRole.CONFIRMATION)


@pytest.mark.parametrize(
    ("log", "category", "told"),
    [
        (f"{GRAPH}Incompatible shapes: [32,11] vs. [32,10]\n\t [[{{{{node mul}}}}]]\n", "shape", "Incompatible"),
        (f"{GRAPH}Detected at node 'x'\n", "api", "Graph execution error"),
        (
            "Error using fit (line 22)\nIndex exceeds the number of array elements. Index must not exceed 511.\n",
            "index",
            "Index exceeds",
        ),
        (
            f"{TRACEBACK}pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
            "  Value error, heads (28) must be divisible by tensor parallel size (8).\n",
            "config",
            "divisible",
        ),
        (
            f"{TRACEBACK}RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: x\n",
            "ckpt",
            "size mismatch",
        ),
    ],
)
def test_what_follows_a_head_is_the_cause(log: str, category: str, told: str) -> None:
    found = verdict(log)
    assert (found.category, told in first_of(found)) == (category, True)


def test_whose_memory_ran_out_is_told_below_the_head_of_the_kernels_report() -> None:
    of_job = "[28.2] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,task=python,pid=8\n"
    of_node = "[28.2] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,global_oom,task=python,pid=8\n"
    assert verdict(OOM_KILLER + of_job).label is Label.DETERMINISTIC
    assert verdict(OOM_KILLER + of_node).label is verdict(OOM_KILLER).label is Label.UNSURE


def test_a_login_file_explains_no_module_that_is_missing() -> None:
    missing = f"{TRACEBACK}ModuleNotFoundError: No module named 'einops'\n"
    for log in (BASHRC + missing, BASHRC + f"{TRACEBACK}ImportError: cannot import name 'x' from 'y' (/v/y.py)\n"):
        assert (verdict(log).label, verdict(log).category) == (Label.DETERMINISTIC, "import")
        assert ".bashrc" not in first_of(verdict(log))


def test_an_environment_does_not_explain_a_name_that_a_module_lacks() -> None:
    log = "EnvironmentNameNotFound: Could not find conda environment: train\n" + TRACEBACK
    assert "conda" in first_of(verdict(f"{log}ModuleNotFoundError: No module named 'einops'\n"))
    assert "'x'" in first_of(verdict(f"{log}ImportError: cannot import name 'x' from 'y' (/v/y.py)\n"))


def test_a_module_is_missing_that_could_not_be_installed() -> None:
    log = f"Could not solve for environment specs\n{TRACEBACK}ModuleNotFoundError: No module named 'gdal'\n"
    assert "Could not solve" in first_of(verdict(log))
    assert verdict(log).label is Label.DETERMINISTIC


def test_a_step_that_was_run_again_is_not_why_a_workflow_failed() -> None:
    log = (
        "[4c/18] NOTE: Process `QC (3)` terminated with an error exit status (137) -- Execution is retried (1)\n"
        "ERROR ~ Error executing process > 'CALL (9)'\n  [E::bgzf_read_block] Invalid BGZF header at offset 9\n"
    )
    assert (verdict(log).label, verdict(log).category) == (Label.DETERMINISTIC, "data")


def test_an_abort_of_jaxs_client_follows_from_the_task_that_was_lost() -> None:
    log = (
        "F pjrt/distributed/client.h:80] Terminating process because the JAX distributed service detected fatal "
        "errors. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
        "/job:jax_worker/replica:0/task:11\nsrun: error: n1: task 3: Aborted (core dumped)\n"
    )
    assert verdict(log).label is Label.TRANSIENT
    assert verdict(log.partition("\n")[2].partition("\n")[2]).category == "native_crash"


def test_a_dask_worker_that_was_restarted_says_more_than_one_that_used_much() -> None:
    log = (
        "distributed.worker.memory - WARNING - Worker is at 81% memory usage. Pausing worker.  Process memory: "
        "13.01 GiB -- Worker memory limit: 16.00 GiB\n"
        "distributed.nanny.memory - WARNING - Worker tcp://n2:33 (pid=8) exceeded 95% memory budget. Restarting...\n"
    )
    assert "95%" in first_of(verdict(log))
