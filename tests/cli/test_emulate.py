"""``perdure emulate``: programs as a user starts them, one process or several, and one line for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from perdure.cli.emulate_demo import DemoTale, _sum_up
from perdure.cli.emulate_values import given_gpus
from perdure.cli.main import main
from perdure.emulation.known_profiles import profile_of
from perdure.errors import InputError

pytest.importorskip("torch")

DEMO = ("drained a", "blamed b", "recovered")  # what the demonstration is to see
TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 2).cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    loss = model(torch.zeros(32, 8).cuda()).sum()
    loss.backward()
    optimiser.step()
print("loss", loss.item())
"""
PARALLEL = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2).cuda(rank), device_ids=[rank])
for _ in range(3):
    model(torch.zeros(32, 8, device=f"cuda:{rank}")).sum().backward()
torch.cuda.synchronize()
dist.destroy_process_group()
"""

SPAWNED = """
import torch, torch.distributed as dist
GPUS = torch.cuda.device_count()  # each process asks for itself, as it imports this file
SCALE = torch.ones(1, device="cuda")
def train(rank, meeting):
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=GPUS)
    torch.cuda.set_device(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2).cuda(rank), device_ids=[rank])
    for _ in range(3):
        model(torch.zeros(32, 8, device=f"cuda:{rank}") * SCALE.cuda(rank)).sum().backward()
    torch.cuda.synchronize()
    dist.destroy_process_group()
if __name__ == "__main__":
    import os
    torch.multiprocessing.spawn(train, args=(os.path.abspath("meeting"),), nprocs=GPUS)
"""

ENDS_LATE = """
import atexit, sys, threading, time, torch
model = torch.nn.Linear(8, 2).cuda()
def train():
    time.sleep(0.2)
    for _ in range(3):
        model(torch.zeros(32, 8).cuda()).sum().backward()
    print("the thread has trained", file=sys.stderr, flush=True)
threading.Thread(target=train).start()
atexit.register(lambda: print("at its exit", model.weight.device))
sys.exit(3)
"""

FORKS = """
import os, sys, torch
def child():
    try:
        print(torch.zeros(2).cuda().device, flush=True)
    except RuntimeError as err:
        print(err, flush=True)
for _ in range(2):
    if (pid := os.fork()) == 0:
        child()
        sys.exit()
    os.waitpid(pid, 0)
    torch.zeros(2).cuda()
