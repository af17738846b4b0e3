"""Where comparisons are kept: a folder each, few enough to be looked through, readable again after a crash."""

from __future__ import annotations

import logging
import re
import shutil
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from perdure.durable import make_directory, sync_directory, sync_file, write_whole
from perdure.errors import NotFound, StateError
from perdure.service.whatif.comparison import COMPARISON, Comparison, Stage, Trouble
from perdure.service.whatif.question import ID

log = logging.getLogger("perdure")

RECORD = "comparison.json"
SUMMARY = "summary.json"
RESULT = "result.json"
REPORT = "report.html"
PICTURES = ("changes", "completion", "waits", "use", "rho", "allocation", "gantt", "recorded")
THEMES = ("light", "dark")
ANSWERS = (SUMMARY, RESULT, REPORT, *(f"{name}-{theme}.png" for name in PICTURES for theme in THEMES))
MAX_BYTES = 64 << 20  # of one answer
MAX_KEPT = 200  # of all users

_BROKEN = Trouble(
    where="service", what="it ended before this was done", fix="Ask again; an uploaded trace is to be sent again"
)


class ComparisonStore:
    """All comparisons that are known. Safe to use from many threads; a change is on disk when its call returns."""

    def __init__(self, home: Path, keep: int, now: float) -> None:
        """Read what an earlier run of the service left; what it had not done is told as broken off."""
        self._home = home
        self._keep = keep
        self._lock = threading.Lock()
        self._known: dict[str, Comparison] = {}
        make_directory(home, 0o700)
        for known in sorted(_read(home), key=lambda each: (each.created_s, each.id)):
            self._known[known.id] = known
            if not known.stage.is_over:
                self.put(replace(known, stage=Stage.BROKEN_OFF, ended_s=now, trouble=_BROKEN))

    def put(self, comparison: Comparison) -> None:
        """Write one down, new or changed; the oldest go where there are too many.

        Raises `StateError` where it cannot be written: a new one is then not known, a change holds for this run alone.
        """
        with self._lock:
            folder = self._home / comparison.id
            if comparison.id in self._known:
                self._known[comparison.id] = comparison
            try:
                make_directory(folder, 0o700)
                write_whole(folder / RECORD, COMPARISON.encode(comparison).encode())
            except OSError as err:
                what = f"cannot be written: {err.strerror}"
                raise StateError(str(folder), what, "See that its disk has room") from err
            self._known[comparison.id] = comparison
            self._make_room(comparison.owner)

    def take_answers(self, comparison_id: str, folder: Path) -> None:
        """Move the files of an answer in from where they were made; other files there are left."""
        for name in ANSWERS:
            made = folder / name
            if made.is_file() and not made.is_symlink():
                sync_file(made)
                made.replace(self._home / comparison_id / name)
        sync_directory(self._home / comparison_id)

    def find(self, comparison_id: str) -> Comparison:
        """Raises `NotFound`."""
        with self._lock:
            known = self._known.get(comparison_id)
        if known is None:
            raise NotFound("comparison", "no such one is known", "See those there are on the page /whatif")
        return known

    def all(self) -> tuple[Comparison, ...]:
        """The latest first."""
        with self._lock:
            return tuple(reversed(self._known.values()))

    def answer(self, comparison_id: str, name: str) -> bytes:
        """One file of an answer. Raises `NotFound` where there is none of that name."""
        self.find(comparison_id)
        if name in ANSWERS:
            try:
                with (self._home / comparison_id / name).open("rb") as file:
                    return file.read(MAX_BYTES)
            except OSError:
                pass
        raise NotFound(f"comparison {comparison_id}", f"it has no {name[:40]}", "See its result on its page")

    def remove(self, comparison_id: str) -> None:
        with self._lock:
            self._drop(comparison_id)

    def _make_room(self, owner: str) -> None:
        over = [each for each in self._known.values() if each.stage.is_over]
        mine = [each for each in over if each.owner == owner]
        for each in (*mine[: max(0, len(mine) - self._keep)], *over[: max(0, len(over) - MAX_KEPT)]):
            self._drop(each.id)

    def _drop(self, comparison_id: str) -> None:
        if self._known.pop(comparison_id, None) is not None:
            shutil.rmtree(self._home / comparison_id, ignore_errors=True)


def _read(home: Path) -> Iterable[Comparison]:
    """What can be read; a folder that a crash left without its record is removed."""
    for folder in home.iterdir():
        try:
            known = COMPARISON.decode((folder / RECORD).read_text("utf-8"))
            if known.id == folder.name and re.fullmatch(ID, known.id):
                yield known
                continue
        except (OSError, ValueError, StateError) as err:
            log.warning("%s: not a comparison, removed: %s", folder, err)
        shutil.rmtree(folder, ignore_errors=True)
