"""Running HTCondor's command-line tools: argument lists, one locale, a time limit, a size limit, answers as JSON."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from perdure.backends.condor.ads import ClassAd, read_ads
from perdure.backends.condor.settings import CondorSettings
from perdure.backends.tool_process import Advice, ToolAnswer, ToolPipes
from perdure.errors import ClusterBusy, ConfigError

CAP_BYTES = 256 * 1024 * 1024
ADVICE = Advice("Run `condor_q -totals` and `condor_status -schedd`", "Look at fewer jobs: set condor.constraint")
_SYSTEM = "/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class CondorTools:
    """How the tools are run, and whom they ask."""

    settings: CondorSettings
    environment: Mapping[str, str] | None = None  # None: this process's own

    def find(self, name: str) -> str:
        """Return the path of a tool. Raises `ConfigError` if it is not installed."""
        found = shutil.which(name, path=f"{self._base().get('PATH', '')}:{_SYSTEM}")
        if found is None:
            raise ConfigError(name, "not found in PATH", "Run Perdure where HTCondor's tools are installed")
        return found

    def ask_queue(self, *argv: str) -> ToolAnswer:
        """Run a tool that talks to the schedd. Raises as `run`."""
        return self.run(argv[0], *self._schedd, *argv[1:])

    def ask_pool(self, *argv: str) -> ToolAnswer:
        """Run a tool that talks to the collector, or to whom it names. Raises as `run`."""
        return self.run(argv[0], *self._pool, *argv[1:])

    def read(self, answer: ToolAnswer, tool: str) -> list[ClassAd]:
        """The ads of an answer as JSON. Raises `ClusterBusy` where the tool failed or broke off."""
        if answer.code != 0:
            raise ClusterBusy(tool, answer.complaint or f"ended with code {answer.code}", ADVICE.silent)
        try:
            return read_ads(answer.out)
        except msgspec.DecodeError as err:
            raise ClusterBusy(tool, f"its answer cannot be read: {err}", ADVICE.silent) from err

    def run(self, *argv: str) -> ToolAnswer:
        """Run one tool to its end.

        Raises `ClusterBusy` where it takes longer than ``tool_timeout_s``, `ClusterError` where it prints more than is
        read. A failure of the tool itself is in the answer.
        """
        program = self.find(argv[0])
        environment = {**self._base(), "LC_ALL": "C", "TZ": "UTC"}
        try:
            pipes = ToolPipes((program, *argv[1:]), environment, CAP_BYTES, ADVICE)
        except OSError as err:
            raise ClusterBusy(program, f"cannot be started: {err.strerror}", "Raise this machine's limits") from err
        try:
            pipes.close_input()
            return pipes.read(b"", (), time.monotonic() + self.settings.tool_timeout_s)
        finally:
            pipes.end()

    def config(self, name: str) -> str:
        """One word of this machine's configuration; "" where it is not defined."""
        answer = self.run("condor_config_val", name)
        return answer.out.decode("utf-8", "replace").strip() if answer.code == 0 else ""

    @property
    def schedd(self) -> str:
        """The name of the schedd that is asked. Raises `ConfigError` where none is known."""
        name = self.settings.schedd or self.config("SCHEDD_NAME") or self.config("FULL_HOSTNAME")
        if not name:
            raise ConfigError("condor", "this machine has no configuration of HTCondor", "Set condor.schedd")
        return name

    @property
    def _schedd(self) -> Sequence[str]:
        return (*(("-name", self.settings.schedd) if self.settings.schedd else ()), *self._pool)

    @property
    def _pool(self) -> Sequence[str]:
        return ("-pool", self.settings.pool) if self.settings.pool else ()

    def _base(self) -> Mapping[str, str]:
        return os.environ if self.environment is None else self.environment
