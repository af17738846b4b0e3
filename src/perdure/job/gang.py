"""What the launchers of one step tell each other of a hang and of a rank that failed: small files next to their tracks.

Whoever raises an alarm first leads: the others look at their own ranks then, and write down what they see. The leader
judges, and where the program is to end says so to all. Files of other users, and what is older than this launcher,
count for nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.errors import InputError
from perdure.job import exit_report
from perdure.job.fields import Fields
from perdure.job.files import GANG, MAX_BYTES, JobFiles, read_json, write_json
from perdure.job.identity import Task

if TYPE_CHECKING:
    from perdure.hangs.flight_recorder import Dump
    from perdure.hangs.rank_state import RankState  # loaded where something hangs or has failed: few programs do

SCHEMA = "perdure.gang/1"
MAX_TASKS, MAX_SIGHTS = 4096, 64
MAX_DUMPS_BYTES = 4 << 20  # of one launcher
_SIZES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PERDURE_WORLD_SIZE")


@dataclass(frozen=True, slots=True)
class Alarm:
    """That somebody holds the program to hang; `ends` once it is to end."""

    rank: int | None
    is_own: bool
    ends: bool


class Gang:
    """The launchers of one step, each around one task, as one of them sees them."""

    def __init__(self, files: JobFiles, task: Task, environment: Mapping[str, str]) -> None:
        self._step = environment.get("SLURM_STEP_ID", "")
        self.size = _size(environment) if task.rank is not None else 1
        self.directory = files.directory.parent / f"{GANG}{self._step if self._step.isdecimal() else 'job'}"
        self._task, self._own, self._since_s = task, files.directory.name, time.time()

    def call(self) -> bool:
        """Raise an alarm; False where another launcher has."""
        if self.size > 1:
            if (found := self.alarm()) is not None:
                return found.is_own
            self._write("alarm", ends=False)
        return True  # of two at once both judge, and alike

    def alarm(self) -> Alarm | None:
        """The alarm that is raised; None where none is."""
        if self.size > 1 and (fields := self._read("alarm")) is not None:
            return Alarm(fields.maybe_whole("rank"), fields.text("by") == self._own, fields.yes("ends"))
        return None

    def end(self) -> bool:
        """Say to all that the program is to end; False where another launcher has, that judged at the same time."""
        if self.size < 2:
            return True
        self._write("alarm", ends=True)
        return self._is_first("end")

    def call_off(self) -> None:
        """Take this launcher's own alarm back."""
        found = self.alarm()
        if found is not None and found.is_own and not found.ends:
            with suppress(OSError):
                self._file("alarm").unlink(missing_ok=True)

    def tell(self, sights: list[RankState], dumps: Sequence[Dump] = ()) -> None:
        """Say what this launcher sees of its ranks, and what their flight recorders tell."""
        if self.size > 1:
            if dumps:
                self._write(f"dumps-{self._own}", dumps=_plain(dumps))
            self._write(f"sights-{self._own}", sights=[asdict(sight) for sight in sights[:MAX_SIGHTS]])

    def told(self, since_s: float) -> list[list[RankState]]:
        """What each of the others has seen since then, by this host's clock."""
        return [list(sights_of(fields)) for fields in self._others(since_s)] if self.size > 1 else []

    def dumps(self, since_s: float) -> list[Dump]:
        """What the flight recorders of the others' ranks have told since then."""
        if self.size < 2:
            return []
        import msgspec

        from perdure.hangs.flight_recorder import Dump

        found: list[Dump] = []
        for fields in self._others(since_s, "dumps-", MAX_DUMPS_BYTES):
            with suppress(msgspec.ValidationError):
                found += msgspec.convert(fields.data.get("dumps"), list[Dump])
        return found

    def fail(self, exit_code: int, signal: int) -> None:
        """Say that this launcher's program has failed, where no other has."""
        if self.size > 1 and self.failed() is None:
            self._write("failed", node=self._task.node, exit_code=exit_code, signal=signal)

    def failed(self) -> RankState | None:
        """The rank that failed first, None where none has; `silent_s` is since then."""
        if self.size > 1 and (fields := self._read("failed")) is not None:
            from perdure.hangs.rank_state import Life, RankState

            with suppress(InputError):
                return RankState(
                    fields.maybe_whole("rank"),
                    fields.text("node"),
                    Life.DEAD,
                    silent_s=max(0.0, time.time() - fields.number("time_s")),
                    exit_code=fields.whole("exit_code"),
                    signal=fields.whole("signal", 0),
                )
        return None

    def ended(self) -> list[RankState]:
        """The other ranks of this step whose programs have ended with exit code 0 since this launcher began."""
        from perdure.hangs.rank_state import Life, RankState

        found = []
        for report in self._exit_reports() if self.size > 1 else ():
            is_peer = report.step_id == self._step and report.rank != self._task.rank
            if is_peer and report.is_final and not report.exit_code and report.ended_s >= self._since_s:
                found.append(RankState(report.rank, report.node, Life.ENDED))
        return found

    def _exit_reports(self) -> Iterator[exit_report.ExitReport]:
        with suppress(OSError):
            for name in sorted(os.listdir(self.directory.parent))[: 2 * MAX_TASKS]:
                if not name.startswith(GANG) and name != self._own:
                    with suppress(OSError, InputError):
                        yield exit_report.read(JobFiles(self.directory.parent / name).exit_report)

    def takes_word(self) -> bool:
        """Whether this launcher is the one that reports the failed rank: the first that asks."""
        with suppress(OSError):
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(self._file("told"), flags, 0o600))
            return True
        return False

    def _is_first(self, word: str) -> bool:
        """Whether this launcher is the first with a word since it began; where that is not known, it is."""
        own = f"{word}-{self._own}"
        self._write(own)
        for _ in range(2):  # what an earlier command of the same script left gives way
            try:
                os.link(self._file(own), self._file(word))
            except FileExistsError:
                if (said := self._read(word)) is not None:
                    return said.text("by") == self._own
                with suppress(OSError):
                    self._file(word).unlink(missing_ok=True)
            except OSError:
                break
            else:
                break
        return True

    def _others(self, since_s: float, kind: str = "sights-", limit: int = MAX_BYTES) -> Iterator[Fields]:
        with suppress(OSError):
            names = sorted(os.listdir(self.directory))[: 3 * MAX_TASKS]
            for name in names:
                word = name.removesuffix(".json")
                fields = self._read(word, limit) if word.startswith(kind) and word != f"{kind}{self._own}" else None
                if fields is not None and fields.number("time_s", 0.0) >= since_s:
                    yield fields

    def _file(self, word: str) -> Path:
        return self.directory / f"{word}.json"

    def _read(self, word: str, limit: int = MAX_BYTES) -> Fields | None:
        """What was written since this launcher began; an earlier command of the same script is not of its gang."""
        with suppress(OSError, InputError):
            fields = Fields(word, read_json(self._file(word), SCHEMA, (os.geteuid(),), limit))
            return fields if fields.number("time_s") >= self._since_s - SKEW_S else None
        return None

    def _write(self, word: str, **said: Any) -> None:
        told = {"schema": SCHEMA, "by": self._own, "rank": self._task.rank, "time_s": time.time(), **said}
        with suppress(OSError):
            self.directory.mkdir(exist_ok=True)
            write_json(self._file(word), told)


def _plain(dumps: Sequence[Dump]) -> Any:
    from msgspec import to_builtins

    return to_builtins(dumps)


SKEW_S = 2.0  # of clocks within a job


def _size(environment: Mapping[str, str]) -> int:
    texts = (environment.get(name, "") for name in _SIZES)
    return next((int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 8), 1)


def sights_of(fields: Fields) -> Iterator[RankState]:
    """The sights in what a launcher has written; invalid ones are skipped."""
    from perdure.hangs.rank_state import MAX_WHERE, Life, RankState

    found = fields.data.get("sights")
    for each in found[:MAX_SIGHTS] if isinstance(found, list) else ():
        with suppress(InputError, ValueError):
            one = Fields(fields.source, each if isinstance(each, dict) else {})
            yield RankState(
                rank=one.maybe_whole("rank"),
                node=one.text("node"),
                life=Life(one.text("life")),
                where=one.text("where")[:MAX_WHERE],
                pid=one.whole("pid", 0),
                step=one.maybe_whole("step"),
                silent_s=one.maybe_number("silent_s"),
                collective=one.text("collective"),
                stack=one.texts("stack"),
            )
