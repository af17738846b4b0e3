"""A line that mentions an error, or tells of one that the program survived, is not a cause of a silent end."""

import pytest

from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.log_levels import is_told
from perdure.triage.verdict import CauseRole, Label

STEPS = "".join(f"epoch 0 step {i} loss {2 - i / 90:.2f}\n" for i in range(1, 25))
DATED = "".join(f"2025-03-04 05:06:{i:02d} INFO step {i} loss 0.4\n" for i in range(1, 25))
BAR = "\r".join(f" {i}%|#    | {i}/99 [00:0{i % 9}<01:20, 1.0it/s]" for i in range(1, 25)) + "\n"
OOM = "CUDA out of memory"
RAISED = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\n'

MENTIONS = {
    "shell trace": f"+ grep -c '{OOM}' last.out",
    "nested trace": "+++ test -e 'No space left on device'",
    "git checkout": "HEAD is now at 0f1e2d3 Guard against RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    "git log": "9c8d7e6 (origin/main) Fix ConnectionResetError: [Errno 104] Connection reset by peer",
    "git commit": "[main 4b5c6d7] catch OSError: [Errno 28] No space left on device",
    "changelog": "- Fixed: ConnectionResetError: [Errno 104] Connection reset by peer in the reader",
    "hint": f"Tip: on '{OOM}' use a smaller --batch",
    "advice": f"If you run into '{OOM}', set --batch 8",
    "help": f"  --on-oom ACTION   what to do on {OOM}",
    "environment": "LAST_RUN_SAID=RuntimeError: CUDA error: an illegal memory access was encountered",
    "quotation": "> RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x3 and 4x8)",
    "limits": "max locked memory           (kbytes, -l) unlimited",
    "setting": "  when_full: 'No space left on device -> prune'",
}
SURVIVED = {
    "command": "cat: /proc/driver/x: No such file or directory",
    "profile": "bash: /etc/profile.d/site.sh: Permission denied",
    "library": "W tensorflow/tsl/dso_loader.cc:60] Could not load dynamic library 'libfoo.so.3'; dlerror: libfoo.so.3: "
    "cannot open shared object file: No such file or directory",
    "fallback": "n1:70:91 [0] misc/ibvwrap.cc:80 NCCL WARN Call to ibv_open_device failed",
    "search": f"batch size 512 failed: {OOM}, trying batch size 256",
}


@pytest.mark.parametrize("progress", [STEPS, DATED, BAR], ids=["printed", "dated", "bar"])
@pytest.mark.parametrize("line", [*MENTIONS.values(), *SURVIVED.values()], ids=[*MENTIONS, *SURVIVED])
def test_what_work_follows_is_no_cause_of_a_silent_end(line: str, progress: str) -> None:
    verdict = judge(f"starting\n{line}\n{progress}".encode())
    assert (verdict.label, verdict.category) == (Label.UNSURE, "unknown")
    assert "nothing that looks like a failure" in verdict.summary


@pytest.mark.parametrize("line", [line for name, line in MENTIONS.items() if name != "setting"])
def test_a_mention_is_no_cause_even_at_the_end(line: str) -> None:
    assert "nothing that looks like a failure" in judge(f"{STEPS}{line}\n".encode()).summary


@pytest.mark.parametrize("progress", [STEPS, DATED])
def test_a_bare_error_that_work_follows_is_no_cause_of_a_silent_end(progress: str) -> None:
    assert "nothing that looks like a failure" in judge(f"{END}{progress}".encode()).summary


def test_a_traceback_that_was_logged_and_survived_is_no_cause() -> None:
    log = f"{DATED[:400]}{RAISED}KeyError: 'label'\n{DATED}"
    assert "nothing that looks like a failure" in judge(log.encode()).summary


def test_what_was_tried_again_is_not_what_ended_it() -> None:
    first = f"{RAISED}ConnectionRefusedError: [Errno 111] Connection refused\nWARNING try 1 failed, retrying in 2 s\n"
    last = f"{RAISED}ValueError: could not convert string to float: '-'\n"
    verdict = judge(f"{first}step 1 loss 2\n{last}".encode())
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "data")


@pytest.mark.parametrize("label", ["[rank0]: ", "0: "])
def test_nor_is_what_a_rank_tried_again_though_others_might_have_ended_it(label: str) -> None:
    first = f"{RAISED}ConnectionRefusedError: [Errno 111] Connection refused\nWARNING try 1 failed, retrying in 2 s\n"
    lines = f"{first}{RAISED}ValueError: could not convert string to float: '-'".splitlines()
    log = "".join(f"{label}{line}\n" for line in lines) + "srun: error: n1: task 0: Exited with exit code 1\n"
    verdict = judge(log.encode())
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "data")


END = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x3 and 4x8)\n"
WANDB = "wandb: Run summary:\nwandb:   global_step 240\nwandb:   epoch 3\nwandb: Synced 5 files\n"
OTHERS = "".join(f"[rank1]: step {i} loss 0.2\n" for i in range(25, 31))


@pytest.mark.parametrize(
    "after",
    [
        "cleaning up\nclosing 4 workers\nbye\n",
        WANDB,
        OTHERS,
        STEPS[-300:],  # from a buffer
        BAR,  # flushed late
        STEPS,  # a whole buffer of them
        "srun: error: n1: task 0: Exited with exit code 1\n",
    ],
    ids=["shutdown", "wandb", "ranks", "few", "bar", "buffer", "srun"],
)
def test_a_traceback_stays_the_cause_before_the_noise_of_an_end(after: str) -> None:
    verdict = judge(f"{STEPS}{RAISED}{END}{after}".encode())
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "shape")


@pytest.mark.parametrize("after", ["cleaning up\nbye\n", WANDB, BAR, "".join(STEPS.splitlines(keepends=True)[:4])])
def test_a_bare_message_near_the_end_stays_the_cause(after: str) -> None:
    assert judge(f"{STEPS}{END}{after}".encode()).category == "shape"


@pytest.mark.parametrize("end", ['  + Exception Group Traceback (most recent call last):\n  |   File "t.py", line 3\n'])
def test_a_group_of_exceptions_is_no_trace_of_a_shell(end: str) -> None:
    assert judge(f"{STEPS}{end}  | {END}".encode()).category == "shape"


@pytest.mark.parametrize("level", ["INFO:", "[INFO]", "[I]", "TRACE -"])
def test_what_a_program_tells_at_the_level_of_information_is_no_cause(level: str) -> None:
    line = f"{level} Unable to initialize backend 'cuda': module 'jaxlib' has no attribute 'X'"
    log = ("step 1 loss 0.3\n" * 60 + line + "\n").encode()
    found = own_rules().match(line.encode(), is_told(line.encode()))
    assert found is not None
    assert found.cause.role is CauseRole.CONFIRMATION
    told, stated = judge(log), judge(log.replace(level.encode(), b"ERROR:"))
    assert told.label is Label.UNSURE
    assert stated.p_transient < 0.2 < told.p_transient
