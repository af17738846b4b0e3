"""What ``perdure exec`` adds to the start of a program, alone and eight at once, and what it uses while it waits.

    python benchmarks/exec_startup.py [--runs 15]

Runs with and without it take turns. Prints medians in seconds, from fork to exit of a program that does nothing, with
the ratio; then the processor time of a launcher, and of an agent that sees eight of them, as a share of one core. Exits
with 1 where a budget is passed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ONE_S, EIGHT_S, SHARE = 0.15, 1.0, 0.005
WATCHED_S = 20.0
PROGRAM = [sys.executable, "-c", "pass"]
PERDURE = str(Path(sys.executable).with_name("perdure"))


def elapsed_s(command: list[str], count: int, environment: dict[str, str]) -> float:
    """Wall time until all of `count` that start at once have ended."""
    begun_s = time.perf_counter()
    started = [subprocess.Popen(command, env={**environment, "SLURM_PROCID": str(rank)}) for rank in range(count)]
    codes = [each.wait() for each in started]
    assert not any(codes)
    return time.perf_counter() - begun_s


def used_s(pid: int) -> float:
    """Processor time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def shares(directory: Path, environment: dict[str, str]) -> dict[str, float]:
    """Of one core, while eight programs sleep."""
    agents = directory / "agents"
    agents.mkdir(mode=0o755)
    with ExitStack() as stack:
        sleeps = [PERDURE, "exec", "--", "sleep", "3600"]
        launchers = [stack.enter_context(subprocess.Popen(sleeps, env=environment)) for _ in range(8)]
        watching = [PERDURE, "agent", str(agents), "--fence", environment["PERDURE_FENCE_DIR"]]
        agent = stack.enter_context(subprocess.Popen(watching, env=environment))
        time.sleep(3.0)
        before = {process.pid: used_s(process.pid) for process in (*launchers, agent)}
        time.sleep(WATCHED_S)
        used = {pid: (used_s(pid) - since) / WATCHED_S for pid, since in before.items()}
        for process in (*launchers, agent):
            process.terminate()
    return {"launcher": statistics.mean(used[each.pid] for each in launchers), "agent": used[agent.pid]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    is_over = False
    with tempfile.TemporaryDirectory() as name:
        ours = {"PERDURE_JOB_ID": "1", "PERDURE_INCARNATION": "1", "PERDURE_FENCE_DIR": f"{name}/fence"}
        environment = {**os.environ, **ours}
        elapsed_s([PERDURE, "exec", "--", *PROGRAM], 1, environment)
        print(f"{'':12}{'without':>10}{'with':>10}{'added':>10}{'ratio':>8}   median of {runs} runs, in s")
        for count, budget_s in ((1, ONE_S), (8, EIGHT_S)):
            pairs = [
                (
                    elapsed_s(PROGRAM, count, environment),
                    elapsed_s([PERDURE, "exec", "--", *PROGRAM], count, environment),
                )
                for _ in range(runs)
            ]
            without, with_ = (statistics.median(each) for each in zip(*pairs, strict=True))
            added = statistics.median(b - a for a, b in pairs)
            print(f"{count:>2} at once  {without:10.3f}{with_:10.3f}{added:10.3f}{with_ / without:8.1f}")
            is_over |= added > budget_s
        for who, share in shares(Path(name), environment).items():
            print(f"{who:12}{share:10.2%} of one core")
            is_over |= share > SHARE
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
