"""The card: the cause once, the line that shows it first, and what to do as commands to paste."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.cli.card import card
from perdure.cli.diagnosis import SAME_NODE, Diagnosis
from perdure.retry.decide import Decision, DecisionKind
from perdure.triage.evidence.rules import own_rules
from perdure.triage.remedies import REMEDIES, remedy
from perdure.triage.verdict import CauseRole, Evidence, Label, Verdict
from tests.cli.conftest import Ran

FRAMES = """Traceback (most recent call last):
  File "/home/mira/train.py", line 31, in main
    model.load_state_dict(torch.load(path))
  File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 2189, in load_state_dict
    raise RuntimeError(
"""
SIZES = f"""{FRAMES}RuntimeError: Error(s) in loading state_dict for Net:
\tsize mismatch for fc.weight: copying a param with shape torch.Size([10, 512]) from checkpoint
"""


def told(perdure: Callable[..., Ran], home: Path, log: str, *words: str) -> Ran:
    (home / "a.log").write_text(log)
    return perdure("why", "a.log", *words)


def test_the_root_line_comes_first_then_the_users_code(perdure: Callable[..., Ran], home: Path) -> None:
    lines = told(perdure, home, SIZES).out.splitlines()
    assert lines[3].startswith("7  root     size mismatch for fc.weight")  # its head says no more than that it failed
    assert lines[4] == "2  code     /home/mira/train.py:31, in main"
    assert "Traceback" not in "\n".join(lines)


@pytest.mark.parametrize(
    ("message", "explained"),
    [
        ("omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct\n    full_key: optim.lr\n", "full_key"),
        ("Could not override 'optim.lr'.\nKey 'lr' is not in struct\n", "Key 'lr' is not in struct"),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.\nCannot access gated repo\n", "Cannot access gated"),
    ],
)
def test_the_lines_that_explain_a_message_are_shown(
    perdure: Callable[..., Ran], home: Path, message: str, explained: str
) -> None:
    evidence = told(perdure, home, message, "--json").json["evidence"]
    assert evidence[0]["role"] == "root"
    assert any(explained in line["text"] for line in evidence[1:])


def test_what_follows_a_message_and_does_not_explain_it_is_left_out(perdure: Callable[..., Ran], home: Path) -> None:
    evidence = told(perdure, home, SIZES + "step 12 loss 0.1\n  tail\n", "--json").json["evidence"]
    assert not any("step 12" in line["text"] or "tail" in line["text"] for line in evidence)


CRASHED = """Fatal Python error: Segmentation fault

Thread 0x00007f3ecd6b06c0 (most recent call first):
  File "/home/mira/loader.py", line 3 in wait

Current thread 0x00007f3ece443b80 (most recent call first):
  File "/opt/conda/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/mira/train.py", line 4 in inner
  File "/home/mira/train.py", line 6 in outer
"""


@pytest.mark.parametrize("end", ["", "srun: error: gpu019: task 0: Segmentation fault (core dumped)\n"])
def test_after_a_crash_the_innermost_frame_of_the_thread_that_crashed_is_shown(
    perdure: Callable[..., Ran], home: Path, end: str
) -> None:
    lines = told(perdure, home, f"step 1 loss 0.5\n{CRASHED}{end}").out.splitlines()
    assert [line.split(maxsplit=2)[1:] for line in lines if "train.py" in line] == [
        ["code", "/home/mira/train.py:4, in inner"]
    ]
    assert not any("loader.py" in line for line in lines)


def test_a_crash_in_libraries_alone_shows_no_frame(perdure: Callable[..., Ran], home: Path) -> None:
    log = CRASHED.replace("/home/mira/train.py", "/opt/conda/lib/python3.11/runpy.py")
    assert not any(line["rule"] == "own-frame" for line in told(perdure, home, log, "--json").json["evidence"])


def test_the_cause_is_said_once(perdure: Callable[..., Ran], home: Path) -> None:
    out = told(perdure, home, SIZES).out
    assert out.count('the log says "size mismatch for fc.weight') == 1


@pytest.mark.parametrize(
    ("log", "command"),
    [
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.\n", "export HF_TOKEN=YOUR_TOKEN"),
        (
            "wandb.errors.UsageError: api_key not configured (no-tty). call wandb login\n",
            "export WANDB_API_KEY=YOUR_KEY",
        ),
        ("OSError: [Errno 28] No space left on device\n", "df -h OUTPUT_DIR"),
        ("OSError: [Errno 28] No space left on device: '/scratch/a/run7/done'\n", "df -h /scratch/a/run7"),
        ("tee: /scratch/a/log: No space left on device\n", "df -h /scratch/a"),
        ("mkdir: cannot create directory '/full': No space left on device\n", "df -h /full"),
        ("OSError: [Errno 28] No space left on device: '/scratch/a;id/x'\n", "df -h OUTPUT_DIR"),
        ("/usr/bin/ld: final link failed: No space left on device\n", "df -h OUTPUT_DIR"),
        ("cp: error writing '/tmp/x': No space left on device\n", "srun --nodelist=NODE df -h /tmp"),
    ],
)
def test_what_to_do_is_a_command_where_the_rule_knows_one(
    perdure: Callable[..., Ran], home: Path, log: str, command: str
) -> None:
    (line,) = [line for line in told(perdure, home, log).out.splitlines() if line.startswith("RUN ")]
    assert line.split(maxsplit=1)[1] == command


def broken_on(node: str) -> str:
    evidence = (Evidence(4, "RuntimeError: CUDA error: uncorrectable ECC error", CauseRole.ROOT, "gpu-ecc"),)
    found = Verdict(Label.TRANSIENT, 0.96, "gpu_hw", "a GPU failed", evidence, node=node)
    decision = Decision(DecisionKind.RETRY, f"a GPU failed: retry away from {SAME_NODE}, in 10 s", (SAME_NODE,))
    return "\n".join(card(Diagnosis("a.log", found, decision)))


def test_a_node_that_is_known_is_named_in_the_command() -> None:
    shown = broken_on("gpu019")
    assert "RUN    sbatch --exclude=gpu019 SCRIPT" in shown
    assert "away from gpu019, in 10 s" in shown


@pytest.mark.parametrize(("job_id", "named"), [("64", "64"), ("64_2", "64_2"), ("", "JOBID"), ("7; rm -rf ~", "JOBID")])
def test_a_job_that_is_known_is_named_in_the_command(job_id: str, named: str) -> None:
    line = "slurmstepd: error: *** JOB 64 ON n1 CANCELLED AT 2026-11-25T20:00:00 DUE TO NODE FAILURE ***"
    evidence = (Evidence(1, line, CauseRole.ROOT, "slurm-node-failure"),)
    found = Verdict(Label.TRANSIENT, 0.96, "node_loss", "a node failed", evidence)
    decision = Decision(DecisionKind.RETRY, "a node failed: retry away from n1, in 10 s", ("n1",))
    shown = "\n".join(card(Diagnosis("job 64", found, decision, job_id)))
    assert f"sacct --duplicates --jobs={named} --format" in shown


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (DecisionKind.RETRY, "DO     Retry on another node; tell the operators."),
        (DecisionKind.STOP, "DO    Tell the operators."),
    ],
)
def test_no_retry_is_advised_after_a_stop(kind: DecisionKind, told: str) -> None:
    found = Verdict(Label.UNSURE, 0.3, "gpu_hw", "a GPU failed", advice="Retry on another node; tell the operators.")
    assert told in "\n".join(card(Diagnosis("job 7", found, Decision(kind, "a GPU failed: it failed so before"))))


@pytest.mark.parametrize("node", ["", "x; rm -rf ~", "$(id)", "-w", "a b", "a\nb", "n" * 64, "nö"])
def test_what_a_log_calls_a_node_gets_into_no_command_unless_it_can_be_one(node: str) -> None:
    assert "sbatch" not in broken_on(node)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("srun: error: Node failure on gpu019", "gpu019"),
        ("salloc: error: Node failure on gpu[019-021]", "'gpu[019-021]'"),
        ("srun: error: Task launch for StepId=7.0 failed on node n3: Communication connection failure", "n3"),
    ],
)
def test_a_node_that_slurm_calls_lost_is_kept_out_of_the_next_attempt(
    perdure: Callable[..., Ran], home: Path, line: str, named: str
) -> None:
    cancelled = "slurmstepd: error: *** JOB 7 ON gpu001 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE ***\n"
    before = cancelled if "Node failure" in line else ""
    out = told(perdure, home, f"step 1 loss 0.5\n{before}{line}\n").out
    assert f"sbatch --exclude={named} SCRIPT" in out
    assert line in out


def test_the_node_that_cancels_a_job_is_not_the_lost_one(perdure: Callable[..., Ran], home: Path) -> None:
    line = "slurmstepd: error: *** JOB 7 ON gpu001 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE ***\n"
    out = told(perdure, home, line).out
    assert "--exclude" not in out
    assert "sacct --duplicates --jobs=JOBID --format=JobID,State,FailedNode" in out
    assert "--exclude" not in told(perdure, home, "srun: error: Node failure on $(id)\n").out


def test_every_remedy_is_of_a_rule_and_fits_a_line_of_it() -> None:
    for each in REMEDIES:
        rule = own_rules().named(each.rule)
        assert rule is not None, each.rule
        assert any(remedy(each.rule, line) == each.command for line in rule.yes), each


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", "PYTORCH_CUDA_ALLOC_CONF"),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.", ""),
        ("OOM when allocating tensor with shape[64,3] and type float", ""),
    ],
)
def test_a_setting_of_pytorchs_is_given_to_programs_of_pytorch_alone(line: str, command: str) -> None:
    assert (command in remedy("cuda-oom", line)) if command else not remedy("cuda-oom", line)


def test_a_rule_says_its_commands(perdure: Callable[..., Ran]) -> None:
    assert "Run: df -h OUTPUT_DIR" in perdure("rules", "disk-full").out


FULL = "OSError: [Errno 28] No space left on device: '/scratch/a/run7/x.pt'\n"
TORCH = "RuntimeError: [enforce fail at inline_container.cc:{}] . {}\n"
SAVED = (
    TORCH.format(424, "unexpected pos 12 vs 7"),
    TORCH.format(776, "PytorchStreamWriter failed writing file data/2"),
)


@pytest.mark.parametrize("torch", SAVED)
@pytest.mark.parametrize("is_first", [True, False])
def test_of_a_full_disk_the_root_is_the_line_that_says_so(
    perdure: Callable[..., Ran], home: Path, torch: str, is_first: bool
) -> None:
    again = "\nDuring handling of the above exception, another exception occurred:\n\n"
    trace = "Traceback (most recent call last):\n"
    log = again.join(trace + line for line in ((FULL, torch) if is_first else (torch, FULL)))
    out = told(perdure, home, log).out
    assert [line.split(maxsplit=2)[2] for line in out.splitlines() if "  root  " in line] == [FULL.strip()]
    assert "RUN   df -h /scratch/a/run7\n" in out


@pytest.mark.parametrize("torch", SAVED)
def test_without_such_a_line_the_failed_save_is_the_root(perdure: Callable[..., Ran], home: Path, torch: str) -> None:
    out = told(perdure, home, torch).out
    assert f"1  root     {torch}" in out
    assert "PyTorch could not write all of a file" in out
    assert "RUN   df -h OUTPUT_DIR\n" in out


@pytest.mark.parametrize(
    "line",
    [
        "Segmentation fault (core dumped)",
        "/var/spool/slurmd/job7/slurm_script: line 4: 7 Segmentation fault      (core dumped) python train.py",
    ],
)
def test_a_crash_that_follows_from_nothing_in_its_log_is_the_root(
    perdure: Callable[..., Ran], home: Path, line: str
) -> None:
    ran = told(perdure, home, f"step 1 loss 0.5\n{line}\n")
    assert f"2  root     {line}" in ran.out
    assert "cascade" not in ran.out
    (shown,) = told(perdure, home, f"step 1 loss 0.5\n{line}\n", "--json").json["evidence"]
    assert shown["role"] == "root"


def test_a_crash_after_its_cause_stays_a_consequence(perdure: Callable[..., Ran], home: Path) -> None:
    evidence = told(perdure, home, f"{FULL}Segmentation fault (core dumped)\n", "--json").json["evidence"]
    assert [line["role"] for line in evidence] == ["root", "cascade"]


STEPS = "2026-11-20 02:05:01 step 101 loss 0.3\n2026-11-20 02:06:13 step 102 loss 0.3\n"
DONE = "2026-11-20 02:06:15 Training complete. Saved final model to out/final.pt\n"
CRASH = "Fatal Python error: Aborted\nSegmentation fault (core dumped)\n"


def test_a_log_that_just_stops_is_told_with_its_last_time(perdure: Callable[..., Ran], home: Path) -> None:
    ran = told(perdure, home, STEPS)
    assert "NOTE   the log just stops at 02:06:13, with 'step 102 loss 0.3'" in ran.out
    assert told(perdure, home, STEPS, "--json").json["ending"].startswith("the log just stops at 02:06:13")
    assert "the log just stops, with 'no time here'" in told(perdure, home, "no time here\n").out


def test_a_log_that_ends_with_its_work_done_does_not_just_stop(perdure: Callable[..., Ran], home: Path) -> None:
    ran = told(perdure, home, STEPS + DONE)
    assert "the log ends with its work done, and with no failure" in ran.out
    assert "DONE: nothing in this log looks like a failure" in ran.out
    assert "PROBE" not in ran.out
    assert ran.code == 0


def test_what_a_script_is_told_of_work_that_was_done(perdure: Callable[..., Ran], home: Path) -> None:
    told_of = told(perdure, home, STEPS + DONE, "--json")
    advice = {
        "action": "none",
        "reason": "nothing in this log looks like a failure",
        "exclude_node": False,
        "delay_s": 0.0,
    }
    assert (told_of.code, told_of.json["advice"]) == (0, advice)
    assert told(perdure, home, STEPS, "--json").code == 3  # it just stops
    assert told(perdure, home, STEPS + DONE + CRASH, "--json").json["advice"]["action"] != "none"


LIMITED = "wandb: ERROR Error while calling W&B API: rate limit exceeded (<Response [429]>)\n"


GOES_ON = "wandb: Synced 5 files\nDone.\n"


@pytest.mark.parametrize("log", [LIMITED + DONE, STEPS + LIMITED + DONE, STEPS + LIMITED + GOES_ON])
def test_work_that_went_on_to_its_end_is_not_to_be_done_again(
    perdure: Callable[..., Ran], home: Path, log: str
) -> None:
    """A tracker's error that the program got over: the log says that the job is done, and nobody that it failed."""
    told_of = told(perdure, home, log, "--json")
    assert (told_of.code, told_of.json["advice"]["action"]) == (0, "none")
    assert "DONE: what looks like a failure in this log came before its work was done" in told(perdure, home, log).out


@pytest.mark.parametrize("end", ["epilogue: job 70021 done, 0:00:04 used", "Job 412.pbs0 finished, 00:00:09 elapsed"])
def test_that_a_manager_has_done_with_a_job_is_no_good_end(perdure: Callable[..., Ran], home: Path, end: str) -> None:
    log = f"rsync: max connections (1) reached -- try again later\n{end}\n"
    assert told(perdure, home, log, "--json").json["advice"]["action"] == "retry"
    good = "Job 412.pbs0 finished successfully"
    assert told(perdure, home, LIMITED + good, "--json").json["advice"]["action"] == "none"


def test_a_failure_after_the_work_was_done_is_one(perdure: Callable[..., Ran], home: Path) -> None:
    assert told(perdure, home, STEPS + DONE + LIMITED, "--json").json["advice"]["action"] != "none"
    assert told(perdure, home, STEPS + SIZES + DONE, "--json").code == 1  # its own bug is told all the same


def test_work_that_was_done_before_a_crash_is_said_to_be_done(perdure: Callable[..., Ran], home: Path) -> None:
    out = told(perdure, home, STEPS + DONE + CRASH).out
    assert "the work was done (line 3: 'Training complete. Saved final model to out/final.pt')" in out
    assert "it crashed while exiting" in out


@pytest.mark.parametrize(
    "log",
    [
        STEPS + CRASH,
        DONE + STEPS + CRASH,
        STEPS + "Training not complete\n" + CRASH,
        STEPS + "epoch 3 done, training\n" + CRASH,
        STEPS + DONE + SIZES,
    ],
    ids=["no word of it", "steps follow", "not complete", "an epoch alone", "an error of its own"],
)
def test_a_crash_in_the_middle_of_the_work_is_not_called_one_while_exiting(
    perdure: Callable[..., Ran], home: Path, log: str
) -> None:
    assert "the work was done" not in told(perdure, home, log).out


def test_what_somebody_cancelled_is_headed_so(perdure: Callable[..., Ran], home: Path) -> None:
    first = told(perdure, home, "slurmstepd: error: *** JOB 38 ON n3 CANCELLED AT 2026-11-22T16:43:28 ***\n").out
    assert first.startswith("a.log  CANCELLED: somebody ended it; its owner decides whether it runs again (p = ")
    assert "would fail again" not in first


SCRIPT = "/var/spool/slurmd/job7/slurm_script: line 5: "
NO_MODULE = "ModuleNotFoundError: No module named 'torch'\n"


@pytest.mark.parametrize("command", ["conda", "mamba"])
def test_a_module_that_is_missing_for_want_of_its_environment_is_blamed_on_that(
    perdure: Callable[..., Ran], home: Path, command: str
) -> None:
    lines = told(perdure, home, f"{SCRIPT}{command}: command not found\n{NO_MODULE}").out.splitlines()
    assert lines[1] == "import: the Python environment is not there or could not be activated"
    assert lines[3].startswith(f"1  root     {SCRIPT}{command}: command not found")
    assert lines[4].startswith("2  also     ModuleNotFoundError")


@pytest.mark.parametrize("end", [f"{NO_MODULE}{SCRIPT}conda: command not found\n", "SyntaxError: invalid syntax\n"])
def test_a_missing_environment_explains_later_missing_modules_alone(
    perdure: Callable[..., Ran], home: Path, end: str
) -> None:
    log = end if end.startswith("Mod") else f"{SCRIPT}conda: command not found\n{end}"
    assert "the Python environment is not there or could not be activated" not in told(perdure, home, log).out


def test_the_advice_for_a_taken_port_fits_several_nodes(perdure: Callable[..., Ran], home: Path) -> None:
    line = "torch.distributed.DistNetworkError: port: 29500, EADDRINUSE, address already in use\n"
    out = told(perdure, home, line).out
    assert "localhost" not in out
    assert "the same on all its nodes" in " ".join(out.split())
    assert "torchrun --master-port=$((20000 + SLURM_JOB_ID % 20000)) SCRIPT" in out


@pytest.mark.parametrize(("width", "says"), [(80, True), (50, True), (30, False)])
def test_without_colours_the_role_of_a_line_is_said_on_narrow_terminals_too(
    perdure: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch, width: int, says: bool
) -> None:
    monkeypatch.setattr("perdure.cli.card.screen_width", lambda: width)
    lines = told(perdure, home, "NameError: name 'x' is not defined\n").out.splitlines()
    (line,) = [line for line in lines if "NameError" in line]
    assert line.startswith("1  root     NameError" if says else "1  NameError")
    assert all(len(line) <= width for line in lines if not line.startswith("SEE"))


def test_the_line_that_begins_a_traceback_is_no_evidence_beside_its_end(
    perdure: Callable[..., Ran], home: Path
) -> None:
    evidence = told(perdure, home, SIZES, "--json").json["evidence"]
    assert not any(line["text"].startswith("Traceback") for line in evidence)
    assert any("train.py" in line["text"] for line in evidence)
    alone = told(perdure, home, "Traceback (most recent call last):\n", "--json").json["evidence"]
    assert [line["text"] for line in alone] == ["Traceback (most recent call last):"]
