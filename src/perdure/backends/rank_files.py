"""The files that ranks write by themselves: where a job's script says they are, and whose they are."""

from __future__ import annotations

import math
import pwd
import re
from collections.abc import Iterable
from dataclasses import replace

from msgspec import Struct

from perdure.backends.ownership import LATE_S, Span
from perdure.backends.reader import Search, WantedText
from perdure.backends.script import ANY, Said, pattern_of
from perdure.model.jobs import Attempt
from perdure.model.output import Absent, OutputFile, OutputKind, Why
from perdure.triage.text.filenames import ranks_of

MAX_SEARCHES = 13
CLOCKS_APART_S = 2.0  # at most, between file servers and slurmctld, for a file to count as written since a start
LAUNCHER_DEPTH = 4  # of directories that launchers make below the one that they are given: run, attempt, rank
LAUNCHER_FILES = r"(?:stdout|stderr|rank[^/]{0,64}|[^/]{1,64}\.(?:log|out|err))(?:\.log)?"
_UNRESOLVED = "where its ranks write to is not clear from {!r} in its script"
_SIGNS = re.compile("[\x01-\x03]")


class RankFiles(Struct, frozen=True):
    """Where ranks write to. `searches` leave the instant open since when files count."""

    plain: tuple[str, ...] = ()
    searches: tuple[Search, ...] = ()
    appended: tuple[str, ...] = ()  # of `plain`, those that are not cut
    unknown: tuple[str, ...] = ()  # what a script says in words that cannot be resolved

    @property
    def wanted(self) -> tuple[WantedText, ...]:
        return tuple(WantedText((path,), OutputKind.RANK) for path in self.plain)

    @property
    def untold(self) -> tuple[Absent, ...]:
        """What cannot be read because nobody tells where it is."""
        return tuple(Absent(text, Why.UNKNOWN, _UNRESOLVED.format(text)) for text in self.unknown)

    def written_since(self, start_s: float) -> tuple[Search, ...]:
        """The searches for what an attempt that began at `start_s` wrote."""
        return tuple(replace(search, since_s=start_s - CLOCKS_APART_S) for search in self.searches)

    def may_hold(self, path: str) -> bool:
        """Whether a path is one of these, or such as a search finds."""
        return path in self.plain or any(_finds(search, path) for search in self.searches)


def files_of(said: Said, work_dir: str) -> RankFiles:
    """Where the files are that a script which was started in `work_dir` speaks of."""
    plain: list[str] = []
    searches: list[Search] = []
    unknown: list[str] = []
    for text, is_directory in [(f, False) for f in said.files] + [(d, True) for d in said.directories]:
        path = _absolute(text, work_dir)
        components = [part for part in path.split("/") if part not in ("", ".")]
        fixed = next((at for at, part in enumerate(components) if _SIGNS.search(part)), len(components))
        if path.startswith(ANY) or ".." in components or fixed == 0:
            unknown.append(_SIGNS.sub("?", text))
        elif is_directory:
            inner = tuple(map(pattern_of, components[fixed:]))
            searches.append(Search("/" + "/".join(components[:fixed]), (*inner, LAUNCHER_FILES), LAUNCHER_DEPTH))
            prefix = "(?:" + pattern_of(components[-1]) + r")\.[^/]{1,64}"
            if not inner and len(components) > 1:  # of mpirun before version 4: a prefix, no directory
                searches.append(Search("/" + "/".join(components[:-1]), (prefix,)))
        elif fixed == len(components):
            plain.append("/" + "/".join(components))
        else:
            parts = tuple(map(pattern_of, components[fixed:]))
            searches.append(Search("/" + "/".join(components[:fixed]), parts))
    appended = tuple(_absolute(path, work_dir) for path in said.appended)
    return RankFiles(tuple(plain), tuple(searches[:MAX_SEARCHES]), appended, tuple(unknown))


def _absolute(path: str, work_dir: str) -> str:
    """A working directory is told without links, so ``../`` before a path leads to the directory above it."""
    if path.startswith(("/", ANY)):
        return path
    path = path.removeprefix("./")
    while path.startswith("../"):
        work_dir, path = work_dir.rpartition("/")[0], path.removeprefix("../")
    return f"{work_dir}/{path}"


def home_of(uid: int) -> str:
    """A user's home directory; "" for a user who is unknown here."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except (KeyError, OverflowError):
        return ""


def with_ranks(files: tuple[OutputFile, ...], start_s: float) -> tuple[OutputFile, ...]:
    """Ranks' files with the numbers that their names tell, where a pattern told none; without those of before."""
    files = tuple(f for f in files if f.kind is not OutputKind.RANK or f.written_s >= start_s - CLOCKS_APART_S)
    untold = [file for file in files if file.kind is OutputKind.RANK and not file.rank and not file.doubt]
    told = dict(zip((file.path for file in untold), ranks_of([file.path for file in untold]), strict=True))
    ranks = {path: rank for path, rank in told.items() if rank.isdecimal() and len(untold) > 1}
    return tuple(replace(file, rank=_plain(file.rank or ranks.get(file.path, ""))) for file in files)


def _plain(rank: str) -> str:
    return str(int(rank)) if rank.isdecimal() else rank


def rivals(path: str, attempt: Attempt, beside: Iterable[tuple[Span, RankFiles | None]]) -> tuple[Span, ...]:
    """Those of the jobs alongside an attempt that ran at the same time and may have written to `path`.

    Of each it is told when it ran and where it says that it writes to; one of which that is not known may write
    anywhere.
    """
    end_s = (math.inf if attempt.end_s is None else attempt.end_s) + LATE_S
    at_the_time = ((span, files) for span, files in beside if span.start_s <= end_s and span.end_s >= attempt.start_s)
    return tuple(span for span, files in at_the_time if files is None or files.may_hold(path))


def _finds(search: Search, path: str) -> bool:
    root = search.root.rstrip("/") + "/"
    if not path.startswith(root):
        return False
    names = path.removeprefix(root).split("/")
    above = len(names) - len(search.parts)
    return 0 <= above <= search.depth and all(
        re.fullmatch(part, name) for part, name in zip(search.parts, names[above:], strict=True)
    )
