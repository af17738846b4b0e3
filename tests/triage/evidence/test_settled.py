"""What the rest of a log says settles a cause that its own line leaves open; without those words it stays open."""

import pytest

from perdure.triage.judge import NoModel, judge
from perdure.triage.verdict import Bound, Label, Verdict

ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
KILLED = "Out of memory: Killed process 71 (python) total-vm:9kB, anon-rss:{}kB, file-rss:0kB\n"
UNREACHABLE = "OSError: [Errno 101] Network is unreachable\n"
TAKEN = "OSError: [Errno 98] Address already in use: port 29400\n"
FLOW = "Process `ALIGN (7)` terminated with an error exit status (137)"
NO_HANDLE = "E tensorflow/cuda_dnn.cc:1] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
SMI = "|  0MiB / 40960MiB |\n|    0   N/A  N/A     71      C   python3   {}MiB |\n"


def verdict(log: str) -> Verdict:
    return judge(log.encode(), model=NoModel())


@pytest.mark.parametrize(
    "told",
    [
        "the last attempt died at the same step, on another node\n",
        "same iteration as in the previous run\n",
        "run 1 on n1: crashed at step 512\nrun 2 on n9: crashed at step 512\n",
    ],
)
def test_a_run_that_ended_at_the_same_point_before_ends_there_again(told: str) -> None:
    assert verdict(ILLEGAL).label is Label.UNSURE
    found = verdict(told + ILLEGAL)
    assert (found.label, found.category) == (Label.DETERMINISTIC, "native_crash")
    assert "at the same point" in found.summary


@pytest.mark.parametrize(
    "told",
    [
        "run 1 on n1: crashed at step 512\nrun 2 on n9: crashed at step 7\n",
        "the previous run ended well\nall ranks start at the same step\n",
        "every run begins from the same seed\n",
    ],
)
def test_runs_that_ended_elsewhere_settle_nothing(told: str) -> None:
    assert verdict(told + ILLEGAL).label is Label.UNSURE


def test_who_filled_the_node_is_told_by_its_figures() -> None:
    full, other = 120 * 1024 * 1024, 2 * 1024 * 1024
    used = "rss 119.2 GB / 125.6 GB\n"
    own = verdict(used + KILLED.format(full))
    assert (own.label, own.category, own.bound) == (Label.DETERMINISTIC, "host_oom", Bound.NOTHING)
    for log in (KILLED.format(full), used + KILLED.format(other)):
        assert verdict(log).label is Label.UNSURE


def test_a_step_that_was_killed_in_each_try_lacks_memory() -> None:
    again = f"NOTE: {FLOW} -- Execution is retried (1)\n"
    found = verdict(f"{again}Caused by:\n  {FLOW}\n")
    assert (found.label, found.category) == (Label.DETERMINISTIC, "host_oom")
    assert verdict(f"Caused by:\n  {FLOW}\n").label is Label.UNSURE


@pytest.mark.parametrize(
    "told", ["Note: compute nodes have no access to the internet\n", "No outbound access from compute nodes!\n"]
)
def test_what_a_site_says_of_its_nodes_settles_where_they_cannot_go(told: str) -> None:
    assert verdict(told + UNREACHABLE).label is Label.DETERMINISTIC
    assert verdict(UNREACHABLE).label is not Label.DETERMINISTIC


def test_launchers_in_each_task_of_a_node_take_each_others_port() -> None:
    each, one = (f"#SBATCH --ntasks-per-node={n}\n+ srun torchrun --nproc_per_node=4 t.py\n" for n in (4, 1))
    assert (verdict(each + TAKEN).label, verdict(each + TAKEN).category) == (Label.DETERMINISTIC, "dist_config")
    assert verdict(one + TAKEN).label is Label.TRANSIENT


def test_who_held_the_card_before_the_start_is_told_by_a_table() -> None:
    held = verdict(SMI.format(39000) + NO_HANDLE)
    assert (held.label, held.category, held.bound) == (Label.TRANSIENT, "gpu_busy", Bound.NODE)
    for log in (SMI.format(400), f"step 7/9\n{SMI.format(39000)}"):  # little, or after steps: it may be its own
        assert verdict(log + NO_HANDLE).category != "gpu_busy"
