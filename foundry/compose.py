"""Logs of failures that a machine without GPUs and neighbours cannot have, composed after documented messages.

An entry of the files under ``catalogue/``:

    name, family, truth, category, shows, why, pair, framework    as for a program (see program.py)
    page       where the message, or the mechanism that it reports, is documented
    says       the message in its versions
    stage      early: before the first step | late: after some
    before     names of context that stands before the message, in order; "a|b|" is one of them or nothing
    after      likewise for what follows it

The text of `says` and of context: ``$name`` is a value that is the same throughout a log (a host, a rank, ...),
``{{a||b}}`` is one of several versions, which may hold versions themselves. The words are ours, after the formats of
the pages that are named.
"""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from string import Template
from typing import Any

import numpy as np
from numpy.random import Generator

from foundry import chatter
from foundry.records import CATALOGUE, Record
from perdure.errors import InputError
from perdure.triage.verdict import Label

VERSIONS = re.compile(r"\{\{((?:(?!\{\{|\}\}).)*)\}\}", re.DOTALL)
"""The innermost versions of a text."""

EARLY_STEPS, LATE_STEPS = (0, 1), (8, 24)
FRAMES = (
    ("train.py", "<module>", "main()"),
    ("train.py", "main", "trainer.fit(model, loader)"),
    ("engine/trainer.py", "fit", "self._run_epoch(epoch)"),
    ("engine/trainer.py", "_run_epoch", "loss = self.step(batch)"),
    ("engine/trainer.py", "step", "output = self.model(batch)"),
    ("model/net.py", "forward", "hidden = self.layers(hidden)"),
)


@dataclass(frozen=True, slots=True)
class Message:
    """A documented message, and the truth about a job that ends with it."""

    name: str
    family: str
    framework: str
    truth: Label
    category: str
    shows: str
    why: str
    page: str
    says: str
    stage: str = "late"
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    pair: str = ""
    exit_code: int = 1


@lru_cache(maxsize=1)
def messages() -> Mapping[str, Message]:
    """The messages of the catalogue by name, in the order of the files. Raises `InputError` for a wrong entry."""
    folder = resources.files("foundry") / "catalogue"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    found: dict[str, Message] = {}
    for file in files:
        table = tomllib.loads(file.read_text("utf-8"))
        for entry in table.get("message", ()):
            message = _message({"framework": table.get("framework"), **entry}, file.name)
            if message.name in found:
                raise InputError(file.name, f"a second message named {message.name!r}", "Rename one of them")
            found[message.name] = message
    return found


def _message(entry: Mapping[str, Any], where: str) -> Message:
    try:
        lists = {key: tuple(entry[key]) for key in ("before", "after") if key in entry}
        return Message(**{**entry, **lists, "truth": Label(entry["truth"])})
    except (KeyError, TypeError, ValueError) as err:
        raise InputError(f"{where}: {entry.get('name', '?')}", f"not a message ({err})", "Fix the entry") from err


@lru_cache(maxsize=1)
def _contexts() -> Mapping[str, Mapping[str, str]]:
    text = (resources.files("foundry") / "catalogue" / "context.toml").read_text("utf-8")
    return tomllib.loads(text)


def composed() -> Iterator[Record]:
    """Every message of the catalogue as a log, once."""
    return (compose(message, seed=0) for message in messages().values())


def compose(message: Message, seed: int) -> Record:
    """The message as the log of a job that ended with it; the same for the same seed."""
    rng = np.random.default_rng([zlib.crc32(message.name.encode()), seed])
    values = slots(rng)
    before = [line for name in message.before for line in context("before", name, values, rng)]
    failure = render(message.says, values, rng)
    after = [line for name in message.after for line in context("after", name, values, rng)]
    ordinary = [*before, *_steps(message, rng)]
    return Record(
        id=message.name,
        program=message.name,
        family=message.family,
        framework=message.framework,
        source=f"foundry/{message.family}",
        origin=CATALOGUE,
        label=message.truth.value,
        category=message.category,
        rationale=message.why,
        shows=message.shows,
        pair=message.pair,
        seed=seed,
        exit_code=message.exit_code,
        first_line=len(ordinary) + 1,
        last_line=len(ordinary) + len(failure) + len(after),
        proof={"page": message.page},
        text="\n".join([*ordinary, *failure, *after]),
    )


