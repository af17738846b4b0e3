"""Which framework a command is of, and what that wants to hear before walltime."""

import signal

import pytest

from perdure.errors import ConfigError
from perdure.job.framework import Framework, PrestopSignal, prestop_signal_of, recognised, signal_of
from perdure.job.options import warn_before


@pytest.mark.parametrize(
    ("command", "variables", "framework"),
    [
        ("torchrun --nnodes 2 train.py", {}, Framework.TORCHRUN),
        ("/opt/venv/bin/torchrun train.py", {}, Framework.TORCHRUN),
        ("srun --nodes 2 torchrun train.py", {}, Framework.TORCHRUN),
        ("python -m torch.distributed.run train.py", {}, Framework.TORCHRUN),
        ("accelerate launch train.py", {}, Framework.TORCHRUN),
        ("python -m accelerate.commands.launch train.py", {}, Framework.TORCHRUN),
        ("python -u -m submitit.core._submit /jobs/7", {}, Framework.SUBMITIT),
        ("python train.py", {"SUBMITIT_EXECUTOR": "slurm"}, Framework.SUBMITIT),
        ("lightning run model train.py", {}, Framework.LIGHTNING),
        ("litgpt finetune", {}, Framework.LIGHTNING),
        ("python train.py", {"PL_GLOBAL_SEED": "7"}, Framework.LIGHTNING),
        ("python train.py", {}, Framework.PLAIN),
        ("bash -c torchrun-like", {}, Framework.PLAIN),
        ("python train.py --trainer lightning", {}, Framework.PLAIN),
    ],
)
def test_it_is_recognised(command: str, variables: dict[str, str], framework: Framework) -> None:
    assert recognised(command.split(), variables) is framework


def test_each_is_told_in_its_own_way() -> None:
    assert prestop_signal_of(Framework.TORCHRUN, {}) == PrestopSignal(signal.SIGTERM, workers=True)
    assert prestop_signal_of(Framework.LIGHTNING, {}) == PrestopSignal(signal.SIGUSR1)
    assert prestop_signal_of(Framework.SUBMITIT, {}) == PrestopSignal(signal.SIGUSR2)
    assert prestop_signal_of(Framework.SUBMITIT, {"SUBMITIT_PREEMPT_SIGNAL": "USR1"}).signum == signal.SIGUSR1
    assert prestop_signal_of(Framework.PLAIN, {}) == PrestopSignal(signal.SIGTERM)


def test_the_option_for_it() -> None:
    assert warn_before("120") == (120.0, None)
    assert warn_before("90:SIGUSR1") == warn_before("90:usr1") == (90.0, signal.SIGUSR1)


@pytest.mark.parametrize("text", ["", "x", "-1", "120:", "120:USR9", "1e3", "²", ":USR1"])
def test_what_is_no_such_option_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--signal-before"):
        warn_before(text)


@pytest.mark.parametrize(("name", "number"), [("USR1", 10), ("sigterm", 15), ("15", 15), ("35", 35), ("64", 64)])
def test_a_signal_is_named_or_numbered(name: str, number: int) -> None:
    assert signal_of(name, "--signal") == number


@pytest.mark.parametrize("name", ["", "0", "65", "99", "-1", "9" * 5000, "NOSUCH", "RTMIN+1", "\u0663"])
def test_what_is_no_signal_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a signal"):
        signal_of(name, "--signal")
