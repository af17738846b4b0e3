"""A cluster with an exception in every state, made by the chain itself out of what programs and people say."""

from __future__ import annotations

from typing import Any

from perdure.coordination.messages import Settled, Ticked
from perdure.coordination.record import ExceptionOutcome, ExceptionRecord
from perdure.model.jobs import AttemptState
from perdure.service.access.auth import Identity, Role
from perdure.service.exceptions.coordinator import Answering, Coordinator, Enlisting
from tests.service.web_world import World, fill

ROOT, MIRA, JONAS = Identity("root", Role.OPERATOR), Identity("mira", Role.VIEWER), Identity("jonas", Role.VIEWER)
STORM = 40

# id of an exception that `stir` leaves in each state
STATES = {
    "mira+turn": "in_chain",
    "mira+later": "in_chain",
    "mira+owned": "handled",
    "mira+alone": "escalated",
    "jonas+gone": "withdrawn",
    "jonas+bug": "stopped",
    "pfs": "recovered",
    "xid": "handled",
}


class Told:
    """Says things to the chain of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.coordinator = Coordinator(world.tell, world.view, world.journal.recall, lambda: None)

    def raise_(self, name: str, kind: str, by: Identity = ROOT, **more: Any) -> ExceptionRecord:
        subject = {"job": more.pop("job", ""), "node": more.pop("node", []), "resource": more.pop("resource", "")}
        value = {"id": name, "type": kind, "severity": 1, "subject": subject, **more}
        (became,) = self.coordinator.raise_exceptions([value], by)
        assert isinstance(became, ExceptionRecord), became
        return became

    def enlist(self, handler: str, level: str, *kinds: str, by: Identity = MIRA) -> None:
        self.coordinator.enlist(handler, Enlisting(level, kinds, lease_s=3000.0, answer_s=600.0), by)

    def answer(self, name: str, handler: str, verdict: str, note: str = "", by: Identity = MIRA, **more: Any) -> None:
        self.coordinator.answer(name, handler, Answering(verdict, note, **more), by)

    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.world.tell((Ticked(),))


def stir(world: World) -> None:
    """Fill the cluster, and leave exceptions in the states of `STATES` on it."""
    fill(world)
    for job_id, name, user, nodes in (
        ("200", "resnet", "mira", ("gpu01", "gpu02")),
        ("300", "bert", "jonas", ("gpu04",)),
        ("400", "gpt", "mira", ("gpu01",)),
    ):
        world.submit(job_id, name, user, 2, node_count=len(nodes))
        world.start(job_id, *nodes)
    world.submit("410", "waits", "jonas", 2)
    told = Told(world)
    told.raise_("alone", "gpu.ecc", MIRA, job="200", node=["gpu02"], note="only one user says so")
    told.raise_("pfs", "storage.down", resource="pfs:/scratch", note="no answer from the metadata server")
    told.pass_time(300)
    told.raise_("pfs-back", "storage.restored", resource="pfs:/scratch")
    for number in range(STORM):
        told.raise_(
            "xid" if not number else f"xid-{number}", "gpu.xid79", node=["gpu06"], evidence=["Xid 79: GPU lost"]
        )
    world.carry_out()
    told.raise_("bug", "app.shape", JONAS, job="300")
    told.raise_("gone", "process.exit", JONAS, job="300")
    world.tell((Settled("jonas+gone", ExceptionOutcome.WITHDRAWN),))
    told.enlist("trainer", "job", "process", "app")
    told.enlist("airflow", "workflow", "process")
    told.raise_("owned", "process.exit", MIRA, job="200", note="rank 3 died", incarnation=world.view().latest("200"))
    told.pass_time(4)
    told.answer(
        "mira+owned", "trainer", "annotated", "no good checkpoint here", annotations={"checkpoint": "step 1200"}
    )
    told.pass_time(7)
    told.answer("mira+owned", "airflow", "handled", "rolled back to step 1200", forbids=("requeue",))
    told.raise_("later", "app.nan", MIRA, job="400", note="loss is NaN")
    told.pass_time(2)
    told.answer("mira+later", "trainer", "deferred", "looking at the last batches", until_s=world.now + 60)
    told.raise_("turn", "process.hang", MIRA, job="400")
    world.pass_time(5)
    world.look()


def end(world: World, job_id: str) -> None:
    """The job is over."""
    world.end(job_id, b"", AttemptState.COMPLETED)
