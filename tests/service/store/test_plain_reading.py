"""Each question to the journal is answered as by reading all rows one by one, on random rows of two clusters."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from perdure.coordination.playbook import own_playbook
from perdure.errors import NotFound
from perdure.model.jobs import AttemptState, JobState
from perdure.retry.one_node import is_of_place
from perdure.service.store.queries import (
    actions,
    chains,
    events,
    exceptions,
    jobs,
    nodes,
    places,
    summary,
    suspects,
    totals,
)
from perdure.service.store.queries.order import SortOrder, Within
from perdure.service.store.queries.reader import Reader
from perdure.triage.verdict import CauseRole, Label
from tests.copying import replace
from tests.service.store.drawn_rows import HERE, IDS, NODES, TYPES, USERS, drawn, written
from tests.service.store.plain_reading import (
    FAILURES_OF,
    Plain,
    Row,
    has_kind,
    is_within,
    listed,
    may_run_in,
    pages,
    tally,
)

SEEDS = range(3)
QUESTIONS = 40  # of each listing, drawn of all combinations of what it may be asked for
SPANS = [Within(), Within(1500.0), Within(None, 2500.0), Within(1000.0, 3000.0)]
LOW = 3  # of limits that are hundreds


@pytest.fixture(scope="module", params=SEEDS)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[Plain, Reader]]:
    rows = drawn(request.param)
    engine = written(rows)
    yield Plain(rows, HERE), Reader(engine, HERE)
    engine.dispose()


@pytest.fixture
def plain(both: tuple[Plain, Reader]) -> Plain:
    return both[0]


@pytest.fixture
def reader(both: tuple[Plain, Reader]) -> Reader:
    return both[1]


def seqs(rows: list[Row], column: str) -> list[Any]:
    return [row[column] for row in rows]


def drawn_of(*each: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Some of the combinations."""
    return random.Random(len(each)).sample(list(itertools.product(*each)), QUESTIONS)


def order_of(column: str, *, falling: bool) -> SortOrder | None:
    return SortOrder(column, falling) if column else None


BOTH = (False, True)
TEXTS = ("", "7", "train", "%", "_", "A1")
JOB_COLUMNS = {
    "job": "name",
    "state": "state",
    "user": "user",
    "partition": "partition",
    "gpus": "gpus",
    "submitted": "submit_s",
}


def test_jobs_are_found_by_what_they_are_asked_for(plain: Plain, reader: Reader) -> None:
    for user, text, partition, states, span, column, falling in drawn_of(
        ("", *USERS), TEXTS, ("", "a", "A"), ((), ("running", "pending", "failed")), SPANS, ("", *JOB_COLUMNS), BOTH
    ):
        asked: dict[str, Any] = {"user": user, "text": text, "partition": partition, "states": states}
        asked |= {"submitted": span, "order": order_of(column, falling=falling)}
        wanted = [
            row for row in plain.rows["jobs"]
            if user in ("", row["user"]) and may_run_in(row, partition) and (not states or row["state"] in states)
            and is_within(span.since_s, span.until_s, row["submit_s"])
            and (not text or row["job_id"] == text or row["job_id"].startswith(f"{text}_")
                 or text.lower() in row["name"].lower() or row["user"] == text)
        ]  # fmt: skip
        wanted = listed(wanted, JOB_COLUMNS.get(column, ""), falling=falling)
        found = list(pages(lambda asked=asked, **page: jobs.find_jobs(reader, **asked, **page)))
        assert [row.job.job_id for row in found] == seqs(wanted, "job_id")
    for row in found:
        assert (row.job, row.changed_s) == (
            plain.jobs[row.job.job_id]["payload"],
            plain.jobs[row.job.job_id]["changed_s"],
        )


def test_a_job_comes_with_its_latest_failure_alone(plain: Plain, reader: Reader) -> None:
    for row in jobs.find_jobs(reader).items:
        newest = next((each for each in plain.own("exceptions", row.job.job_id) if each["of_attempt"]), None)
        wanted = newest and jobs.LatestFailure(FAILURES_OF[newest["type"]], newest["decision"], newest["state"])
        assert row.failure == wanted


