"""What differs between kinds of jobs: Job, JobSet and PyTorchJob. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.backends.kubernetes.objects import (
    Document,
    condition,
    controller_of,
    fields,
    instant,
    items,
    label,
    name_of,
    namespace_of,
    text,
    uid_of,
    whole,
)
from perdure.backends.kubernetes.resources import JOB_SETS, JOBS, PYTORCH_JOBS, ResourceKind
from perdure.backends.kubernetes.runs import JOB_NAME, JOBSET_NAME, RunEnd, gpus_of
from perdure.model.jobs import AttemptState

JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"


@dataclass(frozen=True, slots=True)
class WorkloadForm:
    """One kind of job: where its pods' templates stand, and what its conditions are called."""

    resource: ResourceKind
    suffix: str  # of a job's id; "" for a Job
    completed: str  # the condition
    failed: str
    suspend: tuple[str, ...]  # path of the field
    templates: Callable[[Document], list[tuple[int, Document]]]  # how many pods of each
    width: Callable[[Document], int]  # pods that run at a time
    before: Callable[[Document, str], int | None]  # pods before those among which an index counts, by their name

    def job_id(self, document: Document) -> str:
        return job_id_of(namespace_of(document), name_of(document), self.suffix)

    def is_suspended(self, document: Document) -> bool:
        value: Any = document
        for key in self.suspend:
            value = fields(value) and fields(value).get(key)
        return value is True

    def suspended(self, is_suspended: bool) -> dict[str, Any]:
        """The change that suspends or resumes it."""
        change: Any = is_suspended
        for key in reversed(self.suspend):
            change = {key: change}
        return dict(change)

    def gpus(self, document: Document) -> int:
        return sum(count * gpus_of(template) for count, template in self.templates(document))

    def rank(self, document: Document, slot: str) -> int | None:
        """Which of all its pods fills a slot, in the order of the spec; None where the spec does not say."""
        name, _, index = slot.rpartition("-")
        before = self.before(document, name) if index.isdecimal() else None
        return None if before is None else before + int(index)

    def how_over(self, document: Document) -> tuple[RunEnd, float] | None:
        """How and when the whole job ended; None while it is not over."""
        if (told := condition(document, self.completed)) is not None:
            return RunEnd(AttemptState.COMPLETED, ""), _since(told)
        if (told := condition(document, self.failed)) is not None:
            reason, message = text(told, "reason"), text(told, "message")
            state = AttemptState.TIMEOUT if reason == "DeadlineExceeded" else AttemptState.FAILED
            return RunEnd(state, f"{reason}: {message}".strip(": ")), _since(told)
        return None


def _since(told: Document) -> float:
    return instant(told, "lastTransitionTime") or 0.0


def job_id_of(namespace: str, name: str, suffix: str) -> str:
    """A namespace has no dot in it, so the id says which is which.

    >>> job_id_of("team", "train", "jobset")
    'team.train:jobset'
    """
    return f"{namespace}.{name}{f':{suffix}' if suffix else ''}"


def place_of(job_id: str) -> tuple[WorkloadForm, str, str] | None:
    """The kind, namespace and name of a job's id; None where it is not Kubernetes' form.

    >>> place_of("team.train:jobset")[1:], place_of("4711")
    (('team', 'train'), None)
    """
    whole_name, _, suffix = job_id.partition(":")
    namespace, _, name = whole_name.partition(".")
    form = FORMS.get(suffix)
    return (form, namespace, name) if form is not None and namespace and name else None


def _of_job(document: Document) -> list[tuple[int, Document]]:
    return [(_job_width(document), fields(document, "spec", "template"))]


def _job_width(document: Document) -> int:
    parallelism, completions = whole(document, "spec", "parallelism"), whole(document, "spec", "completions")
    most = 1 if parallelism is None else parallelism
    return most if completions is None else min(most, completions)


def _indexes(document: Document) -> int:
    """How many indexes the pods of a Job have, whether or not they run at a time."""
    completions = whole(document, "spec", "completions")
    return _job_width(document) if completions is None else completions


def _before_in_job(_document: Document, name: str) -> int | None:
    return None if name else 0


def _replicas(spec: Document) -> int:
    replicas = whole(spec, "replicas")
    return 1 if replicas is None else replicas


def _of_job_set(document: Document) -> list[tuple[int, Document]]:
    found = []
    for each in items(document, "spec", "replicatedJobs"):
        job = fields(each, "template")
        found.append((_replicas(each) * _job_width(job), fields(job, "spec", "template")))
    return found


def _before_in_job_set(document: Document, name: str) -> int | None:
    """Before the child Job with a number: a JobSet numbers all its Jobs in the order of its replicatedJobs."""
    if not name.isdecimal():
        return None
    before, jobs = 0, int(name)
    for each in items(document, "spec", "replicatedJobs"):
        replicas, indexes = _replicas(each), _indexes(fields(each, "template"))
        if jobs < replicas:
            return before + jobs * indexes
        before, jobs = before + replicas * indexes, jobs - replicas
    return None


def _of_pytorch_job(document: Document) -> list[tuple[int, Document]]:
    specs = map(fields, fields(document, "spec", "pytorchReplicaSpecs").values())
    return [(_replicas(spec), fields(spec, "template")) for spec in specs]


def _before_in_pytorch_job(document: Document, name: str) -> int | None:
    """Before the replicas of a type: the master comes before the workers, as in RANK."""
    specs, before = fields(document, "spec", "pytorchReplicaSpecs"), 0
    for kind in ("Master", "Worker"):
        if name == kind.lower():
            return before
        before += _replicas(fields(specs, kind)) if kind in specs else 0
    return None


def _sum_of(templates: Callable[[Document], list[tuple[int, Document]]]) -> Callable[[Document], int]:
    return lambda document: sum(count for count, _ in templates(document))


JOB = WorkloadForm(JOBS, "", "Complete", "Failed", ("spec", "suspend"), _of_job, _job_width, _before_in_job)
JOB_SET = WorkloadForm(
    JOB_SETS,
    "jobset",
    "Completed",
    "Failed",
    ("spec", "suspend"),
    _of_job_set,
    _sum_of(_of_job_set),
    _before_in_job_set,
)
PYTORCH_JOB = WorkloadForm(
    PYTORCH_JOBS,
    "pytorchjob",
    "Succeeded",
    "Failed",
    ("spec", "runPolicy", "suspend"),
    _of_pytorch_job,
    _sum_of(_of_pytorch_job),
    _before_in_pytorch_job,
)
FORMS: Mapping[str, WorkloadForm] = {form.suffix: form for form in (JOB, JOB_SET, PYTORCH_JOB)}


def selector_of(form: WorkloadForm, name: str) -> str:
    """By which labels the pods of a job are asked for."""
    if form is JOB_SET:
        return f"{JOBSET_NAME}={name}"
    return f"{JOB_NAME if form is JOB else 'training.kubeflow.org/job-name'}={name}"


def owner_key(pod: Document) -> str:
    """What a pod belongs to: "jobset:NAMESPACE/NAME" or "uid:UID" of its controller; "" where nothing manages it."""
    job_set = label(pod, JOBSET_NAME)
    if job_set:
        return f"jobset:{namespace_of(pod)}/{job_set}"
    owner = controller_of(pod)
    return f"uid:{text(owner, 'uid')}" if owner.get("kind") in ("Job", "PyTorchJob") else ""


def key_of(form: WorkloadForm, document: Document) -> str:
    """What its pods say that they belong to."""
    if form is JOB_SET:
        return f"jobset:{namespace_of(document)}/{name_of(document)}"
    return f"uid:{uid_of(document)}"
