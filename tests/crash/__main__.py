"""Kill the service at random points under load, and count what was lost and doubled.

    python -m tests.crash --kills 10000 [--cuts 1000] [--seed 1] [--mutant no-intent]

Half of the kills happen on a cluster whose manager does blindly what it is told, so that Perdure's journal alone must
prevent a second recovery; the other half on one that guards itself, behind a line that also duplicates requests and
shows stale pictures. The last line is ``N kills, L lost, D doubled``; the exit code is 1 where L or D is not 0.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.crash import campaign, cuts
from tests.crash.life import MUTANTS

MOST_ON_ONE_CLUSTER = 500  # then a fresh one: the journal grows with the cluster's jobs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="kill -9 at random points")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=0, help="power cuts, before the kills")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="none", help="a broken service to be caught")
    given = parser.parse_args()
    lost = _cut_power(given.cuts, given.seed) if given.cuts else 0
    if given.kills:
        campaign.rehearse()
    doubled = 0
    for number, kills in enumerate(_shares(given.kills)):
        guarded, began = number % 2 == 1, time.monotonic()
        result = campaign.run(kills, given.seed + number, guarded=guarded, mutant=given.mutant)
        _report(result, guarded, time.monotonic() - began)
        lost, doubled = lost + len(result.lost), doubled + len(result.doubled)
    _say(f"{given.kills} kills, {lost} lost, {doubled} doubled")
    return 1 if lost or doubled else 0


def _shares(kills: int) -> list[int]:
    """An even number of clusters, and how often the service dies on each."""
    if not kills:
        return []
    clusters = max(2, 2 * -(-kills // (2 * MOST_ON_ONE_CLUSTER)))
    return [kills // clusters + (number < kills % clusters) for number in range(clusters)]


def _cut_power(times: int, seed: int) -> int:
    """How much was lost."""
    result = cuts.run(times, seed)
    for what in result.lost:
        _say(f"  lost: {what}")
    _say(f"{result.cuts} power cuts of {result.states} acknowledged states, {len(result.lost)} lost")
    return len(result.lost)


def _report(result: campaign.Result, guarded: bool, took_s: float) -> None:
    kind = "self-guarding manager, hostile line" if guarded else "blind manager, lossy line"
    kills = f"{result.kills} kills, {result.at_points} of them at named points"
    told = f"{result.tally.failures} failures, {result.said.count} exceptions and answers acknowledged"
    _say(f"{kind}: {kills}; {told}; {took_s:.1f} s")
    for word, names in (("lost", result.lost), ("doubled", result.doubled)):
        for name in names:
            _say(f"  {word}: {name}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
