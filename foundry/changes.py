"""A log as lines of three parts, and the changes that a variation makes to them.

A change keeps the truth: it never drops a line that tells of the failure, nor the words that show its cause. Each is
a function of a `Script` and a random generator.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any

import re2
from numpy.random import Generator

from foundry import chatter
from foundry.compose import context, slots

CALM_GAP = 200
"""A survived trouble stands at least so many ordinary lines before the failure."""


@dataclass(frozen=True, slots=True)
class Script:
    """A log in parts: ordinary lines, the lines that tell of the failure, ordinary lines."""

    before: tuple[str, ...]
    failure: tuple[str, ...]
    after: tuple[str, ...]
    shows: str  # words of one of the failure's lines that tell of the cause

    def every(self, change: Callable[[str], str]) -> Script:
        """The script with each line, and the words that show the cause, changed alike."""
        before, failure, after = (tuple(map(change, part)) for part in (self.before, self.failure, self.after))
        return Script(before, failure, after, change(self.shows))

    @property
    def early(self) -> bool:
        """Whether the failure came before any step."""
        return len(self.before) <= 7 and not any(re.search(r"(?i)step|epoch|iter|it/s|loss", x) for x in self.before)

    @property
    def key(self) -> int:
        """Which of the failure's lines shows the cause."""
        return next(i for i, line in enumerate(self.failure) if self.shows in line)


Change = Callable[[Script, Generator], Script]


def _pick(options: Sequence[str], rng: Generator) -> str:
    return options[int(rng.integers(len(options)))]


def rename(script: Script, rng: Generator) -> Script:
    """Other directories, hosts, users, versions of Python."""
    user = _pick(("anna", "li.wei", "u4711", "jovyan", "researcher"), rng)
    names = {
        "/home/user/job": _pick(
            (f"/scratch/{user}/run17", "/workspace", f"/home/{user}/proj/exp3", "/mnt/nfs/p42"), rng
        ),
        "/home/user/env": _pick((f"/home/{user}/miniconda3/envs/train", "/opt/venv", "/usr/local", "/opt/conda"), rng),
        "/home/user": f"/home/{user}",
        "python3.11": f"python3.{int(rng.integers(8, 14))}",
        "node17": _pick(("gpu-node-03", "dgx7", "compute-1-12", "nid001234", "trainer-0"), rng),
    }

    def change(line: str) -> str:
        for name, other in names.items():
            line = line.replace(name, other)
        return line

    return script.every(change)


@dataclass(frozen=True, slots=True)
class _Material:
    frames: tuple[tuple[str, ...], ...]
    survived: tuple[tuple[str, ...], ...]
    wordings: tuple[tuple[Any, tuple[str, ...]], ...]


@lru_cache(maxsize=1)
def _material() -> _Material:
    """What variations.toml holds."""
    table = tomllib.loads((resources.files("foundry") / "variations.toml").read_text("utf-8"))
    wordings = tuple((re2.compile(entry["pattern"]), tuple(entry["versions"])) for entry in table["wording"])
    return _Material(tuple(map(tuple, table["frames"])), tuple(map(tuple, table["survived"])), wordings)


def reword(script: Script, rng: Generator) -> Script:
    """The words of another version of the program."""
    lines, shows, text = list(script.failure), script.shows, "\n".join(script.failure)
    for pattern, versions in _material().wordings:
        version = _pick(versions, rng)
        if pattern.search(text) is None:
            continue
        for i, line in enumerate(lines):
            match = pattern.search(line)
            if match is None:
                continue
            said = match.expand(version)
            lines[i] = line[: match.start()] + said + line[match.end() :]
            if shows in line and shows not in lines[i]:
                shows = said
    return replace(script, failure=tuple(lines), shows=shows)


def older_tracebacks(script: Script, rng: Generator) -> Script:  # noqa: ARG001  (all changes have one form)
    """Tracebacks as before Python 3.11: without the marks under the code."""
    return replace(script, failure=tuple(x for x in script.failure if not re.fullmatch(r"\s*[\^~]+\s*", x)))


TRACEBACK = "Traceback (most recent call last):"


def deepen(script: Script, rng: Generator) -> Script:
    """More frames on top of each traceback."""
    lines: list[str] = []
    for line in script.failure:
        lines.append(line)
        if line.endswith(TRACEBACK):
            lead = line.removesuffix(TRACEBACK)
            frames = _material().frames
            chosen = sorted(rng.choice(len(frames), size=int(rng.integers(1, 6)), replace=False))
            lines += [lead + row for i in chosen for row in frames[i]]
    return replace(script, failure=tuple(lines))


def launched(script: Script, rng: Generator) -> Script:
    """A launcher's last words after the failure."""
    said = context("after", _pick(("torchrun", "srun", "mpirun", "deepspeed"), rng), slots(rng), rng)
    return replace(script, failure=(*script.failure, *said))


