"""How true emulated GPUs are to their tables, how fast fleets run, and studies beside what is published.

    python benchmarks/emulation.py [--profiles gpemu_profiles.parquet] [--curves FOLDER]

`--profiles` and `--curves` are of GPEmu's repository (mengwanguc/gpemu, ``plots/rep``); without them our own table is
used, and nothing stands beside the studies.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from perdure.emulation.clocks import RealClock, VirtualClock
from perdure.emulation.fleet import GangPlan, run_fleet
from perdure.emulation.known_profiles import profile_of, read_profiles
from perdure.emulation.node import make_node
from perdure.emulation.profiles import ProfileTable, capacity_mib
from perdure.emulation.settings import EmulationSettings
from perdure.emulation.studies.registry import STUDIES

BATCHES = (1, 8, 32, 64, 128)
CASES = (("k80", "resnet50"), ("v100", "alexnet"), ("v100", "vgg16"), ("a100", "mobilenet_v2"), ("a100", "resnet50"))
RUNS = (
    ("h100", "resnet50", 32), ("h100", "resnet50", 64), ("h100", "resnet50", 128), ("h100", "vit-b16", 32),
    ("h100", "bert-base", 8), ("v100", "alexnet", 128),
)  # fmt: skip
OURS = (("h100", "dlrm"), ("h100", "resnet18"), ("h100", "resnet50"), ("h100", "vit-b16"), ("h100", "bert-base"))


def step_errors(
    profiles: str, cases: tuple[tuple[str, str], ...], virtual: bool, steps: int = 9
) -> list[tuple[float, list[float]]]:
    """For each GPU, model and batch that fits: the table's step in seconds, and steps of a PyTorch program."""
    import torch

    from perdure.emulation.framework import emulated

    found = []
    for gpu, model in cases:
        clock = VirtualClock() if virtual else RealClock()
        node = make_node(EmulationSettings(gpu=gpu, model=model, profiles=profiles, virtual=virtual), clock)
        with emulated(node):
            net = torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(392, 10)
            )
            net = net.cuda()
            optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
            for batch in BATCHES:
                profile = profile_of(gpu, model, batch, node.table)
                if not profile.fits:
                    continue
                images, taken = torch.zeros(batch, 3, 16, 16, device="cuda"), []
                for _ in range(steps):
                    begin = clock.now
                    net(images).sum().backward()
                    optimiser.step()
                    optimiser.zero_grad()
                    torch.cuda.synchronize()
                    taken.append(clock.now - begin)
                found.append((profile.step_s, taken[1:]))
    return found


def means_of_runs(seconds: float = 1.5) -> None:
    """Runs of a PyTorch program in real time that reads each step's result, or only the last one's."""
    import torch

    from perdure.emulation.framework import emulated

    for gpu, model, batch in RUNS:
        clock = RealClock()
        node = make_node(EmulationSettings(gpu=gpu, model=model), clock)
        wanted = profile_of(gpu, model, batch).step_s
        with emulated(node):
            net, images = torch.nn.Linear(64, 10).cuda(), torch.zeros(batch, 64, device="cuda")
            optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
            for each_step in (True, False):
                taken, count = [], max(8, int(seconds / wanted))
                for _ in range(count + 2):
                    taken.append(time.perf_counter())
                    net(images).sum().backward()
                    optimiser.step()
                    optimiser.zero_grad()
                    if each_step:
                        torch.cuda.synchronize()
                torch.cuda.synchronize()
                mean = (time.perf_counter() - taken[2]) / count if each_step else None
                if mean is None:  # its first steps fill the queue
                    mean = (time.perf_counter() - taken[0]) / (count + 2)
                single = np.diff(taken[2:]) - wanted
                inside = np.mean(abs(single) <= 0.01 * wanted + 0.0002)
                print(
                    f"{model}, batch {batch}, {count} steps of {1e3 * wanted:.1f} ms, read "
                    f"{'each' if each_step else 'last'}: mean {mean / wanted - 1:+.2%}"
                    + (f", single ones within 1 % + 0.2 ms: {inside:.0%}" if each_step else "")
                    + f"; load {os.getloadavg()[0]:.0f}"
                )


