"""A Kubernetes cluster: its jobs look by look as the backend sees them, and what is written for actions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from perdure.backends.kubernetes.backend import KubernetesBackend
from perdure.backends.kubernetes.settings import KubernetesSettings
from perdure.errors import PerdureError
from perdure.model.actions import Action, Comment, Exclude, Requeue
from perdure.model.identity import AttemptId
from perdure.model.output import Output
from tests.copying import replace
from tests.recorded.drawn import in_words
from tests.recorded.stories.actions import an_action
from tests.recorded.stories.played_kubernetes import NODES, START_S, PlayedApi, PlayedMirror

CASES, PARTS, STEPS = 60, 3, 16
KINDS = {"jobs": "Job", "jobsets": "JobSet", "pytorchjobs": "PyTorchJob"}
SUFFIXES = {"jobs": "", "jobsets": ":jobset", "pytorchjobs": ":pytorchjob"}
ENDS = ((0, "Completed"), (0, "Completed"), (1, "Error"), (137, "OOMKilled"), (3, "Error"), (128, "StartError"))
POD_REASONS = ("Evicted", "NodeLost", "DeadlineExceeded", "Preempting", "UnexpectedAdmissionError", "")
MESSAGES = ("", "Container main exceeded its memory", "The node was low on resource: ephemeral-storage.")
DISRUPTIONS = ("PreemptionByScheduler", "DeletionByPodGC", "TerminationByKubelet", "EvictionByEvictionAPI")
PARTICULAR: tuple[dict[str, Any], ...] = (
    {"suspend": True}, {"suspend": True}, {"backoffLimitPerIndex": 1}, {"manualSelector": True}, {"completions": None},
    {"completionMode": "Indexed"}, {"podFailurePolicy": {"rules": []}}, {"backoffLimit": 0}, {"parallelism": 1},
)  # fmt: skip
OVER = ("", "BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy")


def story(_case: int, rng: Random) -> Iterator[str]:
    api, past = PlayedApi(rng), list[Action]()
    settings = KubernetesSettings(owner_label=rng.choice(("", "owner")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: api.now)
        patch.setattr("time.monotonic", lambda: api.now)
        patch.setattr("time.sleep", lambda seconds: api.__setattr__("now", api.now + seconds))
        patch.setattr("perdure.backends.kubernetes.backend.Mirror", PlayedMirror)
        backends = (KubernetesBackend("c", api, settings, f"test:{part // 2}") for part in range(PARTS))
        return iter([line for backend in backends for _ in range(STEPS) for line in _step(api, backend, past, rng)])


def _step(api: PlayedApi, backend: KubernetesBackend, past: list[Action], rng: Random) -> Iterator[str]:
    api.now += rng.choice((0.0, 1.0, 1.0, 5.0, 30.0, 200.0))
    for _ in range(rng.choice((1, 2, 3))):
        yield f"{api.now - START_S:g} {_something(api, rng)}"
    try:
        yield f" {_asked(api, backend, past, rng)}"
    except PerdureError as err:
        yield f" {err}"
    yield from (f" told {line}" for line in api.told)
    api.told.clear()


def _something(api: PlayedApi, rng: Random) -> str:
    jobs = [(plural, each) for plural in KINDS for each in api.all_of(plural)]
    pods = api.all_of("pods")
    what = rng.choice("jjppppbbbeeeerrdgoonnnqk")
    if what == "j" or not jobs:
        plural, job = _job(api, rng)
        return f"made {plural} {job['metadata']['name']}"
    plural, job = rng.choice(jobs)
    if what in "pk" or not pods:
        return f"pod {_pod(api, plural, job, rng)['metadata']['name']}"
    pod = rng.choice(pods)
    match what:
        case "b":
            return _begin(api, pod, rng)
        case "e":
            return _end(api, pod, rng)
        case "r":
            return _restart(api, pod, rng)
        case "d":
            pod["metadata"] |= {"deletionTimestamp": api.stamp(-rng.choice((0, 30))), "deletionGracePeriodSeconds": 30}
            api.put("pods", pod)
            return f"told {pod['metadata']['name']} to go"
        case "g":
            api.take("pods", pod)
            return f"gone {pod['metadata']['name']}"
        case "o":
            return _over(api, plural, job, rng)
        case "q":
            api.silent = rng.random() < 0.3
            return "silent" if api.silent else "heard"
    return _change_node(api, rng)


def _job(api: PlayedApi, rng: Random) -> tuple[str, dict[str, Any]]:
    plural, number = rng.choice(("jobs", "jobs", "jobs", "jobsets", "pytorchjobs")), len(api.objects) + len(api.gone)
    pods = rng.choice((1, 1, 2))
    metadata: dict[str, Any] = {"name": f"train-{number}", "namespace": "team"}
    metadata["labels"] = {"perdure.dev/managed": "true"} if rng.random() < 0.85 else {}
    if rng.random() < 0.25:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = "lab"
    if rng.random() < 0.3:
        metadata["labels"]["owner"] = rng.choice(("ada", "bob"))
    metadata["annotations"] = {
        key: value
        for key, value in (("perdure.dev/retry", "never"), ("perdure.dev/nodes", "1-2"), ("perdure.dev/comment", "x"))
        if rng.random() < 0.1
    }
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": rng.choice(("1", "4"))}}}]
    template = {"spec": {"containers": containers, "restartPolicy": rng.choice(("Never", "OnFailure"))}}
    limit = {"activeDeadlineSeconds": 3600} if rng.random() < 0.3 else {}
    spec: dict[str, Any] = {"parallelism": pods, "completions": pods, "template": template, **limit}
    if plural == "jobsets":
        one = {"parallelism": 1, "completions": 1, "template": template}
        parts = (("v", rng.choice((0, 0, 1)), one), ("w", rng.choice((1, 1, 2)), spec))
        replicated = [{"name": name, "replicas": jobs, "template": {"spec": each}} for name, jobs, each in parts]
        spec = {"replicatedJobs": [each for each in replicated if each["replicas"]]}
    elif plural == "pytorchjobs":
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": pods, "template": template}}, "runPolicy": limit}
    if plural == "jobs" and rng.random() < 0.4:
        spec |= rng.choice(PARTICULAR)
    if rng.random() < 0.1:
        metadata["ownerReferences"] = [{"kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}]
    return plural, api.put(plural, {"kind": KINDS[plural], "metadata": metadata, "spec": spec, "status": {}})


def _pod(api: PlayedApi, plural: str, job: dict[str, Any], rng: Random) -> dict[str, Any]:
    name, index = job["metadata"]["name"], str(rng.choice((0, 0, 1)))
    owner = {"kind": KINDS[plural], "uid": job["metadata"]["uid"], "controller": True, "name": name}
    labels: dict[str, str] = {"job-name": name, "batch.kubernetes.io/job-completion-index": index}
    if plural == "jobsets":
        number, index = rng.choice(_places(job))
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/job-global-index": number}
        labels |= {"batch.kubernetes.io/job-completion-index": index, "job-name": f"{name}-{number}"}
        labels |= {"jobset.sigs.k8s.io/restart-attempt": str(rng.choice((0, 0, 1)))}
    elif plural == "pytorchjobs":
        labels = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/replica-type": "worker"}
        labels["training.kubeflow.org/replica-index"] = index
    pod_name = f"{name}-worker-{index}" if plural == "pytorchjobs" else f"{labels['job-name']}-{index}-{len(api.gone)}"
    old = api.objects.get(("pods", "team", pod_name))
    if old is not None:
        api.take("pods", old)
    metadata = {"name": pod_name, "namespace": "team", "labels": labels, "ownerReferences": [owner]}
    if rng.random() < 0.3:
        metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    waiting = {"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
    status: dict[str, Any] = {"phase": "Pending", "containerStatuses": [waiting]}
    if rng.random() < 0.2:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return api.put("pods", {"metadata": metadata, "spec": {"containers": containers}, "status": status})


def _places(job_set: dict[str, Any]) -> list[tuple[str, str]]:
    """The pods of a JobSet: the number of the Job among all of them, and the pod's index in that."""
    parts = [(each["replicas"], each["template"]["spec"]) for each in job_set["spec"]["replicatedJobs"]]
    pods = [spec["completions"] for replicas, spec in parts for _ in range(replicas)]
    return [(str(number), str(index)) for number, count in enumerate(pods) for index in range(count)]


