"""Run the failing programs again: python -m benchmarks.tool_failures.run OUT.jsonl.gz [--only ID ...]

Needs root (for namespaces of its own) and the tools that the scripts call. Each script runs in an empty folder, its
output and errors in one log; what it left running is ended. Names of this machine are replaced by invented ones.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FIRST_PORT, LIMIT_S = 24100, 60
WORK, HOME = "/scratch/ines/run", "/home/ines"
ENVIRONMENT, BASE, NODE = "/opt/envs/train", "/opt/python", "cn-0412"

SHELL = r"""
serve() { "$PYTHON" "$HERE/serve.py" "$@" >/dev/null 2>&1; }
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
postgres_up() {
  PGBIN=$(ls -d /usr/lib/postgresql/*/bin | tail -1); chmod 777 "$SIDE"; auth=trust
  [ "$1" = --auth ] && auth=scram-sha-256
  echo right > "$SIDE/pw"; chmod 644 "$SIDE/pw"
  as_user "$PGBIN/initdb" -D "$SIDE/pg" -U postgres -A $auth --pwfile="$SIDE/pw" >/dev/null 2>&1
  limits="-c max_connections=12 -c superuser_reserved_connections=0 -c deadlock_timeout=500ms"
  as_user "$PGBIN/pg_ctl" -D "$SIDE/pg" -w -l "$SIDE/pg.log" -o "-p $PORT -k '' $limits" start >/dev/null 2>&1
}
postgres_down() { as_user "$PGBIN/pg_ctl" -D "$SIDE/pg" -m fast stop >/dev/null 2>&1; }
"""


def read_programs() -> list[dict[str, Any]]:
    """The programs with their truths."""
    found: list[dict[str, Any]] = tomllib.loads((HERE / "programs.toml").read_text("utf-8"))["program"]
    return found


def run(program: dict[str, Any], port: int) -> dict[str, Any]:
    """The record of one program: its truth, its exit code and its log."""
    with tempfile.TemporaryDirectory(prefix="tool-failures-", dir="/var/tmp") as folder:
        work, side = Path(folder) / "run", Path(folder) / "side"
        work.mkdir()
        side.mkdir()
        Path(folder).chmod(0o755)
        (side / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (side / "python").chmod(0o755)
        script = Path(folder) / "job.sh"
        script.write_text(f"{SHELL}{_before(program)}cd {work}\n{program['script']}")
        code = _exit_code(script, side, port)
        text = (side / "log").read_bytes().decode("utf-8", "backslashreplace")
    truth = {key: program[key] for key in ("id", "retry", "category", "root")}
    text = _renamed(
        text.replace(str(script), "/var/spool/slurmd/job.sh").replace(str(work), WORK).replace(str(side), HOME)
    )
    return {**truth, "also_right": program.get("also_right", []), "exit_code": code, "text": text}


def _before(program: dict[str, Any]) -> str:
    return f"mount -t tmpfs -o size={program['small']}m none /tmp\n" if "small" in program else ""


def _exit_code(script: Path, side: Path, port: int) -> int:
    """Run a script to its end in namespaces of its own: with it ends all that it started."""
    env = {
        "PATH": f"{side}:{os.environ['PATH']}",
        "HOME": str(side),
        "LANG": "C.UTF-8",
        "PYTHON": sys.executable,
        "HERE": str(HERE),
        "SIDE": str(side),
        "PORT": str(port),
    }
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", str(script)]
    with (side / "log").open("wb") as log:
        ours = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)
        try:
            return ours.wait(LIMIT_S)
        finally:
            ours.kill()


def _renamed(text: str) -> str:
    names = {
        sys.prefix: ENVIRONMENT,
        sys.base_prefix: BASE,
        str(HERE): "/opt/tools",
        socket.gethostname(): NODE,
        "root@": "ines@",
    }
    for name, invented in names.items():
        text = text.replace(name, invented)
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run them one by one, and write their records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", help="ids of programs")
    options = parser.parse_args(arguments)
    if shutil.which("unshare") is None:
        parser.error("unshare is not installed")
    records = []
    for place, program in enumerate(read_programs()):
        if not options.only or program["id"] in options.only:
            records.append(run(program, FIRST_PORT + 2 * place))
            sys.stdout.write(f"{records[-1]['id']} {records[-1]['exit_code']}\n")
            sys.stdout.flush()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    options.out.write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    main()
