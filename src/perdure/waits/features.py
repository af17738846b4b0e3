"""The features of a look, by the names that every source of looks fills; each from what is known at the look alone.

Of the job: what it asks for, its priority, its wait so far. Of the queue: the work ahead of it, as the source counted
it, or counted here among the jobs that were looked at in the same instant. Of the past: what became of the looks
before, as far as it showed by the instant of this one: starts that came later count as waits that go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from perdure.model.queue_looks import FAIR, SCOPES, STATE, QueueLooks
from perdure.waits.ahead import WorkAhead, sum_above, work_ahead
from perdure.waits.grouping import codes, grouped
from perdure.waits.table import WaitTable

Column = NDArray[np.float64]
DAY_S = 86_400.0
RECENT_S = DAY_S  # starts since then are recent
KEPT_S = 7 * DAY_S  # looks since then are held against what came of them
KINDS = ("all", "partition", "account", "both", "size", "request")  # which jobs count as like this one

REQUEST = ("nodes", "cpus", "gpus", "mem_mib", "limit_s", "priority", "partition")
DERIVED = ("waited_s", "hour", "weekday", "mem_per_cpu", "cpus_per_node", "cpu_h_asked")
RATIOS = tuple(f"{measure}_pending_over_running{scope}" for measure in ("cpus", "cpu_h") for scope in SCOPES)
PEERS = ("peers", "peers_partition", "peers_account", "peers_request", "rank", "rank_request")
OUTCOMES = (
    "wait_recent", "wait_week", "started_recent", "cpus_started_recent", "still_waiting", "share_started",
)  # fmt: skip
DRAIN = ("drain_all", "drain_partition")
HISTORY = tuple(f"{outcome}_{kind}" for kind in KINDS for outcome in OUTCOMES) + DRAIN
NAMES = (*REQUEST, *DERIVED, *STATE, *RATIOS, *FAIR, *PEERS, *HISTORY)


def wait_table(looks: QueueLooks) -> WaitTable:
    """The looks with all features, in the order of `NAMES`."""
    found: dict[str, Column] = {**_request(looks), **_state(looks)}
    found |= _ratios(found) | _peers(looks) | _history(looks, found)
    features = np.column_stack([found[name] for name in NAMES]) if len(looks) else np.zeros((0, len(NAMES)))
    with np.errstate(over="ignore"):
        narrow = features.astype(np.float32)
    narrow[~np.isfinite(narrow)] = np.nan
    return WaitTable(
        looks.job, looks.poll_s, looks.submit_s, looks.start_s, looks.seen_until_s, looks.partition, looks.account,
        narrow, NAMES,
    )  # fmt: skip


def _request(looks: QueueLooks) -> dict[str, Column]:
    columns: dict[str, Column] = {name: getattr(looks, name).astype(np.float64) for name in REQUEST}
    columns["waited_s"] = looks.poll_s - looks.submit_s
    columns["hour"] = looks.poll_s % DAY_S // 3600
    columns["weekday"] = (looks.poll_s // DAY_S + looks.day_zero.weekday()) % 7
    columns["mem_per_cpu"] = looks.mem_mib / np.maximum(looks.cpus, 1)
    columns["cpus_per_node"] = looks.cpus / np.maximum(looks.nodes, 1)
    columns["cpu_h_asked"] = looks.cpus * looks.limit_s / 3600
    return columns


# ---------------------------------------------------------------- the queue


def _state(looks: QueueLooks) -> dict[str, Column]:
    """What the source counted; the pending jobs ahead are counted here where it did not."""
    unknown = np.full(len(looks), np.nan)
    own = WorkAhead.of(looks)
    counted = {} if "pending_jobs" in looks.state else work_ahead(own, own, "pending")
    return {name: looks.state.get(name, counted.get(name, unknown)) for name in (*STATE, *FAIR)}


def _ratios(known: Mapping[str, Column]) -> dict[str, Column]:
    """Work ahead over work running, as the difference of logarithms."""
    return {
        f"{measure}_pending_over_running{scope}": _log(known[f"pending_{measure}{scope}"])
        - _log(known[f"running_{measure}{scope}"])
        for measure in ("cpus", "cpu_h")
        for scope in SCOPES
    }


def _log(values: Column) -> Column:
    logs: Column = np.log10(1 + np.maximum(values, 0))
    return logs


def _peers(looks: QueueLooks) -> dict[str, Column]:
    """How many jobs were looked at in the same instant, like this one in some way, and the place among them."""
    at_once, alike = codes(looks.poll_s), codes(looks.poll_s, _request_codes(looks))
    priority = np.nan_to_num(looks.priority)
    count = {
        "peers": at_once,
        "peers_partition": codes(looks.poll_s, looks.partition),
        "peers_account": codes(looks.poll_s, looks.account),
        "peers_request": alike,
    }
    found = {name: grouped(group).count()[group] for name, group in count.items()}
    ones = np.ones(len(looks))
    found["rank"] = sum_above(at_once, priority, ones) / np.maximum(found["peers"], 1)
    found["rank_request"] = sum_above(alike, priority, ones) / np.maximum(found["peers_request"], 1)
    return found


def _request_codes(looks: QueueLooks) -> NDArray[np.int64]:
    """The same number for jobs of one account that ask for the same."""
    return codes(
        looks.account, looks.partition, looks.cpus, looks.mem_mib, looks.limit_s, looks.nodes, looks.gpus
    )  # fmt: skip


# ---------------------------------------------------------------- the past


def _history(looks: QueueLooks, known: Mapping[str, Column]) -> dict[str, Column]:
    found = {name: np.full(len(looks), np.nan) for name in HISTORY}
    kinds = _kinds(looks)
    for rows, past, now in _instants(looks):
        outcome = _Outcome(looks, past, now)
        for kind, code in kinds.items():
            for name, values in outcome.of(code[past], code[rows]):
                found[f"{name}_{kind}"][rows] = values
    for kind, scope in (("all", ""), ("partition", "_partition")):
        found[f"drain_{kind}"] = _log(known[f"pending_cpus{scope}"]) - found[f"cpus_started_recent_{kind}"]
    return found


def _kinds(looks: QueueLooks) -> dict[str, NDArray[np.int64]]:
    cpus, minutes = np.maximum(np.nan_to_num(looks.cpus), 1), np.maximum(np.nan_to_num(looks.limit_s), 60) / 60
    return {
        "all": np.zeros(len(looks), np.int64),
        "partition": codes(looks.partition),
        "account": codes(looks.account),
        "both": codes(looks.partition, looks.account),
        "size": codes(np.floor(np.log2(cpus)), np.floor(np.log2(minutes))),
        "request": _request_codes(looks),
    }


def _instants(looks: QueueLooks) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], float]]:
    """For each instant of a look its rows, and the rows that were looked at within `KEPT_S` before it."""
    order = np.argsort(looks.poll_s, kind="stable")
    polls = looks.poll_s[order]
    for now in np.unique(polls):
        begin, end = np.searchsorted(polls, now), np.searchsorted(polls, now, "right")
        yield order[begin:end], order[np.searchsorted(polls, now - KEPT_S) : begin], float(now)


class _Outcome:
    """What had become, by one instant, of the looks before it."""

    def __init__(self, looks: QueueLooks, past: NDArray[np.intp], now: float) -> None:
        start_s, poll_s = looks.start_s[past], looks.poll_s[past]
        with np.errstate(invalid="ignore"):
            self.started = start_s <= now
            self.recent = self.started & (start_s > now - RECENT_S)
        self.last = poll_s == poll_s.max(initial=-np.inf)
        self.wait = np.log10(np.maximum(np.where(self.started, start_s - poll_s, 1.0), 1.0))
        self.cpus = np.nan_to_num(looks.cpus[past])

    def of(self, past: NDArray[np.int64], asked: NDArray[np.int64]) -> Iterator[tuple[str, Column]]:
        """`OUTCOMES` of the jobs with the same key; NaN where there were none."""
        recent, week = grouped(past[self.recent]), grouped(past[self.started])
        yield "wait_recent", recent.look_up(asked, recent.median(self.wait[self.recent]))
        yield "wait_week", week.look_up(asked, week.median(self.wait[self.started]))
        yield "started_recent", _log(recent.look_up(asked, recent.count(), 0.0))
        yield "cpus_started_recent", _log(recent.look_up(asked, recent.total(self.cpus[self.recent]), 0.0))
        still = grouped(past[~self.started])
        yield "still_waiting", _log(still.look_up(asked, still.count(), 0.0))
        last = grouped(past[self.last])
        yield "share_started", last.look_up(asked, last.mean(self.started[self.last].astype(np.float64)))