def _begin(api: PlayedApi, pod: dict[str, Any], rng: Random) -> str:
    status = pod["status"]["containerStatuses"][0]
    pod["spec"]["nodeName"] = pod["spec"].get("nodeName") or rng.choice(NODES)
    if rng.random() < 0.15:
        status["state"] = {"waiting": {"reason": rng.choice(("ImagePullBackOff", "CreateContainerError"))}}
        pod["status"] |= {"startTime": api.stamp()}
    else:
        status["state"] = {"running": {"startedAt": api.stamp()}}
        pod["status"] |= {"phase": "Running", "startTime": api.stamp(), "conditions": []}
    api.put("pods", pod)
    return f"begins {pod['metadata']['name']} {status['state']}"


def _ended(api: PlayedApi, rng: Random) -> dict[str, Any]:
    code, reason = rng.choice(ENDS)
    ended: dict[str, Any] = {"exitCode": code, "reason": reason, "finishedAt": api.stamp(), "startedAt": api.stamp(60)}
    return ended | ({"signal": 9} if rng.random() < 0.1 else {}) | ({"message": "no"} if rng.random() < 0.2 else {})


def _end(api: PlayedApi, pod: dict[str, Any], rng: Random) -> str:
    ended = _ended(api, rng)
    pod["spec"]["nodeName"] = pod["spec"].get("nodeName") or rng.choice(NODES)
    pod["status"]["phase"] = "Succeeded" if ended["exitCode"] == 0 else "Failed"
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
    if rng.random() < 0.2:
        pod["status"] |= {"phase": "Failed", "reason": rng.choice(POD_REASONS), "message": rng.choice(MESSAGES)}
    if rng.random() < 0.2:
        told = {"type": "DisruptionTarget", "status": "True", "reason": rng.choice(DISRUPTIONS)}
        pod["status"]["conditions"] = [told | {"lastTransitionTime": api.stamp(3)}]
    if rng.random() < 0.2:
        del pod["status"]["containerStatuses"][0]["state"]
    api.put("pods", pod)
    return f"ended {pod['metadata']['name']} {pod['status']}"