"""


def emulate(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perdure", "emulate", "run", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_a_program_runs_unchanged_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    found = emulate("--gpu", "h100", "--model", "resnet50", "--time", "virtual", "--report", "r.json", "train.py", "5",
                    cwd=tmp_path)  # fmt: skip
    assert (found.returncode, found.stdout) == (0, "loss 0.0\n")
    assert "perdure: 5 steps of resnet50 on h100: " in found.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["steps"], report["origins"]) == (5, ["measured"])


def test_processes_of_torchrun_meet_and_wait_for_their_links(tmp_path: Path) -> None:
    (tmp_path / "ddp.py").write_text(PARALLEL)
    options = ("--gpu", "v100", "--model", "alexnet", "--gpus", "2", "--time", "virtual", "--report", "r.json")
    launch = ("torchrun", "--standalone", "--nproc-per-node", "2", "ddp.py")
    found = emulate(*options, *launch, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    step = profile_of("v100", "alexnet", 32)
    for report in ("r.json", "r.1.json"):  # of each process
        told = json.loads((tmp_path / report).read_text())
        assert told["steps"] == 3
        assert told["busy_s"] > 1.2 * 3 * (step.forward_s + step.backward_s)  # gradients of 244 MB over PCIe


def test_a_gpu_that_breaks_is_told_apart_from_the_processes_that_it_takes_down(tmp_path: Path) -> None:
    (tmp_path / "ddp.py").write_text(PARALLEL)
    options = ("--gpu", "v100", "--model", "alexnet", "--gpus", "2", "--time", "virtual", "--fault", "ecc@step1#0")
    launch = ("torchrun", "--standalone", "--nproc-per-node", "2", "--tee", "3", "ddp.py")
    found = emulate(*options, *launch, cwd=tmp_path)
    assert found.returncode == 1
    (tmp_path / "log").write_text(found.stdout + found.stderr)
    assert "does not require grad" not in found.stderr
    assert "perdure/emulation/passes.py" not in found.stdout + found.stderr  # a traceback is the program's alone
    command = [sys.executable, "-m", "perdure", "why", "log", "--json"]
    why = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(why.stdout)["category"] == "gpu_hw"


def test_spawned_processes_have_gpus_and_meet(tmp_path: Path) -> None:
    (tmp_path / "spawned.py").write_text(SPAWNED)
    options = ("--gpu", "v100", "--model", "alexnet", "--gpus", "2", "--time", "virtual", "--report", "r.json")
    found = emulate(*options, "spawned.py", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "nothing was emulated" not in found.stderr  # the program's first process does nothing on a GPU
    step = profile_of("v100", "alexnet", 32)
    for rank, report in enumerate(("r.json", "r.1.json")):
        told = json.loads((tmp_path / report).read_text())
        assert (told["rank"], told["steps"]) == (rank, 3)
        assert told["busy_s"] > 1.2 * 3 * (step.forward_s + step.backward_s)


def test_a_programs_error_and_code_are_its_own_and_its_traceback_begins_with_it(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import torch\n\ndef f():\n    raise SystemExit(7)\ntorch.ones(2).cuda()\nf()\n")
    assert emulate("--gpu", "a100", "--model", "resnet50", "bad.py", cwd=tmp_path).returncode == 7
    (tmp_path / "oom.py").write_text("import torch\ntorch.zeros(1 << 36, device='cuda')\n")
    found = emulate("--gpu", "a100", "--model", "resnet50", "oom.py", cwd=tmp_path)
    assert found.returncode == 1
    traceback = found.stderr[found.stderr.index("Traceback") :]
    assert traceback.splitlines()[1].endswith('oom.py", line 2, in <module>')
    (tmp_path / "log").write_text(found.stderr)
    why = subprocess.run(
        [sys.executable, "-m", "perdure", "why", "log", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(why.stdout)["category"] == "gpu_oom"


@pytest.mark.parametrize(
    ("visible", "of_job", "of_step", "numbers"),
    [
        ("0,1,2,3", "", "", (0, 1, 2, 3)),
        ("5", "", "", (5,)),
        ("", "", "", (0,)),
        ("GPU-3f, GPU-4a,", "", "", (0, 1)),
        ("2,3", "2,3", "", (2, 3)),
        ("0,1", "2,3", "", (2, 3)),  # of the GPUs that Slurm lets the job see
        ("0", "2,3", "3", (3,)),
        ("3", "2,3", "2,3", (3,)),
        ("", "1,3", "", (1, 3)),
        ("1,-1,2", "", "", (1,)),
    ],
)
def test_a_program_has_the_gpus_that_its_job_was_given(
    visible: str, of_job: str, of_step: str, numbers: tuple[int, ...]
) -> None:
    given = {"CUDA_VISIBLE_DEVICES": visible, "SLURM_JOB_GPUS": of_job, "SLURM_STEP_GPUS": of_step}
    assert given_gpus(given) == numbers


@pytest.mark.parametrize(
    ("visible", "said"), [("-1", "hides all"), ("NoDevFiles", "hides all"), ("1,1", "names a GPU twice")]
)
def test_a_job_without_gpus_is_told_so(visible: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        given_gpus({"CUDA_VISIBLE_DEVICES": visible})


def test_threads_and_exits_of_a_program_have_its_gpus(tmp_path: Path) -> None:
    """What it asked of the GPU last is not done at its end, and does not count."""
    (tmp_path / "late.py").write_text(ENDS_LATE)
    found = emulate("--gpu", "a100", "--model", "resnet50", "--time", "virtual", "--report", "r.json", "late.py",
                    cwd=tmp_path)  # fmt: skip
    assert (found.returncode, found.stdout) == (3, "at its exit cuda:0\n")
    assert found.stderr.startswith("the thread has trained\nperdure: 3 steps of resnet50")
    assert 0 < json.loads((tmp_path / "r.json").read_text())["busy_share"] <= 1


def test_a_forked_process_cannot_use_a_gpu_that_its_parent_uses(tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(FORKS)
    found = emulate("--gpu", "a100", "--model", "resnet50", "--time", "virtual", "forks.py", cwd=tmp_path)
    assert found.stdout.splitlines() == [
        "cuda:0",
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
        "start method",
    ]


def test_a_program_that_never_ends_is_ended(tmp_path: Path) -> None:
    (tmp_path / "spin.py").write_text("while True: pass\n")
    found = emulate("--gpu", "a100", "--model", "resnet50", "--limit-s", "8", "spin.py", cwd=tmp_path)
    assert found.returncode == 124
    assert "ended after 8 s" in found.stdout + found.stderr


def test_a_program_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass\n"
    )
    found = emulate("--gpu", "a100", "--model", "resnet50", "--limit-s", "8", "deaf.py", cwd=tmp_path)
    assert found.returncode == 124


def test_a_program_without_the_framework_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('hello')\n")
    found = emulate("--gpu", "a100", "--model", "resnet50", "plain.py", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (0, "hello\n")
    assert "nothing was emulated" in found.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--gpu", "a101", "--model", "resnet50", __file__), "--gpu: 'a101' is not known. Use one of: a10"),
        (("run", "--gpu", "a100", "--model", "resnet51", __file__), "Use one of: resnet50"),
        (("run", "--gpu", "a100", "--model", "resnet50", "/bin/ls"), "/bin/ls: it is no Python script"),
        (("run", "--gpu", "a100", "--model", "resnet50", "--fault", "xid79@1s#1", __file__), "there is no GPU 1"),
        (
            ("run", "--gpu", "a100", "--model", "resnet50", "--report", "/no/r.json", __file__),
            "--report: there is no folder /no",
        ),
        (("fleet", "--gpu", "h100", "--model", "resnet50", "--fault", "slow2@step5"), "count no steps alike"),
        (
            ("fleet", "--gpu", "h100", "--model", "resnet50", "--gpus", "8", "--fault", "slow2@5s#8"),
            "there is no GPU 8",
        ),
        (("run", "--gpu", "a100", "--model", "resnet50", "none.py"), "none.py: there is no such script"),
        (
            ("run", "--gpu", "a100", "--model", "resnet50", "--fault", "melt@3", __file__),
            "--fault: 'melt@3' is no fault",
        ),
        (("run", "--gpu", "a100", "--model", "resnet50", "--link", "fast", __file__), "--link: 'fast'"),
        (("run", "--gpu", "a100", "--model", "resnet50", "--time", "fake", __file__), "Use one of: real, virtual"),
        (
            ("run", "--gpu", "a100", "--model", "resnet50", "--profiles", "no.csv", __file__),
            "no.csv: there is no such file",
        ),
        (("profile", "--gpu", "a100", "--model", "resnet50", "--batch", "0"), "--batch: '0' is not a number"),
        (
            ("run", "--gpu", "a100", "--model", "resnet50", "--gpus", "2", "--share", "gpu.sock", __file__),
            "--share: one socket is one GPU",
        ),
        (("device", "--gpu", "a100", "--socket", "/no", "--gpus", "2"), "--socket: there is no folder /no"),
        (("device", "--gpu", "a100", "--socket", "x.sock", "--fault", "xid79@step3"), "count no steps alike"),
        (("device", "--gpu", "a100", "--socket", "x.sock", "--fault", "xid79@3s#1"), "there is no GPU 1"),
        (("device", "--gpu", "a100", "--socket", "x.sock", "--jobs", "/tmp"), "--jobs: others may write to /tmp"),
    ],
)
def test_bad_input_gets_one_line(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", *words]) == 2
    err = capsys.readouterr().err
    assert said in err.replace(str(Path.cwd()) + "/", "")
    assert err.count("\n") == 1


def test_a_profile_says_what_fits_and_how_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["emulate", "profile", "--gpu", "h100,v100", "--model", "resnet50", "--batch", "64,1024", "--json"]) == 0
    )
    rows = json.loads(capsys.readouterr().out)["profiles"]
    found = [(row["gpu"], row["batch"], row["fits"], row["origin"]) for row in rows]
    assert found == [
        ("h100", 64, True, "measured"), ("h100", 1024, False, "extrapolated"),
        ("v100", 64, True, "estimated"), ("v100", 1024, False, "estimated"),
    ]  # fmt: skip
    assert main(["emulate", "profile", "--gpu", "h100", "--model", "resnet50"]) == 0
    assert "measured" in capsys.readouterr().out


def test_a_fleet_of_thousands_of_gpus_runs_in_virtual_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "emulate",
        "fleet",
        "--gpu",
        "h100",
        "--model",
        "resnet50",
        "--batch",
        "64",
        "--gpus",
        "2048",
        "--hours",
        "0.2",
    ]
    assert main([*words, "--fault", "slow3@60s+60s#12", "--mtbf-hours", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gpu_steps"] > 2048 * 0.2 * 3600 / found["step_s"] * 0.9
    assert found["slowed_gpu_s"] == pytest.approx(8 * 40, rel=0.25)
    assert found["breaks"] > 0
    for bad in (("--gang", "7"), ("--batch", "5000")):
        assert main([*words, *bad]) == 2
    assert "Give a smaller batch" in capsys.readouterr().err


def test_a_gang_waits_for_gradients_as_long_as_speed_says(capsys: pytest.CaptureFixture[str]) -> None:
    said = ["--gpu", "h100", "--model", "vgg16", "--batch", "32", "--link", "100G", "--inside", "nvlink", "--json"]
    assert main(["emulate", "fleet", *said, "--gpus", "16", "--gang", "16", "--hours", "0.01"]) == 0
    fleet = json.loads(capsys.readouterr().out)
    profile = profile_of("h100", "vgg16", 32)
    step_ms = str(1e3 * (profile.forward_s + profile.backward_s))
    layout = ["--nodes", "2", "--gpus-per-node", "8", "--transport", "rdma", "--step-ms", step_ms]
    assert main(["speed", *said, *layout]) == 0
    (setting,) = json.loads(capsys.readouterr().out)["settings"]
    assert fleet["exchange_s"] == pytest.approx(setting["exposed_s"])
    assert fleet["exchange_s"] > 0


@pytest.mark.parametrize("told", [some for n in range(4) for some in combinations(DEMO, n)], ids=", ".join)
def test_the_demonstration_is_well_where_it_saw_all_that_it_names(
    told: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code = _sum_up(DemoTale(0.0, set(told)), "a", "b")
    said = [line[:3] for line in capsys.readouterr().out.splitlines()]
    assert (said.count("yes"), said.count("NO ")) == (len(told), 3 - len(told))
    assert code == (0 if len(told) == 3 else 1)


@pytest.mark.slow
def test_the_demonstration_finds_blames_and_recovers() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "perdure", "emulate", "demo"], capture_output=True, text=True, check=False, timeout=240
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("yes  ") == 3
