"""What a program needs of the machine, and why it is missing where it is.

module NAME    a Python module, under the Python that runs the programs
command NAME   a program on the PATH
root           the rights of root: to mount, to change the user, to make namespaces
cgroup NAME    a control group of that controller can be made
slurm          a Slurm of the foundry's own runs
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from foundry.cgroup import Cgroup

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Machine:
    """What is here: the Python that runs the programs, and the state directory of a Slurm, if there is one."""

    python: Path
    slurm: Path | None = None
    slurm_tool: Path | None = None
    _known: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> str:
        """The PATH of programs: that Python's own commands come first."""
        return f"{self.python.parent}:{SYSTEM_PATH}"

    def lacks(self, need: str) -> str:
        """Why `need` is not met; "" where it is. Looked up once."""
        if need not in self._known:
            self._known[need] = self._look(need)
        return self._known[need]

    def _look(self, need: str) -> str:
        kind, _, name = need.partition(" ")
        if kind == "module":
            found = subprocess.run(
                [self.python, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is None)"],
                capture_output=True,
                check=False,
            )
            return "" if found.returncode == 0 else f"{self.python} has no module {name}"
        if kind == "command":
            return "" if shutil.which(name, path=self.path) else f"no command {name}"
        if kind == "root":
            return "" if os.geteuid() == 0 else "not root"
        if kind == "cgroup":
            return Cgroup.lacks(name)
        if kind == "slurm":
            return "" if self.slurm is not None else "no Slurm was started (name a sandbox)"
        return f"unknown need {need!r}"
