"""Objects of which any field may be anything: a look reads them all the same, and the journal takes what it finds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.kubernetes.held import HeldObject
from perdure.backends.kubernetes.marks import HISTORY, NODES, RESUME_AT, STASH, STASHED
from perdure.backends.kubernetes.picture import QuietJob, ReadingRules, jobs_in, nodes_in
from perdure.backends.kubernetes.workloads import JOB, JOB_SET, PYTORCH_JOB
from perdure.model.observation import Observation
from perdure.service.core.controller import step
from perdure.service.core.messages import Looked
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.journal import Journal
from tests.backends.kubernetes.test_picture import NOW, a_job, a_node, a_pod, at, over, seen, terms

ODD = (
    None, "", "9" * 5000, "nan", "-1", 2**63, -(10**30), 1.5, True, [], {}, [{}], [1, "a"], {"a": 1}, at(5),
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00",
)  # fmt: skip
NOTES = (
    HISTORY, RESUME_AT, NODES, STASHED, "jobset.sigs.k8s.io/restart-attempt", "kubectl.kubernetes.io/default-container",
)  # fmt: skip
LABELS = (
    STASH, "perdure.dev/managed", "kueue.x-k8s.io/queue-name", "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/job-global-index",
    "batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index",
)  # fmt: skip


class HostileOwner:
    """Writes objects that are nearly right."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def spoilt(self, value: Any) -> Any:
        """With something else here and there."""
        if self._rng.random() < 0.03:
            return self._rng.choice(ODD)
        if isinstance(value, dict):
            return {key: self.spoilt(each) for key, each in value.items()}
        return [self.spoilt(each) for each in value] if isinstance(value, list) else value

    def metadata(self) -> dict[str, Any]:
        told = [{"i": 2**62, "s": "node_fail", "b": 1e300, "e": 2, "gpus": 10**20}]
        words = ("9" * 5000, "nan", "5", json.dumps(told), "true")
        notes = {name: self._rng.choice(words) for name in NOTES if self._rng.random() < 0.3}
        labels = {name: self._rng.choice(("true", "9" * 63, "0")) for name in LABELS if self._rng.random() < 0.3}
        return {"annotations": notes, "labels": labels}

    def objects(self) -> tuple[list[HeldObject], list[HeldObject]]:
        rng = self._rng
        jobs, pods = [], []
        for number in range(3):
            limits = {"limits": {"nvidia.com/gpu": "9" * 19}}
            asks = {"containers": [{"name": "main", "resources": limits}], "affinity": terms(("n1",))}
            spec = {"template": {"spec": asks}, "suspend": rng.random() < 0.3, "activeDeadlineSeconds": 2**62}
            status = over(rng.choice(("Failed", "Complete", "FailureTarget"))) if rng.random() < 0.5 else {}
            jobs.append(
                a_job(rng.choice((1, 2**31 - 1)), f"j{number}", metadata=self.metadata(), spec=spec, status=status)
            )
            code = rng.choice((None, 0, 1))
            pods += [
                a_pod(slot, began=700, code=code, owner=f"uid-j{rng.randrange(4)}", metadata=self.metadata())
                for slot in (0, 1)
            ]
        return [self.held(each) for each in jobs], [self.held(each) for each in pods]

    def held(self, document: Any) -> HeldObject:
        return HeldObject(self.spoilt(document) or {}, NOW - 3 if self._rng.random() < 0.1 else None)


@pytest.mark.parametrize("form", [JOB, JOB_SET, PYTORCH_JOB], ids=lambda form: form.suffix or "job")
def test_a_look_at_anything_is_taken_by_the_journal(tmp_path: Path, form: Any) -> None:
    owner, memory = HostileOwner(7), dict[str, QuietJob]()
    journal = Journal.open(tmp_path, "kube")
    state = journal.restore()
    for turn in range(150):
        jobs, pods = owner.objects()
        sighted = seen(jobs, pods, [a_node("n1")], form=form)
        found = jobs_in(sighted, ReadingRules("kube", "who"), NOW + turn, memory)
        attempts = {attempt.id: attempt for each in found for attempt in each.attempts}
        told = {each.job.job_id: each.job for each in found}
        look = Observation("kube", NOW + turn, (*told.values(),), (*attempts.values(),), (*nodes_in(sighted),))
        after, effects = step(state, Looked(look), ControllerSettings())
        journal.record(effects, state, after)
        state = after
    journal.close()