@pytest.mark.parametrize("most", [100, LOW - 1])
def test_of_a_job_all_is_told_and_nothing_of_who_had_its_id(
    plain: Plain, reader: Reader, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MAX_EXCEPTIONS", most)
    for job_id in IDS:
        known = plain.jobs.get(job_id)
        if known is None:
            with pytest.raises(NotFound):
                jobs.job_detail(reader, job_id)
            continue
        found = jobs.job_detail(reader, job_id)
        assert (found.job, found.changed_s) == (known["payload"], known["changed_s"])
        assert [(run.attempt, run.verdict) for run in found.attempts] == [
            (run["payload"], run["verdict"]) for run in plain.own_attempts(job_id)
        ]
        columns = ("payload", "state", "owner", "decision", "wasted_gpu_h", "saved_gpu_h", "decided", "of_attempt")
        assert [
            (e.record, e.state, e.owner, e.decision, e.wasted_gpu_h, e.saved_gpu_h, e.decided, e.of_attempt)
            for e in found.exceptions
        ] == [
            tuple(row[column] for column in columns) for row in plain.own("exceptions", job_id)[:most]
        ]  # fmt: skip
        latest = next(iter(plain.own_attempts(job_id)), None)
        assert jobs.latest_attempt(reader, job_id) == (latest and latest["payload"])


def test_whose_jobs_and_logs_they_are(plain: Plain, reader: Reader) -> None:
    known = plain.jobs
    assert jobs.owners_of(reader, IDS[:5]) == {
        i: jobs.Owner(known[i]["user"], known[i]["story_known_s"]) for i in IDS[:5] if i in known
    }
    assert jobs.names_of(reader, IDS[:5]) == {
        i: jobs.JobName(known[i]["name"], known[i]["user"], known[i]["partition"]) for i in IDS[:5] if i in known
    }
    assert jobs.waiting_among(reader, IDS[:5]) == {
        i for i in IDS[:5] if i in known and known[i]["payload"].state.is_waiting
    }
    for job_id in known:
        assert jobs.owner_of(reader, job_id) == known[job_id]["user"]
        runs = {run["incarnation"]: run["payload"].user for run in plain.attempts(job_id)}
        for incarnation in range(5):
            owners = {known[job_id]["user"], runs.get(incarnation, "")} - {""}
            assert jobs.owners_of_log(reader, job_id, incarnation) == owners
        latest = plain.own_attempts(job_id)[:1]
        assert jobs.owners_of_log(reader, job_id, None) == {
            known[job_id]["user"],
            *(r["payload"].user for r in latest),
        } - {""}


def test_what_runs_and_what_was_judged(plain: Plain, reader: Reader) -> None:
    runs = [run for run in plain.rows["attempts"] if run["job_id"] in IDS[:6]]
    running = {"running", "suspended"}
    own = {
        r["job_id"]: [
            a for a in runs if a["job_id"] == r["job_id"] and a["state"] in running and not plain.is_foreign(a)
        ]
        for r in runs
    }
    found = jobs.running_attempts(reader, IDS[:6])
    assert found.keys() == {job_id for job_id, some in own.items() if some}
    assert all(attempt in [run["payload"] for run in own[job_id]] for job_id, attempt in found.items())
    judged = {}
    for run in runs:
        if run["verdict"] is not None:
            roots = [item.text for item in run["verdict"].evidence if item.role is CauseRole.ROOT]
            where = run["payload"].failed_nodes or run["payload"].nodes
            judged[run["job_id"], run["incarnation"]] = jobs.JudgedLine(run["payload"].user, where, [*roots, ""][0])
    assert jobs.root_lines(reader, IDS[:6]) == judged


EXCEPTION_COLUMNS = {"what": "type", "job": "job_id", "outcome": "state", "raised": "time_s"}


def test_exceptions_are_found_by_what_they_are_asked_for(plain: Plain, reader: Reader) -> None:
    for job_id, types, states, only_open, user, of_user, partition, span, column, falling in drawn_of(
        ("", "", "7", "8"), ((), ("storage.down", "job.net")), ((), ("raised", "handled")), BOTH, (None, "ada"),
        ("", "", "bob"), ("", "", "a"), SPANS, ("", *EXCEPTION_COLUMNS), BOTH,
    ):  # fmt: skip
        fits = plain.of_jobs(of_user, partition)
        wanted = [
            row for row in plain.rows["exceptions"]
            if fits(row) and (not types or has_kind(row["type"], types)) and (not states or row["state"] in states)
            and (row["is_open"] or not only_open) and is_within(span.since_s, span.until_s, row["time_s"])
            and job_id in ("", row["job_id"]) and (not job_id or plain.is_of_this_job(row, "time_s"))
            and (user is None or is_shown(plain, row, user))
        ]  # fmt: skip
        asked: dict[str, Any] = {
            "job_id": job_id, "types": types, "states": states, "only_open": only_open, "user": user,
            "of_user": of_user, "partition": partition, "raised": span, "order": order_of(column, falling=falling),
        }  # fmt: skip
        found = list(pages(lambda asked=asked, **page: exceptions.find_exceptions(reader, **asked, **page)))
        wanted = listed(wanted, EXCEPTION_COLUMNS.get(column, ""), falling=falling)
        assert [record.id for record in found] == seqs(wanted, "id")


def is_shown(plain: Plain, row: Row, user: str) -> bool:
    job = plain.jobs.get(row["job_id"])
    return not row["job_id"] or (job is not None and job["user"] == user and plain.is_of_this_job(row, "time_s"))


def test_exceptions_by_id_and_what_follows_from_them(plain: Plain, reader: Reader) -> None:
    for row in plain.rows["exceptions"]:
        assert exceptions.exception(reader, row["id"]) == row["payload"]
        assert exceptions.is_of_this_job(reader, row["id"]) == plain.is_of_this_job(row, "time_s")
    for number, user in itertools.product(range(4), (None, "ada")):
        below = [
            row for row in plain.rows["exceptions"]
            if row["payload"].cause == f"{HERE}-{number}" and 800.0 <= row["time_s"] <= 3000.0
            and (user is None or is_shown(plain, row, user))
        ]  # fmt: skip
        found = exceptions.children_of(reader, f"{HERE}-{number}", (800.0, 3000.0), user=user, limit=LOW)
        assert [record.id for record in found] == seqs(below, "id")[:LOW]
    edge = [row["time_s"] for row in plain.rows["exceptions"] if row["payload"].cause == f"{HERE}-0"]
    assert len(exceptions.children_of(reader, f"{HERE}-0", (min(edge), max(edge)))) == len(edge)


ACTION_COLUMNS = {"action": "kind", "state": "state", "by": "by", "job": "job_id", "decided": "created_s"}


def test_actions_are_found_and_counted_by_what_they_are_asked_for(plain: Plain, reader: Reader) -> None:
    for job_id, states, kind, user, partition, span, column, falling in drawn_of(
        ("", "7", "8"),
        ((), ("done", "planned")),
        ("", "hold"),
        ("", "ada"),
        ("", "a"),
        SPANS,
        ("", *ACTION_COLUMNS),
        BOTH,
    ):
        fits = plain.of_jobs(user, partition)
        wanted = [
            row for row in plain.rows["actions"]
            if fits(row) and job_id in ("", row["job_id"]) and is_within(span.since_s, span.until_s, row["created_s"])
            and (not job_id or plain.is_of_this_job(row, "created_s"))
        ]  # fmt: skip
        where: dict[str, Any] = {"job_id": job_id, "user": user, "partition": partition, "decided": span}
        assert actions.counts(reader, **where) == tally(wanted, "state")
        wanted = [row for row in wanted if kind in ("", row["kind"]) and (not states or row["state"] in states)]
        asked = {**where, "states": states, "kind": kind, "order": order_of(column, falling=falling)}
        found = list(pages(lambda asked=asked, **page: actions.find_actions(reader, **asked, **page)))
        wanted = listed(wanted, ACTION_COLUMNS.get(column, ""), falling=falling)
        assert [each.key for each in found] == seqs(wanted, "key")


def test_actions_of_nodes_of_exceptions_and_by_their_keys(
    plain: Plain, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, some = plain.rows["actions"], NODES[:2]
    keys = seqs(every, "key")[::3]
    assert [each.key for each in actions.actions_by_key(reader, reversed(keys))] == keys
    on_nodes = [row["key"] for row in listed(every) if row["node"] in some]
    assert [each.key for each in actions.actions_on_nodes(reader, some, limit=LOW)] == on_nodes[:LOW]
    latest = {row["exception_id"]: row["key"] for row in every if row["job_id"] in IDS[:4]}
    assert {of: each.key for of, each in actions.actions_for(reader, IDS[:4]).items()} == latest
    held = [
        r["key"]
        for r in every
        if r["job_id"] in IDS[:4]
        and r["kind"] in ("hold", "release", "requeue")
        and plain.is_of_this_job(r, "created_s")
    ]
    assert [each.key for each in actions.holding(reader, IDS[:4])] == held
    done = [row for row in every if row["state"] == "done" and row["kind"] != "comment"]
    last = {row["node"]: row["key"] for row in done if row["node"] in some}
    last_of_jobs = {row["job_id"]: row["key"] for row in done if not row["node"] and row["job_id"] in IDS[:4]}
    assert actions.latest_done(reader, some, IDS[:4]) == {*last.values(), *last_of_jobs.values()}
    monkeypatch.setattr(actions, "MAX_LOOKED_AT", 10)
    near = [row["key"] for row in listed(every)[:10] if row["node"] in NODES]
    assert [each.key for each in actions.actions_on_nodes(reader, NODES)] == near


def test_nodes_are_found_by_what_they_are_asked_for(plain: Plain, reader: Reader) -> None:
    columns = {"name": "name", "state": "state", "since": "changed_s"}
    used: dict[str, int] = {}
    for run in plain.occupying():
        for name in run["payload"].nodes:
            used[name] = used.get(name, 0) + 8 // len(run["payload"].nodes)
    assert nodes.gpus_in_use(reader) == used
    every = sorted(plain.rows["nodes"], key=lambda row: row["name"])
    for states, partition, column, falling in itertools.product(
        ((), ("up", "down", "drained")), ("", "a", "b"), ("", *columns), BOTH
    ):
        wanted = [
            r
            for r in every
            if (not states or r["state"] in states) and (not partition or partition in r["payload"].partitions)
        ]
        if column:
            wanted = sorted(wanted, key=lambda row: row[columns[column]], reverse=falling)
        order = order_of(column, falling=falling)
        asked: dict[str, Any] = {"states": states, "partition": partition, "order": order}
        found = list(pages_of_two(reader, asked))
        assert [row.node.name for row in found] == seqs(wanted, "name")
        assert [row.gpus_used for row in found] == [used.get(row["name"], 0) for row in wanted]
    out = {row["name"] for row in every if row["state"] in ("draining", "drained", "down")}
    assert nodes.out_of_service(reader, NODES[1:]) == out & set(NODES[1:])
    assert nodes.partitions(reader) == tuple(sorted({each for row in every for each in row["payload"].partitions}))
    assert nodes.all_nodes(reader) == tuple(row["payload"] for row in every)


def pages_of_two(reader: Reader, asked: dict[str, Any]) -> Iterator[nodes.NodeRow]:
    cursor = None
    while True:
        page = nodes.find_nodes(reader, **asked, cursor=cursor, limit=2)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return


@pytest.mark.parametrize("most", [400, LOW])
def test_failures_are_put_down_to_nodes(
    plain: Plain, reader: Reader, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "MAX_FAILURES", most)
    monkeypatch.setattr(nodes, "MAX_ON_ONE", most)
    for since_s in (0.0, plain.failures()[5]["time_s"]):
        known = [(row, run) for row in plain.failures(since_s) if (run := plain.run_of(row)) is not None][:most]
        wanted: dict[str, list[nodes.NodeFailure]] = {}
        for row, run in known:
            site = run["verdict"] is not None and run["verdict"].infrastructure
            told = (row["job_id"], row["incarnation"], row["time_s"], FAILURES_OF[row["type"]], row["decision"], site)
            for name in run["payload"].failed_nodes or run["payload"].nodes:
                wanted.setdefault(name, []).append(nodes.NodeFailure(*told))
        assert nodes.recent_failures(reader, since_s) == {name: tuple(some) for name, some in wanted.items()}
        for name in NODES:
            assert nodes.failures_on(reader, name, since_s) == tuple(wanted.get(name, ()))
    for name in NODES:
        here = [run["payload"] for run in plain.occupying() if name in run["payload"].nodes]
        assert sorted(nodes.running_on(reader, name), key=str) == sorted(here, key=str)


def test_places_that_failed_others_too(plain: Plain, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    last = 2
    monkeypatch.setattr(places, "LAST", last)
    failed = [r for r in plain.rows["attempts"] if r["payload"].state.is_failure and r["verdict"] is not None]
    failed.sort(key=lambda run: -run["end_s"])
    own = [run["payload"] for run in plain.rows["attempts"]]
    for mine in (*own, *(replace(each, nodes=NODES, failed_nodes=()) for each in own)):
        told = []
        for name in mine.failed_nodes or mine.nodes:
            others = [
                r
                for r in failed
                if r["job_id"] != mine.id.job_id and name in (r["payload"].failed_nodes or r["payload"].nodes)
            ]
            site = [run for run in others[:last] if run["verdict"].infrastructure]
            users = len({run["payload"].user for run in site})
            if len(others) > 1:
                told.append(places.NodeFailures(name, len(others[:last]), len(site), users))
        worst = sorted(told, key=lambda place: (-place.infrastructure, place.node))
        assert places.places_of(reader, mine) == tuple(worst[: places.MAX_PLACES])


def test_the_cluster_as_a_whole(plain: Plain, reader: Reader) -> None:
    live = [row for row in plain.rows["jobs"] if not row["payload"].state.is_over]
    assert {state: each.jobs for state, each in summary.load(reader).items()} == tally(live, "state")
    for state, load in summary.load(reader).items():
        assert load.gpus == sum(row["gpus"] for row in live if row["state"] == state)
    assert summary.gpus(reader) == sum(row["payload"].gpus for row in plain.rows["nodes"])
    waiting = [row for row in plain.rows["exceptions"] if row["is_open"] and row["state"] == "escalated"]
    assert summary.waiting_for_a_person(reader) == len(waiting)
    for since_s in (0.0, plain.failures()[9]["time_s"]):
        some = plain.failures(since_s)
        assert summary.first_failure_s(reader, since_s) == some[-1]["time_s"]
        kinds = {FAILURES_OF[row["type"]]: [r for r in some if r["type"] == row["type"]] for row in some}
        assert summary.causes(reader, since_s) == tuple(
            sorted((cause(*each) for each in kinds.items()), key=lambda c: (-c.failures, c.category))
        )
        until_s, long_s = some[0]["time_s"], 250.0
        spells = summary.spells(reader, since_s, until_s, long_s)
        assert len(spells) == (until_s - since_s) // long_s + 1
        for at, spell in enumerate(spells):
            inside = [row for row in some if (row["time_s"] - since_s) // long_s == at]
            wanted = summary.Spell(
                since_s + at * long_s, total(inside, "wasted_gpu_h"), total(inside, "saved_gpu_h"), len(inside)
            )
            assert spell == wanted


def total(rows: list[Row], column: str) -> float:
    return float(sum(row[column] for row in rows))


def cause(category: str, rows: list[Row]) -> summary.CauseCount:
    recovered, limited = (sum(row["state"] == "recovered" for row in rows), sum(row["limited"] for row in rows))
    wasted, saved, lost = (total(rows, f"{what}_gpu_h") for what in ("wasted", "saved", "limit"))
    return summary.CauseCount(category, len(rows), recovered, wasted, saved, limited, lost)


def test_the_latest_decisions(plain: Plain, reader: Reader) -> None:
    decided = [row for row in listed(plain.rows["exceptions"]) if row["decision"]]
    for row, found in zip(decided[:9], summary.latest_decisions(reader, 9), strict=True):
        job, run = plain.jobs.get(row["job_id"], {}), plain.run_of(row)
        assert found.exception.record == row["payload"]
        assert (found.job_name, found.user, found.job_state) == tuple(job.get(n, "") for n in ("name", "user", "state"))
        assert found.verdict == (run["verdict"] if run else None)


def test_totals(plain: Plain, reader: Reader) -> None:
    found, failed = totals.totals(reader, own_playbook()), plain.failures()
    named = [{**row, "category": FAILURES_OF[row["type"]]} for row in failed]
    assert found.failures == tally(named, "category")
    assert found.decisions == tally([row for row in named if row["decision"]], "decision", "category")
    assert found.actions == tally(plain.rows["actions"], "kind", "state")
    assert found.limited == sum(row["limited"] for row in failed)
    fates = {"wasted": "wasted_gpu_h", "saved": "saved_gpu_h", "lost_to_limits": "limit_gpu_h"}
    assert found.gpu_h == {fate: total(failed, column) for fate, column in fates.items()}
    assert sum(found.open_exceptions.values()) == sum(row["is_open"] for row in plain.rows["exceptions"])


def test_events_come_in_their_order(plain: Plain, reader: Reader) -> None:
    every = seqs(plain.rows["events"], "seq")
    assert events.newest(reader) == every[-1]
    for after in (0, every[4], every[-1]):
        page, rest = events.events_after(reader, after, LOW), [seq for seq in every if seq > after]
        assert [row.seq for row in page.items] == rest[:LOW]
        assert page.next_cursor == str([after, *rest[:LOW]][-1])


@pytest.mark.parametrize("most", [200, 1])
def test_chains_are_their_users_and_others_leave_them_room(
    plain: Plain, reader: Reader, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "MAX_LINKS", most)
    known: dict[tuple[str, str], list[Row]] = {}
    for row in listed(plain.rows["jobs"]):
        if row["chain"]:
            known.setdefault((row["chain"], row["user"]), []).append(row)
    for user in ("", *USERS):
        wanted = [whose for whose in known if user in ("", whose[1])]
        found = list(pages(lambda user=user, **page: chains.find_chains(reader, user=user, **page)))
        assert [(chain.chain, chain.user) for chain in found] == wanted
        for chain in found:
            links = known[chain.chain, chain.user][:most]
            numbers = sorted({row["payload"].link.number for row in links})
            assert [link.number for link in chain.links] == numbers
            assert chain == chains.chain_of(reader, chain.user, chain.chain)
            for link in chain.links:
                tries = [row for row in links if row["payload"].link.number == link.number]
                ran = [row for row in tries if plain.own_attempts(row["job_id"])] or tries
                assert link.job == max(ran, key=lambda row: row["submit_s"])["payload"]
                runs = [run["payload"] for run in plain.own_attempts(link.job.job_id)]
                assert link.span.start_s == min((run.start_s for run in runs), default=0.0)
                ends = [run.end_s for run in runs]
                is_over = link.job.state.is_over and all(ends)
                assert link.span.end_s == (max(ends, default=0.0) if is_over else 0.0)


def test_what_attempts_show_of_their_places(plain: Plain, reader: Reader) -> None:
    nothing = (
        AttemptState.PREEMPTED,
        AttemptState.CANCELLED,
        AttemptState.REQUEUED,
        AttemptState.DEADLINE,
        AttemptState.LOST,
    )
    wanted = []
    since_s = sorted(run["end_s"] for run in plain.rows["attempts"] if run["end_s"])[3]
    for run in sorted(plain.rows["attempts"], key=lambda run: run["end_s"] or 0.0):
        job, attempt, verdict = plain.jobs.get(run["job_id"]), run["payload"], run["verdict"]
        passed = attempt.state is AttemptState.COMPLETED
        if job is None or attempt.end_s is None or attempt.end_s <= since_s or attempt.state in nothing:
            continue
        if not passed and verdict is None and not attempt.failed_nodes:
            continue
        own_fault = (
            verdict is not None and verdict.label is Label.DETERMINISTIC and not attempt.failed_nodes and not passed
        )
        lacked = verdict is not None and is_of_place(verdict)
        wanted.append(
            (
                str(attempt.id),
                attempt.end_s,
                job["user"],
                job["name"],
                attempt.nodes,
                not passed,
                own_fault,
                lacked,
                attempt.failed_nodes,
            )
        )
    assert [
        (of, r.end_s, r.user, r.job, r.nodes, r.failed, r.deterministic, r.lacked, r.down)
        for of, r in suspects.ended_since(reader, since_s)
    ] == wanted


def test_jobs_in_each_state_are_drawn(plain: Plain) -> None:
    """Else little of this file says anything."""
    assert len({row["state"] for row in plain.rows["jobs"]}) >= len(JobState) // 2
    assert any(map(plain.is_foreign, plain.rows["attempts"]))
    assert {row["type"] for row in plain.rows["exceptions"]} == set(TYPES)