def _steps(message: Message, rng: Generator) -> list[str]:
    style = int(rng.integers(chatter.STYLES))
    low, high = EARLY_STEPS if message.stage == "early" else LATE_STEPS
    count, first = int(rng.integers(low, high + 1)), int(rng.integers(2000)) if message.stage == "late" else 0
    return [*chatter.greeting(style), *(chatter.line(style, first + i, first + count) for i in range(count))]


def context(side: str, names: str, values: Mapping[str, str], rng: Generator) -> list[str]:
    """The lines of one of the contexts "a|b|" of a side, "before" or "after"."""
    options = names.split("|")
    name = options[int(rng.integers(len(options)))]
    return render(_contexts()[side][name], values, rng) if name else []


def render(text: str, values: Mapping[str, str], rng: Generator) -> list[str]:
    """The lines of a text of the catalogue: a version is chosen wherever there are several, values are filled in."""

    def version(match: re.Match[str]) -> str:
        options = match[1].split("||")
        return options[int(rng.integers(len(options)))]

    chosen, more = text.strip("\n"), 1
    while more:
        chosen, more = VERSIONS.subn(version, chosen)
    return [line for line in Template(chosen).substitute(values).split("\n") if line]


def slots(rng: Generator) -> dict[str, str]:
    """Values for the names in texts of the catalogue, drawn for one log."""

    def number(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    def digits(count: int) -> str:
        return "".join("0123456789abcdef"[i] for i in rng.integers(16, size=count))

    host, rank, sequence, bus = number(1, 60), number(0, 64), number(60_000, 900_000), f"{number(16, 255):02x}"
    clock = f"{number(0, 24):02d}:{number(0, 60):02d}:{number(0, 60):02d}"
    day = number(1, 29)
    return {
        "pid": str(number(1200, 90_000)),
        "pid2": str(number(90_000, 400_000)),
        "tid": str(number(1200, 90_000)),
        "rank": str(rank),
        "gpu": str(rank % 8),
        "world": str(8 * number(1, 17)),
        "host": f"node{host}",
        "peerhost": f"node{host + number(1, 30)}",
        "ip": f"10.{number(0, 255)}.{number(0, 255)}.{number(1, 255)}",
        "port": str(number(30_000, 60_000)),
        "bus": f"0000:{bus}:00",
        "shortbus": f"{bus}000",
        "uptime": f"{number(10_000, 9_000_000)}.{number(100_000, 999_999)}",
        "date": f"2025-03-{day:02d}",
        "clock": clock,
        "time": f"2025-03-{day:02d}T{clock}Z",
        "glog": f"03{day:02d} {clock}.{number(100_000, 999_999)} {number(1200, 90_000)}",
        "step": str(number(900, 60_000)),
        "seqlate": str(sequence),
        "seqlater": str(sequence + number(1, 4)),
        "seqbefore": str(sequence - 1),
        "uuid": digits(32),
        "hex": digits(12),
        "job": str(number(100_000, 9_000_000)),
        "pod": f"train-{number(1, 99)}-worker-{number(0, 16)}",
        "exitcode": str((1, -6)[number(0, 2)]),
        "traceback": _traceback(number(2, len(FRAMES) + 1)),
    }


def _traceback(depth: int) -> str:
    frames = [*FRAMES[: depth - 1], FRAMES[-1]]
    rows = ((f'  File "/home/user/job/{file}", line {40 + 13 * i}, in {where}', f"    {code}")
            for i, (file, where, code) in enumerate(frames))  # fmt: skip
    return "\n".join(["Traceback (most recent call last):", *(line for pair in rows for line in pair)])
