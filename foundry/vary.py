"""Variations of the foundry's records: other words, depths, ranks, surroundings; the same truth.

    python -m foundry.vary --out varied.jsonl.gz [--data FILE] [--times 17.45] [--seed 0]
                                          [--lines 0 400]

A variation is a function of its original, a seed and a `Manner`, so variations are made when they are needed and are
not stored. The default of `--times` is Sibylla's augmentation of 256 logs to 4,468 (J. Yoon et al., USENIX ATC 2022;
the number is theirs, the changes are ours, since theirs are not published).
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foundry.changes import CHANGES, Script, surround
from foundry.compose import compose, messages
from foundry.records import CATALOGUE, Record, dump, published, read
from perdure.errors import InputError

SIBYLLA_TIMES = 4468 / 256


@dataclass(frozen=True, slots=True)
class Manner:
    """How far variations may go: the chance of each change, and how many ordinary lines stand around."""

    older_tracebacks: float = 0.4
    deepen: float = 0.3
    reword: float = 0.5
    launched: float = 0.2
    interleave: float = 0.2
    spread: float = 0.3
    behead: float = 0.3
    cut_short: float = 0.15
    rename: float = 0.8
    stamp: float = 0.25
    colour: float = 0.05
    windows_ends: float = 0.03
    least_lines: int = 0
    most_lines: int = 400


def vary(record: Record, seed: int, manner: Manner | None = None) -> Record:
    """The variation of an original under a seed (at least 1). The same arguments give the same record.

    A record of the catalogue is composed anew, in versions of its own; a measured one keeps what was measured
    except for the changes. Raises `ValueError` for a seed of 0 or a record that is a variation itself.
    """
    if seed < 1 or record.seed:
        raise ValueError(f"{record.id}, seed {seed}: a variation has a seed from 1 on, and an original")
    manner = manner or Manner()
    rng = np.random.default_rng([zlib.crc32(record.program.encode()), seed, 1])
    script = surround(_script(_anew(record, seed)), rng, manner.least_lines, manner.most_lines)
    for name, change in CHANGES.items():
        if name == "cut_short" and record.pair:  # what tells the members of a pair apart may come last
            continue
        if rng.random() < getattr(manner, name):
            script = change(script, rng)
    return _record(record, seed, script)


def _anew(record: Record, seed: int) -> Record:
    message = messages().get(record.program) if record.origin == CATALOGUE else None
    return compose(message, seed) if message is not None else record


def _script(record: Record) -> Script:
    text = tuple(record.text.split("\n"))
    first, last = record.first_line - 1, record.last_line
    return Script(text[:first], text[first:last], text[last:], record.shows)


def _record(original: Record, seed: int, script: Script) -> Record:
    first = len(script.before) + 1
    return replace(
        original,
        id=f"{original.program}~{seed}",
        seed=seed,
        shows=script.shows,
        first_line=first,
        last_line=first + len(script.failure) - 1,
        text="\n".join([*script.before, *script.failure, *script.after]),
    )


def augment(
    records: Sequence[Record], times: float = SIBYLLA_TIMES, seed: int = 0, manner: Manner | None = None
) -> Iterator[Record]:
    """The originals, then variations dealt to them in turn, ``round(times * len(records))`` records in all.

    Another `seed` gives other variations. Split the originals first (`splits`), then augment each side.
    """
    yield from records
    for number in range(round(times * len(records)) - len(records)):
        turn, original = divmod(number, len(records))
        yield vary(records[original], 1 + turn + 100_000 * seed, manner)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m foundry.vary", description=__doc__)
    parser.add_argument("--data", type=Path, help="the originals (default: those that come with Perdure)")
    parser.add_argument("--out", type=Path, required=True, help="where originals and variations go")
    parser.add_argument("--times", type=float, default=SIBYLLA_TIMES, help="records in all, for each original")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other variations")
    parser.add_argument(
        "--lines", type=int, nargs=2, default=(0, 400), metavar=("LEAST", "MOST"), help="ordinary lines"
    )
    options = parser.parse_args(arguments)
    try:
        originals = read(options.data) if options.data is not None else published()
    except InputError as err:
        parser.error(str(err))
    manner = Manner(least_lines=options.lines[0], most_lines=options.lines[1])
    records = list(augment(originals, options.times, options.seed, manner))
    options.out.write_bytes(dump(records))
    sys.stdout.write(f"{len(originals)} originals, {len(records)} records in {options.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