def waits_by_load() -> None:
    """Waits of the real clock on one core, beside processes that compute there."""
    core = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    for count in (0, 1, 2, 4):
        os.sched_setaffinity(0, {core})
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        time.sleep(0.5)
        for wanted in (0.005, 0.05):
            clock, taken = RealClock(), []
            for _ in range(60):
                begin = time.perf_counter()
                clock.advance_to(clock.now + wanted)
                taken.append(time.perf_counter() - begin)
            inside = np.mean(abs(np.array(taken) - wanted) <= 0.01 * wanted + 0.0002)
            print(
                f"{count} others on the core, load {os.getloadavg()[0]:.0f}: 60 waits of {1e3 * wanted:g} ms took "
                f"{sum(taken) / 60 / wanted - 1:+.2%}; {inside:.0%} of them within 1 % + 0.2 ms"
            )
        for each in others:
            each.kill()
            each.wait()
        os.sched_setaffinity(0, before)


def told(what: str, cases: list[tuple[float, list[float]]]) -> None:
    wanted = np.array([each for each, _ in cases])
    print(f"{what}: {len(cases)} cases, steps of {1e3 * wanted.min():.1f} to {1e3 * wanted.max():.0f} ms")
    for name, of in (("median", np.median), ("quickest", np.min), ("mean", np.mean)):
        error = abs(np.array([of(taken) for _, taken in cases]) - wanted)
        inside = error <= 0.01 * wanted + 0.0002
        print(
            f"  {name} step: relative error median {np.median(error / wanted):.2%}, worst "
            f"{(error / wanted).max():.2%}, {1e3 * error.max():.2f} ms at most; within 1 % + 0.2 ms: "
            f"{inside.mean():.0%}"
        )


def verdicts(table: ProfileTable, path: str) -> None:
    import duckdb

    rows = duckdb.sql(f"SELECT gpu, model, batch_size, fits_memory FROM '{path}'").fetchall()
    fits = (table.values[:, 4] <= np.array([capacity_mib(each) for each in table.gpu])).tolist()
    ours = dict(
        zip(zip(table.gpu.tolist(), table.model.tolist(), table.batch.tolist(), strict=True), fits, strict=True)
    )
    same = sum(ours[(gpu, model, batch)] == bool(each) for gpu, model, batch, each in rows)
    print(f"fits or not: {same:,} of {len(rows):,} rows equal the table")


def fleets() -> None:
    for jitter, gang in ((0.0, 8), (0.05, 8), (0.05, 1)):
        begin = time.perf_counter()
        found = run_fleet(1024 // gang, GangPlan(gang, 0.086, 0.004, jitter), (), 3600.0, 1e6, np.random.default_rng(0))
        wall = time.perf_counter() - begin
        rate = f"{found.gpu_steps:,} steps in {wall:.2f} s, {found.gpu_steps / wall:,.0f}/s"
        print(f"1,024 GPUs, gangs of {gang}, jitter {jitter}: {rate}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profiles", default="")
    parser.add_argument("--curves", type=Path)
    given = parser.parse_args()
    cases = CASES if given.profiles else OURS
    table = read_profiles(Path(given.profiles)) if given.profiles else None
    if table is not None:
        verdicts(table, given.profiles)
    told("virtual time", step_errors(given.profiles, cases, virtual=True))
    told("real time", step_errors(given.profiles, cases, virtual=False))
    means_of_runs()
    waits_by_load()
    fleets()
    for name, run in STUDIES.items():
        found = run(table, np.random.default_rng(0))
        print(f"\n{name}: {found.assumed}\n  {' | '.join(found.columns)}")
        for row in found.rows:
            print("  " + " | ".join(each if isinstance(each, str) else f"{each:.3g}" for each in row))
    if given.curves:
        for name in ("stall_fetch_ds-fetch-emu.csv", "dist_coordl_40cache_data.csv", "dist_coordl_65cache_data.csv",
                     "allox_jct.csv", "muri_jct_data.csv"):  # fmt: skip
            print(f"\n{name}\n{(given.curves / name).read_text().strip()}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
