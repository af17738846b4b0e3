"""What the questions to the journal mean, answered from rows in lists: the slow, plain reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.service.store.drawn_rows import Rows

Row = dict[str, Any]
FAILURES_OF = {"job.shape": "shape", "job.net": "net", "node.failure": "node_loss", "storage.down": "down",
               "storage.down.all": "down.all", "storage.downtown": "downtown"}  # fmt: skip


class Plain:
    """The rows of one cluster. What comes out is in the order of `seq` unless it says otherwise."""

    def __init__(self, rows: Rows, cluster: str) -> None:
        self.rows = {name: [row for row in several if row["cluster"] == cluster] for name, several in rows.items()}
        self.jobs = {row["job_id"]: row for row in self.rows["jobs"]}

    def is_foreign(self, attempt: Row) -> bool:
        """Whether an attempt is another's, who had the job's id before."""
        job = self.jobs.get(attempt["job_id"])
        if job is None:
            return False
        return attempt["start_s"] < job["story_s"] or attempt["payload"].user not in ("", job["user"])

    def is_of_this_job(self, row: Row, written: str) -> bool:
        job = self.jobs.get(row["job_id"])
        if job is None:
            return True
        runs = [run for run in self.attempts(row["job_id"]) if run["incarnation"] == row["incarnation"]]
        return row[written] >= job["story_known_s"] and not any(map(self.is_foreign, runs))

    def attempts(self, job_id: str) -> list[Row]:
        return [run for run in self.rows["attempts"] if run["job_id"] == job_id]

    def own_attempts(self, job_id: str) -> list[Row]:
        """The latest first."""
        own = [run for run in self.attempts(job_id) if not self.is_foreign(run)]
        return sorted(own, key=lambda run: -run["incarnation"])

    def own(self, table: str, job_id: str) -> list[Row]:
        """Exceptions or actions about the job that has this id now, the latest first."""
        written = {"exceptions": "time_s", "actions": "created_s"}[table]
        return [r for r in self.rows[table][::-1] if r["job_id"] == job_id and self.is_of_this_job(r, written)]

    def failures(self, since_s: float = 0.0) -> list[Row]:
        """Exceptions of attempts, each with its attempt where that is known, the latest first."""
        found = [row for row in self.rows["exceptions"] if row["of_attempt"] and row["time_s"] >= since_s]
        return sorted(found, key=lambda row: -row["time_s"])

    def run_of(self, row: Row) -> Row | None:
        return next((run for run in self.attempts(row["job_id"]) if run["incarnation"] == row["incarnation"]), None)

    def occupying(self) -> list[Row]:
        held = ("running", "suspended")
        runs = (run for run in self.rows["attempts"] if run["state"] in held)
        return [run for run in runs if self.jobs.get(run["job_id"], {}).get("state") in held]

    def of_jobs(self, user: str, partition: str) -> Callable[[Row], bool]:
        """Whether a row is about a job of this user that may run in this partition; "" is any."""

        def fits(row: Row) -> bool:
            job = self.jobs.get(row["job_id"])
            if not user and not partition:
                return True
            return job is not None and user in ("", job["user"]) and may_run_in(job, partition)

        return fits


def may_run_in(job: Row, partition: str) -> bool:
    return not partition or partition in job["partition"].split(",")


def is_within(since_s: float | None, until_s: float | None, instant_s: float) -> bool:
    return (since_s is None or instant_s >= since_s) and (until_s is None or instant_s <= until_s)


def has_kind(kind: str, wanted: Iterable[str]) -> bool:
    """Whether a dotted type is one of these, or below one."""
    return any(kind == one or kind.startswith(f"{one}.") for one in wanted)


def listed(rows: Iterable[Row], column: str = "", *, falling: bool = False) -> list[Row]:
    """The latest first; or by a column, and those that are alike in it the latest first."""
    found = sorted(rows, key=lambda row: -row["seq"])
    return sorted(found, key=lambda row: row[column], reverse=falling) if column else found


def pages(ask: Callable[..., Any]) -> Iterator[Any]:
    """All items of a listing, three at a time."""
    cursor = None
    while True:
        page = ask(cursor=cursor, limit=3)
        assert len(page.items) == 3 or page.next_cursor is None
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return


def tally(rows: Iterable[Row], *columns: str) -> dict[Any, int]:
    """How many rows have each of the values of some columns."""
    found: dict[Any, int] = {}
    for row in rows:
        key = tuple(row[column] for column in columns)
        key = key[0] if len(columns) == 1 else key
        found[key] = found.get(key, 0) + 1
    return found
