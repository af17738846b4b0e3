"""What is asked of the service to be changed, in a drawn order: each answer, and what it left."""

from __future__ import annotations

import itertools
import json
import random
import secrets
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perdure.service.web.app import API
from tests.recorded.line import Line, hash_of
from tests.recorded.states import ServiceState, state_of
from tests.recorded.visits import said, text_of, things

STATES: Mapping[str, int] = {"full": 160, "seed-3": 90, "seed-57": 90}  # how often each is asked
LOOKED_AT = ("exceptions?limit=200", "actions?limit=200", "handlers", "learning", "whatif/comparisons", "status")
EVERY = 10  # requests: then time passes, and all is looked at
WHO = ("operator",) * 6 + ("owner",) * 4 + ("stranger", "socket")
TYPES = (
    "app.nan",
    "process.exit",
    "storage.down",
    "storage.up",
    "node.suspect",
    "data.quota",
    "gpu.xid79",
    "bad type",
    "job.net",
)
WORDS = ("note", "rank 3", "", "<i>x</i>", "=1+1", "two\nlines")


def names() -> Iterable[str]:
    return STATES


def lines_of(state: str) -> Iterator[Line]:
    """The lines of a state: who asked what, the status, a hash of the answer; and hashes of what can be seen then."""
    numbers = itertools.count()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
        with state_of(state, Path(folder) / "site") as place:
            patch.setattr(secrets, "token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
            asks = DrawnRequests(random.Random(state), place)
            asks.look()
            for count in range(1, STATES[state] + 1):
                line, told = asks.ask(folder)
                yield Line(f"{line}: {_short(told)}", f"## {line}\n{told}\n")
                if count % EVERY == 0:
                    place.pass_time()
                    asks.look()
                    for what in LOOKED_AT:
                        told = said(place.readers["operator"], f"{API}/{what}", folder)
                        yield Line(f"then {what}: {_short(told)}", f"## then {what}\n{told}\n")


def _short(told: str) -> str:
    return f"{told[:3]} {hash_of(told)}"


@dataclass
class DrawnRequests:
    """Requests about what there is in a state, and about what was asked for before."""

    rng: random.Random
    place: ServiceState
    known: dict[str, list[str]] = field(default_factory=dict)

    def look(self) -> None:
        """See what there is now."""
        operator = self.place.readers["operator"]
        actions = operator.get(f"{API}/actions?limit=200").json()["items"]
        latest = [each["id"] for each in operator.get(f"{API}/exceptions?limit=6").json()["items"]]
        self.known = {**things(operator), "key": [*(each["key"] for each in actions), "none-such"]}
        self.known["exception_id"] += latest[::-1]

    def ask(self, folder: str) -> tuple[str, str]:
        """Ask for something; who asked for what, and the answer."""
        rng, known = self.rng, self.known
        who, draw = rng.choice(WHO), rng.choice(DRAWS)
        method, path, given = draw(self, known)
        answer = self.place.readers[who].request(method, path, **given)
        about = " ".join(json.dumps(each) for each in given.values())
        return f"{who} {method} {path} {about}"[:150], text_of(answer, folder)

    # -- what is asked for: each method gives method, path, and what goes along

    def order(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        kind = rng.choice(("hold", "release", "cancel", "retry", "requeue", "drain", "undrain"))
        body: dict[str, Any] = {"kind": kind, "reason": rng.choice(WORDS)}
        is_of_node = (kind in ("drain", "undrain")) != (rng.random() < 0.1)
        body |= {"node": rng.choice(known["name"])} if is_of_node else {"job_id": rng.choice(known["job_id"])}
        if rng.random() < 0.2:
            body["exclude"] = [rng.choice(known["name"])]
        more = {"headers": {"Idempotency-Key": rng.choice("abc")}} if rng.random() < 0.3 else {}
        return "POST", f"{API}/actions", {"json": body, **more}

    def button(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        of_job = rng.random() < 0.5
        where = f"jobs/{rng.choice(known['job_id'])}" if of_job else f"nodes/{rng.choice(known['name'])}"
        kind = rng.choice(("hold", "release", "cancel", "retry") if of_job else ("drain", "undrain", "melt"))
        more = {"headers": {"HX-Request": "true"}} if rng.random() < 0.3 else {}
        return "POST", f"/do/{where}", {"data": {"kind": kind, "reason": rng.choice(WORDS)}, **more}

    def take_back(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        key, what = self.rng.choice(known["key"][:30]), self.rng.choice(("withhold", "undo"))
        if self.rng.random() < 0.5:
            return "POST", f"/do/{what}", {"data": {"key": key}}
        return "POST", f"{API}/actions/{key.replace('#', '%23')}/{what}", {}

    def raise_one(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        bodies = [self._record(known) for _ in range(self.rng.choice((1, 1, 2)))]
        if len(bodies) == 1:
            return "POST", f"{API}/exceptions", {"json": bodies[0]}
        return "POST", f"{API}/exceptions/batch", {"json": bodies}

    def _record(self, known: Mapping[str, list[str]]) -> dict[str, Any]:
        rng = self.rng
        subject = rng.choice((
            {"job": rng.choice(known["job_id"])}, {"job": rng.choice(known["job_id"])}, {"resource": "scratch"},
            {"node": [rng.choice(known["name"])]}, {},
        ))  # fmt: skip
        body: dict[str, Any] = {"type": rng.choice(TYPES), "subject": subject}
        if rng.random() < 0.6:
            body["id"] = f"e{rng.randrange(20)}"
        if rng.random() < 0.6:
            body["severity"] = rng.choice((0, 1, 2, 5, 9))
        if rng.random() < 0.3:
            body["note"] = rng.choice(WORDS)
        return body

    def annotate(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        about, key = rng.choice(known["exception_id"]), rng.choice(("note", "checkpoint", "seen_by"))
        if rng.random() < 0.3:
            return "POST", "/do/exceptions/annotation", {"data": {"exception_id": about, "value": "seen", "key": key}}
        return "POST", f"{API}/annotations/{_in_path(about)}", {"json": {"key": key, "value": rng.choice(WORDS)}}

    def close(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        about, note = self.rng.choice(known["exception_id"]), self.rng.choice(WORDS)
        if self.rng.random() < 0.4:
            return "POST", "/do/exceptions/closing", {"data": {"exception_id": about, "note": note}}
        return "POST", f"{API}/closings/{_in_path(about)}", {"json": {"note": note}}

    def enlist(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        name = rng.choice(("trainer", "site", "watcher"))
        if rng.random() < 0.2:
            return "DELETE", f"{API}/handlers/{name}", {}
        wish = {
            "component": rng.choice(("job", "workflow", "resource_manager", "scheduler")),
            "types": [rng.choice(("app", "", "process", "job", "storage"))],
            "lease_s": rng.choice((30, 3600, 4000)), "answer_s": rng.choice((5.0, 300)),
        }  # fmt: skip
        return "PUT", f"{API}/handlers/{name}", {"json": wish}

    def answer(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        said: dict[str, Any] = {
            "handler": rng.choice(("trainer", "site", "mira+trainer", "ada+trainer", "ada+watcher")),
            "verdict": rng.choice(("handled", "annotated", "declined", "deferred", "rejected")),
            "note": rng.choice(WORDS), "forbids": rng.choice(([], ["requeue"])),
        }  # fmt: skip
        if rng.random() < 0.3:
            said["until"] = self.place.clock() + 60.0
        return "POST", f"{API}/answers/{_in_path(rng.choice(known['exception_id'][::-1][:6]))}", {"json": said}

    def correct(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        path = f"jobs/{rng.choice(known['job_id'])}/attempts/{rng.choice((1, 1, 2))}/correction"
        label = rng.choice(("transient", "deterministic", "none", "maybe"))
        if rng.random() < 0.3:
            return "POST", f"/do/{path}", {"data": {"label": label}}
        if rng.random() < 0.2:
            return "POST", f"{API}/{path}/confirm", {"json": {"word": "none-such"}}
        return "POST", f"{API}/{path}", {"json": {"label": label}}

    def set_aside(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        kind = rng.choice(("user", "message", "day"))
        value = {"user": "mira", "message": "f", "day": rng.choice(("2026-09-21", "soon"))}[kind]
        body, what = {"kind": kind, "value": value}, rng.choice(("aside", "approve"))
        if rng.random() < 0.4:
            return "POST", f"/do/learning/{what}", {"data": body}
        return "POST", f"{API}/learning/{what}", {"json": body}

    def switch(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        what, on = rng.choice(("kill-switch", "policy")), rng.random() < 0.5
        if rng.random() < 0.4:
            return "POST", f"/do/{what}", {"data": {"on": str(on).lower()}}
        return "POST", f"{API}/{what}", {"json": {"on": on}}

    def compare(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        rng = self.rng
        about = f"whatif/comparisons/{rng.choice(known['comparison_id'])}"
        if rng.random() < 0.3:
            return "POST", f"{API}/{about}/cancel", {}
        if rng.random() < 0.3:
            return "DELETE", f"{API}/{about}", {}
        asked = {"cluster": rng.choice(("2x8", "", "x")), "policies": [rng.choice(("fifo", "srtf", "none"))]}
        return "POST", f"{API}/whatif/comparisons", {"json": asked}

    def break_node(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        kind = self.rng.choice(("fail", "freeze", "thaw", "return"))
        return "POST", f"{API}/nodes/{self.rng.choice(known['name'])}/faults", {"json": {"kind": kind}}

    def submit(self, known: Mapping[str, list[str]]) -> tuple[str, str, dict[str, Any]]:
        spec = self.rng.choice(({"command": ["true"]}, {"command": []}, {"name": "x"}))
        return "POST", f"{API}/jobs", {"json": spec}


DRAWS = (
    DrawnRequests.order, DrawnRequests.order, DrawnRequests.order, DrawnRequests.button, DrawnRequests.take_back,
    DrawnRequests.take_back, DrawnRequests.raise_one, DrawnRequests.raise_one, DrawnRequests.raise_one,
    DrawnRequests.raise_one, DrawnRequests.annotate, DrawnRequests.annotate, DrawnRequests.close, DrawnRequests.close,
    DrawnRequests.enlist, DrawnRequests.enlist, DrawnRequests.answer, DrawnRequests.answer, DrawnRequests.answer,
    DrawnRequests.correct, DrawnRequests.correct, DrawnRequests.set_aside, DrawnRequests.switch, DrawnRequests.compare,
    DrawnRequests.break_node, DrawnRequests.submit,
)  # fmt: skip


def _in_path(name: str) -> str:
    return name.replace("#", "%23").replace("+", "%2B")
