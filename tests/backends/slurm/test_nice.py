"""Setting the nice of waiting jobs, with a stand-in for scontrol that says what Slurm 22.05 says."""

import os
from pathlib import Path

import pytest

from perdure.backends.slurm.nice import set_nice
from perdure.backends.slurm.tools import Tools
from tests.backends.slurm.test_tools import ECHOING


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("8_1-2: Job has already finished\\n8_3-6: No error", {}),
        ("8_1-2: Job has already finished\\n8_3-6: No error\\nInvalid job id specified", "Invalid job id specified"),
        ("8_1-2: Job has already finished\\n8_3-6: Access/permission denied", "8_3-6: Access/permission denied"),
    ],
)
def test_an_array_of_which_some_tasks_have_ended_is_changed(tmp_path: Path, said: str, found: object) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(ECHOING % f"printf '{said}\\n' >&2")
    scontrol.chmod(0o755)
    tools = Tools(environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert set_nice(tools, {"8": 5}) == (found and {"8": found})