def _restart(api: PlayedApi, pod: dict[str, Any], rng: Random) -> str:
    status = pod["status"]["containerStatuses"][0]
    pod["spec"]["nodeName"] = pod["spec"].get("nodeName") or rng.choice(NODES)
    status["lastState"] = {"terminated": _ended(api, rng)}
    status["restartCount"] += 1
    is_on = rng.random() < 0.7
    status["state"] = {"running": {"startedAt": api.stamp()}} if is_on else {"waiting": {"reason": "CrashLoopBackOff"}}
    pod["status"]["phase"] = "Running"
    api.put("pods", pod)
    return f"restarted {pod['metadata']['name']} {status}"


def _over(api: PlayedApi, plural: str, job: dict[str, Any], rng: Random) -> str:
    if "deletionTimestamp" in job["metadata"] or rng.random() < 0.12:
        api.take(plural, job)
        return f"deleted {job['metadata']['name']}"
    match rng.randrange(7):
        case 0:
            job["status"] = {**job.get("status", {}), "active": rng.choice((0, 1)), "startTime": api.stamp()}
            api.put(plural, job)
            return f"active {job['metadata']['name']}"
        case 1:
            job["spec"]["suspend"] = not job["spec"].get("suspend", False)
            api.put(plural, job)
            return f"suspended or not {job['metadata']['name']}"
        case 2 | 3:
            owners = [{"uid": job["metadata"]["uid"]}]
            spec = {"active": rng.random() < 0.7}
            told = {
                "type": rng.choice(("Admitted", "Evicted", "QuotaReserved")),
                "status": rng.choice(("True", "False")),
            }
            told |= {"reason": "Preempted", "message": "in favour of others", "lastTransitionTime": api.stamp()}
            metadata = {"name": f"job-{job['metadata']['name']}", "namespace": "team", "ownerReferences": owners}
            api.put("workloads", {"metadata": metadata, "spec": spec, "status": {"conditions": [told]}})
            return f"queued {told}"
    kind = rng.choice(("Failed", "Failed", "Failed", "Complete", "Succeeded", "Completed"))
    told = {"type": kind, "status": "True", "reason": rng.choice(OVER), "lastTransitionTime": api.stamp()}
    job["status"] = {"conditions": [told], "active": 0, "failed": 1}
    api.put(plural, job)
    return f"over {job['metadata']['name']} {told}"


