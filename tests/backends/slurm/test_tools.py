"""Running the tools: with stand-ins that behave badly."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.slurm.tools import CallBatch, Tools
from perdure.errors import ClusterBusy, ClusterError, ConfigError

# Answers `show hostlist WORD` as scontrol does; `show job` asks what the case wants.
ECHOING = """#!/bin/sh
while printf 'scontrol: ' && read -r line; do
  echo "$line"
  case $line in
    "show hostlist "*) echo "${line#show hostlist }" ;;
    exit) exit 0 ;;
    *) %s ;;
  esac
done
"""
MORTAL = ECHOING % '[ "$line" = die ] && exit 1; echo "answer to $line"'
KEEPING = """#!/bin/sh
all=$(cat)
echo "$all" | while read -r line; do
  case $line in
    "show hostlist "*) echo "scontrol: ${line#show hostlist }" ;;
    exit) exit 0 ;;
    *) echo "scontrol: answer to $line" ;;
  esac
done
"""


@pytest.fixture
def tools(tmp_path: Path) -> Callable[..., Tools]:
    def make(script: str, **settings: Any) -> Tools:
        path = tmp_path / "scontrol"
        path.write_text(script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Tools(environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, **settings)

    return make


def test_one_process_answers_question_after_question(tools: Callable[..., Tools]) -> None:
    with tools(ECHOING % 'echo "answer to $line"').dialog() as scontrol:
        assert b"answer to show job" in scontrol.ask("show job").out
        second = scontrol.ask("show node").out
    assert b"answer to show node" in second
    assert b"answer to show job" not in second
    assert b"hostlist" not in second


def test_a_scontrol_that_keeps_its_answers_back_is_asked_one_process_at_a_time(
    tools: Callable[..., Tools], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.backends.slurm.tools.DIALOG_PATIENCE_S", 0.2)
    with tools(KEEPING).dialog() as scontrol:
        assert b"answer to show job" in scontrol.ask("show job").out
        assert b"answer to show node" in scontrol.ask("show node").out


def test_what_it_complains_of_comes_with_the_answer(tools: Callable[..., Tools]) -> None:
    with tools(ECHOING % 'echo "first" >&2; echo "Invalid job id" >&2').dialog() as scontrol:
        assert scontrol.ask("requeue 9").complaint == "Invalid job id"
        assert scontrol.ask("show hostlist x").complaint == ""


def test_an_answer_that_does_not_come_is_given_up(tools: Callable[..., Tools]) -> None:
    with tools(ECHOING % "sleep 60", timeout_s=0.3).dialog() as scontrol, pytest.raises(ClusterBusy, match="in time"):
        scontrol.ask("show job")


def test_an_answer_without_end_is_cut(tools: Callable[..., Tools]) -> None:
    with tools(ECHOING % "yes", cap_bytes=100_000).dialog() as scontrol, pytest.raises(ClusterError, match="100000"):
        scontrol.ask("show job")


def test_a_tool_that_dies_is_named_with_its_last_words(tools: Callable[..., Tools]) -> None:
    script = ECHOING % "echo 'cannot go on' >&2; exit 1"
    with tools(script).dialog() as scontrol, pytest.raises(ClusterBusy, match="cannot go on"):
        scontrol.ask("show job")


def test_where_no_slurm_is_configured_that_is_said(tools: Callable[..., Tools]) -> None:
    script = ECHOING % "echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1"
    with tools(script).dialog() as scontrol, pytest.raises(ConfigError, match="none is configured on this machine"):
        scontrol.ask("show job")


@pytest.mark.parametrize(("keep_s", "kept"), [(60.0, True), (-1.0, False)])
def test_a_process_is_kept_for_the_next_to_ask_until_it_is_old(
    tools: Callable[..., Tools], keep_s: float, kept: bool
) -> None:
    with CallBatch(tools(MORTAL), keep_s) as batch:
        with batch.dialog() as first:
            first.ask("show job")
        with batch.dialog() as second:
            second.ask("show job")
        assert (first is second) is kept
        assert first.has_ended is not kept
    assert second.has_ended


@pytest.mark.parametrize("error", [ClusterBusy("scontrol", "no answer", "Wait"), KeyboardInterrupt()])
def test_after_an_error_nobody_gets_the_rest_of_an_answer(
    tools: Callable[..., Tools], error: ClusterBusy | KeyboardInterrupt
) -> None:
    with CallBatch(tools(MORTAL)) as batch:
        with pytest.raises(type(error)), batch.dialog() as first:
            raise error
        with batch.dialog() as second:
            assert second is not first


def test_a_kept_process_that_died_is_replaced(tools: Callable[..., Tools]) -> None:
    with CallBatch(tools(MORTAL)) as batch:
        with batch.dialog() as first, pytest.raises(ClusterBusy):
            first.ask("die")
        with batch.dialog() as second:
            assert second.ask("show job").out


def test_one_line_is_one_command(tools: Callable[..., Tools]) -> None:
    with tools(ECHOING % "true").dialog() as scontrol, pytest.raises(ClusterError):
        scontrol.ask("show job\nshutdown")


def test_the_users_own_formats_do_not_reach_the_tools(tmp_path: Path, tools: Callable[..., Tools]) -> None:
    made = tools('#!/bin/sh\necho "$TZ $LC_ALL $SLURM_TIME_FORMAT ${SACCT_FORMAT-none} $SLURM_CONF"\n')
    assert made.environment is not None
    made = Tools(environment={**made.environment, "SACCT_FORMAT": "x", "SLURM_TIME_FORMAT": "x", "SLURM_CONF": "/c"})
    assert made.run("scontrol").out == b"UTC C %s none /c\n"


def test_without_slurm_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="scontrol: not found in PATH"):
        Tools(environment={"PATH": str(tmp_path)}).run("scontrol")
