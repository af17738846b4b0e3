"""How HTCondor's tools are run; no HTCondor is needed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.backends.condor.settings import CondorSettings
from perdure.backends.condor.tools import CondorTools
from perdure.backends.tool_process import ToolAnswer
from perdure.errors import ClusterBusy, ConfigError


def tools_at(directory: Path, script: str, **settings: float) -> CondorTools:
    """Tools that are one script."""
    program = directory / "condor_q"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return CondorTools(CondorSettings(**settings), {"PATH": f"{directory}:/usr/bin:/bin"})  # type: ignore[arg-type]


def test_a_tool_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(ClusterBusy, match="no answer in time"):
        tools_at(tmp_path, "sleep 60", tool_timeout_s=1.0).run("condor_q")


def test_a_tool_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="condor_no_such_tool: not found in PATH"):
        tools_at(tmp_path, "true").find("condor_no_such_tool")


@pytest.mark.parametrize("out", [b"[{", b'{"a": 1}', b"Error: collector\n[]"])
def test_an_answer_that_is_no_list_of_ads_is_no_answer(tmp_path: Path, out: bytes) -> None:
    tools = tools_at(tmp_path, "true")
    with pytest.raises(ClusterBusy, match="its answer cannot be read"):
        tools.read(ToolAnswer(out, b"", 0), "condor_q")
    assert tools.read(ToolAnswer(b'[{"GPUs": 1}]', b"", 0), "condor_q") == [{"gpus": 1}]
    assert tools.read(ToolAnswer(b"", b"", 0), "condor_q") == []
