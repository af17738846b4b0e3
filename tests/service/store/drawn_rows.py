"""Random rows of two clusters that share a database, and use the same names of users, jobs and nodes.

Few values make many rows alike, so that each condition of a question is decided both ways. Rows of both come in turns.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine, create_engine, insert, null
from sqlalchemy.pool import StaticPool

from perdure.coordination.record import ExceptionRecord, Scope, Subject
from perdure.model.actions import Action, Cancel, Comment, Drain, Hold, Release, Requeue, Undrain
from perdure.model.identity import AttemptId
from perdure.model.job_comment import ChainLink
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.retry.decide import Decision, DecisionKind
from perdure.service.store import codec
from perdure.service.store.packed import pack
from perdure.service.store.schema import metadata
from perdure.triage.verdict import CauseRole, Evidence, Label, Verdict

HERE, THERE = "atlas", "zz"
IDS = ("7", "7_1", "7_2", "70", "8", "9", "10", "A1")
USERS = ("ada", "bob", "7")
PARTITIONS = ("a", "a,b", "b,ab", "A", "")
NODES = ("n1", "n2", "n3", "n10", "N1")
NAMES = ("train", "Train 7", "50%", "a_b")
TYPES = ("job.shape", "job.net", "node.failure", "storage.down", "storage.down.all", "storage.downtown")
STATES = ("raised", "handled", "escalated", "recovered", "clearing")
CHAINS = ("", "c1", "c2")

Rows = dict[str, list[dict[str, Any]]]


def drawn(seed: int) -> Rows:
    """Rows by table, each with its `seq` and with the values that its JSON columns hold."""
    rng = random.Random(seed)
    instants = iter(rng.sample(range(10, 4000), 3000))  # no two alike: where rows are sorted by time alone
    found: Rows = {"jobs": [], "attempts": [], "nodes": [], "exceptions": [], "actions": [], "events": []}
    for job_id in rng.sample(IDS, len(IDS)):
        for cluster in (HERE, THERE):
            found["jobs"].extend(_job(rng, cluster, job_id, next(instants)) if rng.random() < 0.9 else ())
            found["attempts"].extend(_attempts(rng, cluster, job_id, instants))
    found["nodes"] = [_node(rng, cluster, name) for name in NODES for cluster in (HERE, THERE)]
    for number in range(40):
        for cluster in (HERE, THERE):
            found["exceptions"].append(_exception(rng, cluster, number, next(instants)))
            found["actions"].append(_action(rng, cluster, number, rng.randrange(0, 4000, 100)))
            found["events"].append(_event(rng, cluster, number))
    found |= {"readings": [], "corrections": [], "terms": []}
    for cluster, run in ((run["cluster"], run) for run in found["attempts"]):
        found["readings"].extend([_reading(rng, cluster, run, next(instants))] if rng.random() < 0.8 else ())
        found["corrections"].extend([_correction(rng, cluster, run, next(instants))] if rng.random() < 0.4 else ())
    found["terms"] = [_term(rng, cluster, next(instants)) for cluster in (HERE, THERE) * 4]
    for table in ("jobs", "attempts", "exceptions", "actions", "events", "readings", "corrections", "terms"):
        for seq, row in enumerate(found[table], 1):
            row["seq"] = seq
    return found


def written(rows: Rows) -> Engine:
    """A database in memory that holds them."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    metadata.create_all(engine)
    with engine.begin() as db:
        for name, several in rows.items():
            given = [{column: _value(value, column) for column, value in row.items()} for row in several]
            db.execute(insert(metadata.tables[name]), given)
    return engine


def _value(value: Any, column: str) -> Any:
    if value is None:
        return null() if column in ("verdict", "decided") else None  # None would be JSON's
    return value if isinstance(value, str | float | int | dict | list | bytes) else json.loads(codec.encode(value))


def _job(rng: random.Random, cluster: str, job_id: str, submit_s: int) -> Iterator[dict[str, Any]]:
    chain, story = rng.choice(CHAINS), rng.choice((0.0, 0.0, 1500.0))
    job = Job(
        cluster, job_id, rng.choice(NAMES), rng.choice(USERS), rng.choice(list(JobState)), float(submit_s),
        rng.choice(PARTITIONS), rng.choice((0, 4, 8)), rng.choice((1, 2)),
        link=ChainLink(chain, rng.randrange(1, 4)) if chain else None,
    )  # fmt: skip
    yield {
        "cluster": cluster, "job_id": job_id, "name": job.name, "user": job.user, "partition": job.partition,
        "state": job.state.value, "gpus": job.gpus, "node_count": job.node_count, "submit_s": job.submit_s,
        "changed_s": float(submit_s + 1), "story_s": story, "story_known_s": story, "chain": chain, "payload": job,
    }  # fmt: skip


def _attempts(rng: random.Random, cluster: str, job_id: str, instants: Iterator[int]) -> Iterator[dict[str, Any]]:
    for incarnation in range(1, rng.randrange(1, 5)):
        state = rng.choice((*AttemptState, AttemptState.RUNNING, AttemptState.FAILED, AttemptState.FAILED))
        start_s = float(next(instants))
        nodes = tuple(rng.sample(NODES, rng.randrange(1, 3)))
        attempt = Attempt(
            AttemptId(cluster, job_id, incarnation), state, nodes, start_s,
            start_s + next(instants) if state.is_over else None, gpus=8, user=rng.choice((*USERS, "")),
            failed_nodes=nodes[:1] if rng.random() < 0.5 else (),
        )  # fmt: skip
        yield {
            "cluster": cluster, "job_id": job_id, "incarnation": incarnation, "state": state.value,
            "start_s": start_s, "end_s": attempt.end_s, "gpus": 8, "payload": attempt,
            "verdict": _verdict(rng) if rng.random() < 0.7 else None,
        }  # fmt: skip