def _prefixes(rng: Generator) -> Callable[[int], str]:
    ip = slots(rng)["ip"]
    manners: tuple[Callable[[int], str], ...] = (
        lambda rank: f"[rank{rank}]: ",
        lambda rank: f"{rank}: ",
        lambda rank: f"[1,{rank}]<stderr>:",
        lambda rank: f"(train_fn pid={4711 + rank}, ip={ip}) ",
        lambda rank: f"gpu-node-{3 + rank // 8:02d}: ",
    )
    return manners[int(rng.integers(len(manners)))]


MAX_SPREAD_LINES = 60


def spread(script: Script, rng: Generator) -> Script:
    """Several ranks say it, each line with its rank's mark, their lines interleaved."""
    ranks = int(rng.integers(1, 5)) if len(script.failure) <= MAX_SPREAD_LINES else 1
    mark = _prefixes(rng)
    turns = rng.permutation([rank for rank in range(ranks) for _ in script.failure])
    told = [0] * ranks
    lines = []
    for rank in map(int, turns):
        lines.append(mark(rank) + script.failure[told[rank]])
        told[rank] += 1
    return replace(script, failure=tuple(lines))


def interleave(script: Script, rng: Generator) -> Script:
    """Ordinary lines of other ranks between those of the failure."""
    style, step = int(rng.integers(chatter.STYLES)), int(rng.integers(5000))
    lines = []
    for line in script.failure:
        lines.append(line)
        if rng.random() < 0.15:
            lines.append(chatter.loading(style, step) if script.early else chatter.line(style, step, 10_000))
            step += 1
    return replace(script, failure=tuple(lines))


def surround(script: Script, rng: Generator, low: int, high: int) -> Script:
    """`low` to `high` ordinary lines before the failure, drawn evenly on a logarithmic scale, and a few after it.

    Far enough before it, trouble that the job survived is mixed in.
    """
    style = int(rng.integers(chatter.STYLES))
    count = int((1 + low) * ((1 + high) / (1 + low)) ** rng.random()) - 1
    first = int(rng.integers(100_000))
    make = chatter.loading if script.early else (lambda style, step: chatter.line(style, step, first + count + 1000))
    survived = _material().survived
    lines = [*chatter.greeting(style), *(make(style, first + i) for i in range(count))]
    for _ in range(int(rng.integers(0, 4))):
        if len(lines) > 2 * CALM_GAP:
            at = int(rng.integers(len(lines) - CALM_GAP))
            lines[at:at] = survived[int(rng.integers(len(survived)))]
    after = [make(style, first + count + i) for i in range(int(rng.integers(0, 30)))] if rng.random() < 0.3 else []
    return replace(script, before=(*lines, *script.before), after=(*script.after, *after))


def behead(script: Script, rng: Generator) -> Script:
    """The log begins late, as one that was rotated does."""
    return replace(script, before=script.before[int(rng.integers(len(script.before) + 1)) :])


def cut_short(script: Script, rng: Generator) -> Script:
    """The log ends early, at the soonest with the line that shows the cause."""
    last = int(rng.integers(script.key + 1, len(script.failure) + 1))
    return replace(script, failure=script.failure[:last], after=())


def stamp(script: Script, rng: Generator) -> Script:
    """A collector's mark before every line."""
    day, host = int(rng.integers(1, 29)), int(rng.integers(1, 90))
    start = int(rng.integers(80_000))
    manner = int(rng.integers(4))
    parts, number = [], 0
    for part in (script.before, script.failure, script.after):
        lines = []
        for line in part:
            second = start + number // 20
            clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
            mark = (
                f"2025-03-{day:02d}T{clock}.{number % 1000:03d}Z stdout F ",
                f"Mar {day:2d} {clock} node{host} trainer[{1000 + host}]: ",
                f"[2025-03-{day:02d} {clock}] ",
                f"{clock} | ",
            )[manner]
            lines.append(mark + line)
            number += 1
        parts.append(tuple(lines))
    return replace(script, before=parts[0], failure=parts[1], after=parts[2])


def colour(script: Script, rng: Generator) -> Script:
    """Escape sequences around some lines."""
    code = _pick(("31", "1;31", "33", "36", "38;5;196"), rng)

    def painted(line: str) -> str:
        return f"\x1b[{code}m{line}\x1b[0m" if rng.random() < 0.4 else line

    return replace(script, failure=tuple(map(painted, script.failure)), before=tuple(map(painted, script.before)))


def windows_ends(script: Script, rng: Generator) -> Script:  # noqa: ARG001  (all changes have one form)
    """Lines end as on Windows."""
    before, failure, after = (
        tuple(line + "\r" for line in part) for part in (script.before, script.failure, script.after)
    )
    return Script(before, failure, after, script.shows)


CHANGES: Mapping[str, Change] = {
    "older_tracebacks": older_tracebacks,
    "deepen": deepen,
    "reword": reword,
    "spread": spread,
    "interleave": interleave,
    "launched": launched,
    "behead": behead,
    "cut_short": cut_short,
    "rename": rename,
    "stamp": stamp,
    "colour": colour,
    "windows_ends": windows_ends,
}
"""Changes by name, in the order in which they are made."""
