"""Suspects in a running service, simulated: python benchmarks/blame_stream.py [--days 30] [--trials 40]

A cluster of 64 nodes and 30 users gets 240 attempts an hour. Each runs on 1 to 8 nodes under their leaves, and fails
by chance (4 %, in bursts) or by its user's own broken code (1 of 12 codes, of which triage recognises 4 in 5). Every
5 minutes the last 60 are looked at.

1. Nothing else is wrong for so many days: false alarms, and memory at the end of each week.
2. A node starts to fail what runs on it in the middle of the stream: windows until it is named, by its rate.
3. One user fails on purpose on one node, 1,000 times.

Exits with 1 where anything sound was named in 1 or 3. In 2 a neighbour that shared most attempts with the node may be.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc

import numpy as np

from perdure.blame.accuse import accused_by
from perdure.blame.builders.attempts import OWN_TIERS, AttemptRow
from perdure.blame.sliding import Sliding
from perdure.blame.standing import Standing, follow

STEP_S, WINDOW_S, DAY_S = 300.0, 3600.0, 86400.0
NODES, USERS, AN_HOUR, CHANCE = 64, 30, 240, 0.04


class Site:
    """Attempts of a made-up site, step by step."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.number = 0

    def step(self, now: float, rate_of: dict[int, float] | None = None) -> list[tuple[str, AttemptRow]]:
        """The attempts that end in one step; nodes in `rate_of` fail what runs on them with that chance."""
        rng, found = self.rng, []
        wave = rng.gamma(2.0) / 2.0
        for _ in range(rng.poisson(AN_HOUR * STEP_S / 3600)):
            user, code = int(rng.integers(USERS)), int(rng.integers(12))
            size = int(2 ** rng.integers(0, 4))
            nodes = (int(rng.integers(NODES)) + np.arange(size)) % NODES
            broken = code == user % 12 and user % 3 == 0
            sick = any(rng.random() < rate for node, rate in (rate_of or {}).items() if node in nodes)
            failed = broken or sick or rng.random() < CHANCE * wave
            leaves = tuple(("leaf", f"l{leaf}") for leaf in np.unique(nodes // 16))
            row = AttemptRow(
                now - rng.random() * STEP_S, f"u{user}", f"c{code}", tuple(f"n{node}" for node in nodes), bool(failed),
                deterministic=bool(broken and rng.random() < 0.8), switches=leaves,
            )  # fmt: skip
            self.number += 1
            found.append((str(self.number), row))
        return found


class Watch:
    """What the service does every five minutes."""

    def __init__(self) -> None:
        self.sliding = Sliding(WINDOW_S)
        self.standing: tuple[Standing, ...] = ()

    def turn(self, rows: list[tuple[str, AttemptRow]], now: float) -> list[tuple[str, str]]:
        """Who is newly named."""
        turn = follow(self.standing, accused_by(now, WINDOW_S, self.sliding.slide(rows, now)), now)
        self.standing = turn.standing
        return [each.accusation.components[0] for each in turn.named]


def calm(days: int, seed: int) -> int:
    """False alarms of so many days in which only codes are broken."""
    site, watch = Site(seed), Watch()
    false, right, turns = [], 0, []
    tracemalloc.start()
    for step in range(int(days * DAY_S / STEP_S)):
        now = (step + 1) * STEP_S
        begun = time.process_time()
        for tier, name in watch.turn(site.step(now), now):
            own = name.split("/")[0]
            broken = tier in OWN_TIERS and int(own[1:]) % 3 == 0
            right += broken
            if not broken:
                false.append((round(now / DAY_S, 2), tier, name))
        turns.append(time.process_time() - begun)
        if now % (7 * DAY_S) == 0:
            print(f"day {now / DAY_S:.0f}: {tracemalloc.get_traced_memory()[0] / 1e6:.1f} MB")
    tracemalloc.stop()
    print(f"{days} days, nothing wrong but codes: {len(false)} false alarms {false}, {right} broken codes named,")
    print(f"a turn takes {1000 * np.median(turns):.0f} ms (median), {1000 * np.max(turns):.0f} ms (most)")
    return len(false)


def onset(trials: int) -> None:
    """Windows until a node that begins to fail is named; who else is."""
    wrong: list[str] = []
    print("| rate of the node | named | windows until named: median | 90 % |\n|---|---|---|---|")
    for rate in (1.0, 0.7, 0.5):
        waits = []
        for trial in range(trials):
            site, watch, culprit = Site(1000 + trial), Watch(), trial % NODES
            for step in range(12 + 36):
                now = (step + 1) * STEP_S
                named = watch.turn(site.step(now, {culprit: rate} if step >= 12 else None), now)
                if ("node", f"n{culprit}") in named:
                    waits.append(step - 11)
                    break
                wrong += [f"{name} (of n{culprit})" for tier, name in named if tier not in OWN_TIERS]
        late = [*waits, *[np.inf] * (trials - len(waits))]
        most = np.sort(late)[int(0.9 * trials)]
        print(f"| {rate:.0%} | {len(waits)} of {trials} | {np.median(late):.0f} | {most:.0f} |")
    print(f"others than users named meanwhile: {len(wrong)} {wrong}")


def forged() -> int:
    """One user, one node, 1,000 failures in an hour."""
    site, watch, wrong = Site(5), Watch(), 0
    for step in range(36):
        now = (step + 1) * STEP_S
        rows = site.step(now)
        if 12 <= step < 24:
            rows += [(f"e{step}-{k}", AttemptRow(now - 1, "eve", f"j{k % 40}", ("n7",), True)) for k in range(84)]
        wrong += sum(tier not in OWN_TIERS for tier, _ in watch.turn(rows, now))
    print(f"1,000 forged failures on one node: {wrong} nodes or shared parts named")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1, help="of the days without a culprit")
    parser.add_argument("--trials", type=int, default=40)
    asked = parser.parse_args()
    false = calm(asked.days, asked.seed)
    onset(asked.trials)
    return int(false + forged() > 0)


if __name__ == "__main__":
    sys.exit(main())