def _change_node(api: PlayedApi, rng: Random) -> str:
    node = api.objects["nodes", "", rng.choice(NODES)]
    match rng.randrange(4):
        case 0:
            ready = {"type": "Ready", "status": rng.choice(("True", "Unknown", "False")), "reason": "NodeStatusUnknown"}
            node["status"]["conditions"] = [ready | {"lastTransitionTime": api.stamp()}]
        case 1:
            node["spec"]["unschedulable"] = not node["spec"].get("unschedulable", False)
        case 2:
            pressure = {"type": "DiskPressure", "status": "True", "message": "full"}
            node["status"]["conditions"] = [*node["status"]["conditions"][:1], pressure]
        case _:
            taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
            node["spec"]["taints"] = [] if node["spec"].get("taints") else [taint]
    api.put("nodes", node)
    return f"{node['metadata']['name']} {node['spec']} {node['status']['conditions']}"


def _asked(api: PlayedApi, backend: KubernetesBackend, past: list[Action], rng: Random) -> str:
    match rng.choice("oooooooopppplwf"):
        case "o":
            look = backend.observe(api.now - rng.choice((60.0, 900.0, 1e5)))
            return in_words(replace(look, time_s=0.0))
        case "p":
            action = _action(api, backend, past, rng)
            return f"{in_words(action)} {in_words(backend.perform(action))}"
        case "l":
            action = _action(api, backend, past, rng)
            return f"{in_words(action)} looked up {in_words(backend.lookup(action))}"
        case "w":
            some = [action for _ in range(6) if isinstance(action := _action(api, backend, past, rng), Comment)]
            return in_words(backend.write_comments(some))
    return "".join(f"{in_words(output)} " for output in _outputs(api, backend, rng))


def _outputs(api: PlayedApi, backend: KubernetesBackend, rng: Random) -> Iterator[Output]:
    seen = backend.observe(api.now - 1e5)
    if rng.random() < 0.5:
        _something(api, rng)  # between the look and the read
    for attempt in seen.attempts[-2:]:
        if attempt.state.is_over:
            yield backend.output(attempt, rng.choice((20, 999)))


def _action(api: PlayedApi, backend: KubernetesBackend, past: list[Action], rng: Random) -> Action:
    if past and rng.random() < 0.3:
        return rng.choice(past[-4:])
    seen = backend.observe(api.now - 1e5)
    attempts = [attempt for attempt in seen.attempts if attempt.state.is_over] if rng.random() < 0.5 else seen.attempts
    unstarted = AttemptId("c", seen.jobs[0].job_id if seen.jobs else "team.none", 0)
    last = rng.choice(attempts).id if attempts else unstarted
    put_back = [job.job_id for job in seen.jobs if "put back" in job.reason]
    if put_back and rng.random() < 0.4:
        latest = max((each.id.incarnation for each in seen.attempts if each.id.job_id == put_back[0]), default=0)
        past.append(Exclude(AttemptId("c", put_back[0], latest), (rng.choice(NODES),), rng.choice((0, 0, 1))))
    elif rng.random() < 0.3:
        past.append(Requeue(last, rng.choice(((), ("node1",))), rng.choice((0.0, 900.0)), comment="because"))
    else:
        past.append(an_action(rng, "c", last.job_id, last.incarnation, NODES))
    return past[-1]