def _verdict(rng: random.Random) -> Verdict:
    lines = [
        Evidence(number, f"line {number}", rng.choice(list(CauseRole)), "rule") for number in range(rng.randrange(4))
    ]
    return Verdict(
        rng.choice(list(Label)), 0.5, rng.choice(("shape", "net", "import")), "it failed", tuple(lines),
        infrastructure=rng.random() < 0.5,
    )  # fmt: skip


def _node(rng: random.Random, cluster: str, name: str) -> dict[str, Any]:
    node = Node(
        name,
        rng.choice(list(NodeState)),
        gpus=rng.choice((0, 4, 8)),
        partitions=rng.choice((("a",), ("a", "b"), ("A",), ())),
    )
    return {
        "cluster": cluster,
        "name": name,
        "state": node.state.value,
        "changed_s": float(rng.randrange(3)),
        "payload": node,
    }


def _exception(rng: random.Random, cluster: str, number: int, time_s: int) -> dict[str, Any]:
    job_id, kind, incarnation = rng.choice((*IDS, "")), rng.choice(TYPES), rng.randrange(4)
    decision = rng.choice(("", "retry", "probe", "stop"))
    record = ExceptionRecord(
        f"{cluster}-{number}", kind, 2, Scope.LOCAL, Subject(cluster, job_id), float(time_s), incarnation=incarnation,
        cause=f"{cluster}-{rng.randrange(4)}",
    )  # fmt: skip
    return {
        "id": record.id, "cluster": cluster, "job_id": job_id, "incarnation": incarnation, "time_s": record.time_s,
        "type": kind, "state": rng.choice(STATES), "owner": rng.choice(("", "cluster")), "decision": decision,
        "reason": "for a reason" if decision else "", "wasted_gpu_h": float(rng.randrange(1, 9)),
        "saved_gpu_h": float(rng.randrange(1, 9)), "limit_gpu_h": float(rng.randrange(1, 9)),
        "limited": rng.random() < 0.3, "payload": record,
        "decided": Decision(DecisionKind(decision), "for a reason") if decision else None,
        "of_attempt": rng.random() < 0.7, "is_open": rng.random() < 0.4, "said": 0,
    }  # fmt: skip


def _action(rng: random.Random, cluster: str, number: int, created_s: int) -> dict[str, Any]:
    kind = rng.choice(("requeue", "hold", "release", "cancel", "drain", "undrain", "comment"))
    on_node = kind in ("drain", "undrain")
    job_id, incarnation = "" if on_node else rng.choice(IDS), 0 if on_node else rng.randrange(4)
    node = rng.choice(NODES) if on_node else ""
    return {
        "key": f"{kind}:{cluster}-{number}", "cluster": cluster, "kind": kind, "job_id": job_id,
        "incarnation": incarnation, "node": node, "exception_id": f"{cluster}-{rng.randrange(8)}",
        "state": rng.choice(("planned", "started", "done", "refused")), "by": rng.choice(("perdure", "ada")),
        "reason": "for a reason", "detail": "", "created_s": float(created_s), "expires_s": created_s + 9.0,
        "started_s": None, "ended_s": None, "payload": _asked(kind, AttemptId(cluster, job_id, incarnation), node),
    }  # fmt: skip


def _asked(kind: str, attempt: AttemptId, node: str) -> Action:
    asked: dict[str, Action] = {
        "drain": Drain(node, "ill", "1"), "undrain": Undrain(node, "1"),
        "requeue": Requeue(attempt), "hold": Hold(attempt, "1"), "release": Release(attempt, "1"),
        "cancel": Cancel(attempt), "comment": Comment(attempt, "why"),
    }  # fmt: skip
    return asked[kind]


def _reading(rng: random.Random, cluster: str, run: dict[str, Any], time_s: int) -> dict[str, Any]:
    return {
        "cluster": cluster, "job_id": run["job_id"], "incarnation": run["incarnation"], "time_s": float(time_s),
        "user": rng.choice(USERS), "fingerprint": rng.choice(("f", "g")), "category": "net", "excerpt": "",
        "causes": [], "message": f"torn at {time_s}", "packed": None,
    }  # fmt: skip


def _correction(rng: random.Random, cluster: str, run: dict[str, Any], time_s: int) -> dict[str, Any]:
    return {
        "cluster": cluster, "job_id": run["job_id"], "incarnation": run["incarnation"], "time_s": float(time_s),
        "user": rng.choice(USERS), "fingerprint": "f", "transient": rng.random() < 0.5, "by": rng.choice(USERS),
        "for_all": rng.random() < 0.5, "confirmed_by": rng.choice(("", "root")),
    }  # fmt: skip


def _term(rng: random.Random, cluster: str, time_s: int) -> dict[str, Any]:
    model = b"weights" if rng.random() < 0.6 else None
    return {
        "cluster": cluster, "time_s": float(time_s), "adopted": model is not None, "lessons": "",
        "payload": {"at": time_s}, "model": model,
    }  # fmt: skip


def _event(rng: random.Random, cluster: str, number: int) -> dict[str, Any]:
    kind = rng.choice(("job_changed", "attempt_ended"))
    return {
        "key": f"{cluster}-{number}",
        "time_s": float(number),
        "cluster": cluster,
        "kind": kind,
        "job_id": rng.choice(IDS),
        "payload": pack(json.dumps({"number": number})),
    }
