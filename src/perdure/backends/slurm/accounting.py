"""What ``sacct`` says: every start of every job, also those that were put back and started again since.

Fields end in a word drawn at random for the call, so no text of a user's can pass for a field or a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from perdure.errors import InputError
from perdure.slurm_words.hostlist import expand
from perdure.slurm_words.states import attempt_state, exit_status
from perdure.slurm_words.tres import gpus

FIELDS = ("JobID", "JobIDRaw", "State", "ExitCode", "Submit", "Start", "End", "UID", "User", "NodeList",
          "AllocTRES", "Reason")  # fmt: skip
LATER_FIELDS = ("FailedNode", "StdOut", "StdErr")  # not in every version: asked for where `--helpformat` names them

SUBMIT_LINE = "SubmitLine"  # long: asked for where it is needed
TAKEN_OFF = 128
"""What sacct takes off an exit code that is as large: of a shell's 139 it says 11:0."""
NOT_TOLD = -1
"""A `uid` that accounting does not know yet: for some seconds slurmdbd says 0 of a job that has just started."""


class AccountingRow(Struct, frozen=True):
    """One start of a job, or its waiting (then `start_s` is None)."""

    job_id: str
    raw_id: int
    state: str
    exit_code: int
    signal: int
    submit_s: int
    start_s: int | None
    end_s: int | None
    uid: int
    user: str
    nodes: tuple[str, ...]
    gpus: int
    reason: str
    failed_nodes: tuple[str, ...] = ()
    stdout: str = ""
    stderr: str = ""
    submit_line: str = ""

    @property
    def lost_its_node_at_once(self) -> bool:
        """Of a job that was put back: whether it never ran.

        Where a node freezes just before the launch, Slurm 22.05 puts the job back and rewrites the row: NODE_FAIL, from
        and to the instant of the requeue, on the node that the job goes to next.
        """
        return self.state == "NODE_FAIL" and self.end_s is not None and self.end_s <= (self.start_s or 0)

    @property
    def has_failed(self) -> bool:
        """Whether it is of an attempt that failed."""
        return attempt_state(self.state.partition(" ")[0], self.exit_code, self.signal, self.reason).is_failure


def arguments(fields: Sequence[str], delimiter: str, *which: str) -> tuple[str, ...]:
    """The call. ``-D``: all starts; ``-X``: no steps; ``-p``: each row ends in a delimiter too."""
    return ("sacct", "-a", "-n", "-p", "-X", "-D", f"--delimiter={delimiter}", "-o", ",".join(fields), *which)


def since(instant_s: float) -> tuple[str, ...]:
    """Whatever was in any state at or after an instant. Without this sacct begins at midnight."""
    return ("-S", datetime.fromtimestamp(max(0, int(instant_s)), UTC).strftime("%Y-%m-%dT%H:%M:%S"))


def ran_since(instant_s: float) -> tuple[str, ...]:
    """Whatever ran at or after an instant: not what only waits, of which there may be very much."""
    return (*since(instant_s), "-E", "now", "-s", "R")


def known_fields(help_format: bytes) -> tuple[str, ...]:
    """The fields to ask this version for, by the answer to ``sacct --helpformat``."""
    named = set(help_format.decode("utf-8", "replace").split())
    return FIELDS + tuple(field for field in LATER_FIELDS if field in named)


def read_rows(text: bytes, fields: Sequence[str], delimiter: str) -> tuple[tuple[AccountingRow, ...], int]:
    """Return the rows, and how many made no sense."""
    values = text.decode("utf-8", "replace").split(delimiter)
    rows: list[AccountingRow] = []
    unreadable = 0
    for cells in _cells(values, len(fields)):
        try:
            rows.append(_row(dict(zip(fields, cells, strict=True))))
        except (InputError, ValueError):
            unreadable += 1
    return tuple(rows), unreadable


def latest_start(rows: Iterable[AccountingRow], job_id: str, restarts: int) -> int:
    """When a job that has been put back `restarts` times began to run last; 0 where it never did."""
    ran = (row for row in rows if row.job_id == job_id and not (restarts and row.lost_its_node_at_once))
    return max((row.start_s or 0 for row in ran), default=0)


def _cells(values: Sequence[str], width: int) -> Iterator[list[str]]:
    """Cut into rows; a row ends in a newline, which therefore is before the next row's first cell."""
    for at in range(0, len(values) - width, width):
        first, *rest = values[at : at + width]
        yield [first.removeprefix("\n"), *rest]


def _row(cell: dict[str, str]) -> AccountingRow:
    exit_code, signal = exit_status(cell["ExitCode"])
    nodes = expand(cell["NodeList"])
    return AccountingRow(
        job_id=cell["JobID"],
        raw_id=int(cell["JobIDRaw"].partition("_")[0].partition("+")[0]),
        state=cell["State"],
        exit_code=exit_code,
        signal=signal,
        submit_s=int(cell["Submit"]),
        start_s=_instant(cell["Start"]) if nodes else None,  # cancelled while it waited: a start without nodes
        end_s=_instant(cell["End"]),
        uid=int(cell["UID"]) or (0 if cell["User"] == "root" else NOT_TOLD),
        user=cell["User"],
        nodes=nodes,
        gpus=gpus(cell["AllocTRES"]) or 0,
        reason="" if cell["Reason"] == "None" else cell["Reason"],
        failed_nodes=expand(cell.get("FailedNode", "")),
        stdout=cell.get("StdOut", ""),
        stderr=cell.get("StdErr", ""),
        submit_line=cell.get(SUBMIT_LINE, ""),
    )


def _instant(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= 12 else None
