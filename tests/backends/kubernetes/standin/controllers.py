"""What runs beside an API server: the Job controller, the scheduler, kubelets, eviction by taints, garbage collection.

Each is a small program after the documentation of its original, with times a thousandth of the original's. A pod's
program is told in the arguments of its container: what it says, how long it runs, its exit code.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.backends.kubernetes.standin.kinds import TRACKING
from tests.backends.kubernetes.standin.server import GRACE_S, StandInApi, disrupt
from tests.backends.kubernetes.standin.store import ApiProblem, Document, second_stamp

UNREACHABLE = "node.kubernetes.io/unreachable"
GPU = "nvidia.com/gpu"
INDEX = "batch.kubernetes.io/job-completion-index"
GANG = "stand-in/gang"  # a label of pods whose programs wait for each other
MISSING_IMAGE = "missing"
KILLED = 137


@dataclass
class ControlPlane:
    """The programs, a step at a time. `dead` has the nodes whose kubelets do not answer."""

    api: StandInApi
    retry_s: float = 0.3  # before a pod that failed is replaced
    detect_s: float = 0.1  # before a node that is dead counts as unreachable
    dead: dict[str, float] = field(default_factory=dict)  # since when
    ends: dict[str, float] = field(default_factory=dict)  # by uid of a pod: when its program is through
    retries: dict[str, float] = field(default_factory=dict)  # by uid of a Job: when it may make pods again

    def step(self) -> None:
        """Let each program look at all objects once."""
        with self.api.store.lock:
            self._watch_nodes()
            self._evict_by_taints()
            self._collect_garbage()
            for job in self.api.store.all_of("jobs"):
                self._sync_job(job)
            self._schedule()
            for pod in self.api.store.all_of("pods"):
                if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in self.dead:
                    self._run_pod(pod)

    # -- Jobs

    def _sync_job(self, job: Document) -> None:
        store, uid = self.api.store, job["metadata"]["uid"]
        if "deletionTimestamp" in job["metadata"]:
            return
        pods = [pod for pod in store.all_of("pods", job["metadata"]["namespace"]) if owned_by(pod, uid)]
        status = job.setdefault("status", {})
        before = repr(status)
        fail_now = self._count(job, pods)
        pods = [pod for pod in store.all_of("pods", job["metadata"]["namespace"]) if owned_by(pod, uid)]
        active = [pod for pod in pods if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]]
        if has_condition(job, "Complete") or has_condition(job, "Failed"):
            self._stop(active)
            return
        if job["spec"].get("suspend"):
            self._suspend(job, active)
        else:
            set_condition(job, "Suspended", "False", "JobResumed") if find_condition(job, "Suspended") else None
            status.setdefault("startTime", second_stamp())
            self._go_on(job, pods, active, fail_now)
        self._tell_numbers(job, uid)
        if repr(job["status"]) != before:
            store.update("jobs", job)

    def _tell_numbers(self, job: Document, uid: str) -> None:
        pods = [p for p in self.api.store.all_of("pods", job["metadata"]["namespace"]) if owned_by(p, uid)]
        active = [pod for pod in pods if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]]
        going = [pod for pod in pods if not is_over(pod) and "deletionTimestamp" in pod["metadata"]]
        job["status"] |= {"active": len(active), "terminating": len(going), "uncountedTerminatedPods": {}}

    def _count(self, job: Document, pods: list[Document]) -> str:
        """Count pods that are over, once each, and let them go; why the Job is to fail at once, or ""."""
        why, status = "", job.setdefault("status", {})
        for pod in pods:
            if TRACKING not in pod["metadata"].get("finalizers", ()) or not is_over(pod):
                continue
            pod["metadata"]["finalizers"].remove(TRACKING)
            self.api.store.update("pods", pod)
            if pod["status"]["phase"] == "Succeeded":
                status["succeeded"] = status.get("succeeded", 0) + 1
                continue
            verdict = policy_of(job, pod)
            if verdict == "Ignore":
                continue
            status["failed"] = status.get("failed", 0) + 1
            self.retries[job["metadata"]["uid"]] = time.monotonic() + self.retry_s
            if verdict == "FailJob":
                why = f"Container of pod {pod['metadata']['name']} failed with a code that matches FailJob rule"
        return why

    def _suspend(self, job: Document, active: list[Document]) -> None:
        self._stop(active)
        set_condition(job, "Suspended", "True", "JobSuspended")

    def _stop(self, active: list[Document]) -> None:
        for pod in active:
            self._delete_pod(pod)

    def _go_on(self, job: Document, pods: list[Document], active: list[Document], fail_now: str) -> None:
        spec, status = job["spec"], job["status"]
        succeeded = {pod_index(pod) for pod in pods if pod["status"].get("phase") == "Succeeded"}
        wanted = spec.get("completions")
        deadline = spec.get("activeDeadlineSeconds")
        if fail_now:
            self._fail(job, active, "PodFailurePolicy", fail_now)
        elif status.get("failed", 0) > spec["backoffLimit"]:
            self._fail(job, active, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif deadline is not None and age_of(status["startTime"]) >= deadline:
            self._fail(job, active, "DeadlineExceeded", "Job was active longer than specified deadline")
        elif status.get("succeeded", 0) >= (wanted if wanted is not None else 1) and not active:
            set_condition(job, "SuccessCriteriaMet", "True", "CompletionsReached")
            set_condition(job, "Complete", "True", "CompletionsReached")
            status["completionTime"] = second_stamp()
        else:
            self._make_pods(job, pods, active, succeeded)

    def _fail(self, job: Document, active: list[Document], reason: str, message: str) -> None:
        self._stop(active)
        set_condition(job, "FailureTarget", "True", reason, message)
        set_condition(job, "Failed", "True", reason, message)

    def _make_pods(self, job: Document, pods: list[Document], active: list[Document], done: set[str]) -> None:
        if self.retries.get(job["metadata"]["uid"], 0.0) > time.monotonic():
            return
        spec = job["spec"]
        going = [pod for pod in pods if not is_over(pod)] if spec["podReplacementPolicy"] == "Failed" else active
        wanted = spec.get("completions")
        left = wanted - job["status"].get("succeeded", 0) if wanted is not None else spec["parallelism"]
        room = min(spec["parallelism"], left) - len(going)
        if spec["completionMode"] == "Indexed":
            taken = {pod_index(pod) for pod in going} | done
            free = [str(index) for index in range(wanted or 0) if str(index) not in taken]
        else:
            free = [""] * max(0, room)
        for index in free[: max(0, room)]:
            self._make_pod(job, index)

    def _make_pod(self, job: Document, index: str) -> None:
        template, name = job["spec"]["template"], job["metadata"]["name"]
        labels, notes = dict(template["metadata"]["labels"]), dict(template["metadata"].get("annotations", {}))
        if index:
            labels[INDEX] = notes[INDEX] = index
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"],
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        metadata = {
            "name": f"{name}{f'-{index}' if index else ''}-{uuid.uuid4().hex[:5]}",
            "namespace": job["metadata"]["namespace"],
            "labels": labels,
            "annotations": notes,
            "ownerReferences": [owner],
            "finalizers": [TRACKING],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self.api.store.create("pods", {**pod, "status": {"phase": "Pending"}})

    # -- pods

    def _schedule(self) -> None:
        """Give pods nodes; those of a gang all or none, as the coscheduling plugin of the scheduler does."""
        nodes, pods = self.api.store.all_of("nodes"), self.api.store.all_of("pods")
        used: dict[str, int] = defaultdict(int)
        waiting: dict[str, list[Document]] = defaultdict(list)
        for pod in pods:
            spec = pod["spec"]
            if spec.get("nodeName") and not is_over(pod):
                used[spec["nodeName"]] += gpus_of(spec)
            elif (
                not spec.get("nodeName")
                and "deletionTimestamp" not in pod["metadata"]
                and not spec.get("schedulingGates")
            ):
                is_gang = metadata_label(pod, GANG) is not None
                waiting[pod["metadata"]["ownerReferences"][0]["uid"] if is_gang else pod["metadata"]["uid"]].append(pod)
        for together in waiting.values():
            places = self._places(together, nodes, dict(used))
            if len(places) < len(together):
                message = f"0/{len(nodes)} nodes are available: no node fits."
                for pod in together:
                    if set_condition(pod, "PodScheduled", "False", "Unschedulable", message):
                        self.api.store.update("pods", pod)
                continue
            for pod, name in zip(together, places, strict=True):
                used[name] += gpus_of(pod["spec"])
                pod["spec"]["nodeName"] = name
                set_condition(pod, "PodScheduled", "True", "")
                self.api.store.update("pods", pod)

    def _places(self, pods: list[Document], nodes: list[Document], used: dict[str, int]) -> list[str]:
        """A node for each pod, as far as they go."""
        places = []
        for pod in pods:
            spec = pod["spec"]
            fitting = (n["metadata"]["name"] for n in nodes if may_run(spec, n))
            room = {n["metadata"]["name"]: gpus_on(n) for n in nodes}
            names = [name for name in fitting if used.get(name, 0) + gpus_of(spec) <= room[name]]
            if not names:
                break
            places.append(min(names, key=lambda name: (used.get(name, 0), name)))
            used[places[-1]] = used.get(places[-1], 0) + gpus_of(spec)
        return places

    def _run_pod(self, pod: Document) -> None:
        """A kubelet's part: start, end, and go when told to."""
        status, uid = pod["status"], pod["metadata"]["uid"]
        container = pod["spec"]["containers"][0]
        says, run_s, code = [*container.get("args", ()), "", "0", "0"][:3]
        if "deletionTimestamp" in pod["metadata"] and not is_over(pod):
            self._end(pod, KILLED if "containerStatuses" in status else None)
            return
        if is_over(pod):
            if pod["metadata"].get("deletionGracePeriodSeconds", 0) > 0:
                pod["metadata"] |= {"deletionGracePeriodSeconds": 0, "deletionTimestamp": when_asked(pod)}
                self.api.store.update("pods", pod)
            return
        state = (status.get("containerStatuses") or [{}])[0].get("state", {})
        if "running" not in state:
            self._start(pod, container, str(says))
            self.ends[uid] = time.monotonic() + float(run_s)
        elif time.monotonic() >= self.ends.get(uid, 0.0):
            self._end(pod, int(code))

    def _start(self, pod: Document, container: Document, says: str) -> None:
        metadata, status = pod["metadata"], pod["status"]
        status.setdefault("startTime", second_stamp())
        if container["image"].startswith(MISSING_IMAGE):
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
            told = container_status(container, {"waiting": waiting}, 0)
            if status.get("containerStatuses") != [told]:
                status["containerStatuses"] = [told]
                self.api.store.update("pods", pod)
            return
        restarts = (status.get("containerStatuses") or [{}])[0].get("restartCount", 0)
        before = (status.get("containerStatuses") or [{}])[0].get("lastState", {})
        running = container_status(container, {"running": {"startedAt": second_stamp()}}, restarts, before)
        status |= {"phase": "Running", "containerStatuses": [running]}
        self.api.store.update("pods", pod)
        self.api.logs[(metadata["namespace"], metadata["name"], container["name"], False)] = f"{says}\n".encode()

    def _end(self, pod: Document, code: int | None) -> None:
        """The program ended, or was killed; a code of None: it never began."""
        status, container = pod["status"], pod["spec"]["containers"][0]
        if code is None:
            status["phase"] = "Failed"
            self.api.store.update("pods", pod)
            return
        old = status["containerStatuses"][0]
        began = old.get("state", {}).get("running", {}).get("startedAt", second_stamp())
        reason = "Completed" if code == 0 else "OOMKilled" if container["image"] == "oom" else "Error"
        ended = {"terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": second_stamp()}}
        again = (
            code != 0 and pod["spec"].get("restartPolicy") == "OnFailure" and "deletionTimestamp" not in pod["metadata"]
        )
        if again:
            key = (pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"])
            self.api.logs[(*key, True)] = self.api.logs.get((*key, False), b"")
            waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
            status["containerStatuses"] = [container_status(container, waiting, old["restartCount"] + 1, ended)]
        else:
            status["containerStatuses"] = [container_status(container, ended, old["restartCount"])]
            status["phase"] = "Succeeded" if code == 0 else "Failed"
        self.api.store.update("pods", pod)

    def _delete_pod(self, pod: Document) -> None:
        metadata = pod["metadata"]
        grace_s = GRACE_S if pod["spec"].get("nodeName") else 0
        try:
            self.api.store.delete("pods", metadata["namespace"], metadata["name"], grace_s)
        except ApiProblem:
            return
        if grace_s == 0:
            self._forget_pod(metadata["namespace"], metadata["name"])

    def _forget_pod(self, namespace: str, name: str) -> None:
        """A pod that was on no node goes at once; the controller of its Job lets it."""
        try:
            pod = self.api.store.get("pods", namespace, name)
        except ApiProblem:
            return
        pod["metadata"]["finalizers"] = []
        self.api.store.update("pods", pod)

    # -- nodes and garbage

    def _watch_nodes(self) -> None:
        for node in self.api.store.all_of("nodes"):
            since = self.dead.get(node["metadata"]["name"])
            is_lost = since is not None and time.monotonic() - since >= self.detect_s
            told = set_condition(node, "Ready", "Unknown" if is_lost else "True",
                                 "NodeStatusUnknown" if is_lost else "KubeletReady",
                                 "Kubelet stopped posting node status." if is_lost else "")  # fmt: skip
            others = [taint for taint in node["spec"].get("taints", ()) if taint["key"] != UNREACHABLE]
            lost = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": second_stamp()}
            if told:
                node["spec"]["taints"] = [*others, *([lost] if is_lost else [])]
                self.api.store.update("nodes", node)

    def _evict_by_taints(self) -> None:
        taints = {
            node["metadata"]["name"]: [t for t in node["spec"].get("taints", ()) if t["effect"] == "NoExecute"]
            for node in self.api.store.all_of("nodes")
        }
        for pod in self.api.store.all_of("pods"):
            bad = [t for t in taints.get(pod["spec"].get("nodeName", ""), ()) if not tolerates(pod["spec"], t)]
            if bad and not is_over(pod) and "deletionTimestamp" not in pod["metadata"]:
                disrupt(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
                self.api.store.update("pods", pod)
                self._delete_pod(pod)

    def _collect_garbage(self) -> None:
        alive = {document["metadata"]["uid"] for document in self.api.store.objects.values()}
        for pod in self.api.store.all_of("pods"):
            owners = pod["metadata"].get("ownerReferences", ())
            if owners and all(owner["uid"] not in alive for owner in owners):
                if "deletionTimestamp" not in pod["metadata"]:
                    self._delete_pod(pod)
                elif is_over(pod) and TRACKING in pod["metadata"].get("finalizers", ()):
                    pod["metadata"]["finalizers"].remove(TRACKING)
                    self.api.store.update("pods", pod)
        for job in self.api.store.all_of("jobs"):
            if "foregroundDeletion" in job["metadata"].get("finalizers", ()):
                mine = [pod for pod in self.api.store.all_of("pods") if owned_by(pod, job["metadata"]["uid"])]
                for pod in mine:
                    self._delete_pod(pod)
                    self._forget_pod(pod["metadata"]["namespace"], pod["metadata"]["name"]) if is_over(pod) else None
                if not mine:
                    job["metadata"]["finalizers"].remove("foregroundDeletion")
                    self.api.store.update("jobs", job)


# -- small questions


def owned_by(document: Document, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in document["metadata"].get("ownerReferences", ()))


def is_over(pod: Document) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def metadata_label(document: Document, key: str) -> str | None:
    found: str | None = document["metadata"].get("labels", {}).get(key)
    return found


def when_asked(pod: Document) -> str:
    """When a pod was told to go: the API server moves its deletion there once no grace is left."""
    metadata = pod["metadata"]
    until_s = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
    return second_stamp(until_s - metadata["deletionGracePeriodSeconds"] - time.time())


def pod_index(pod: Document) -> str:
    return str(pod["metadata"].get("annotations", {}).get(INDEX, ""))


def age_of(stamp: str) -> float:
    return time.time() - datetime.fromisoformat(stamp).timestamp()


def find_condition(document: Document, kind: str) -> Document | None:
    return next((each for each in document["status"].get("conditions", ()) if each["type"] == kind), None)


def has_condition(document: Document, kind: str) -> bool:
    found = find_condition(document, kind)
    return found is not None and found["status"] == "True"


def set_condition(document: Document, kind: str, status: str, reason: str, message: str = "") -> bool:
    """Set a condition; True where that changed it."""
    conditions = document.setdefault("status", {}).setdefault("conditions", [])
    found = find_condition(document, kind)
    if found is not None and (found["status"], found.get("reason", ""), found.get("message", "")) == (
        status,
        reason,
        message,
    ):
        return False
    new: dict[str, Any] = {"type": kind, "status": status, "lastTransitionTime": second_stamp()}
    new |= {"reason": reason} if reason else {}
    new |= {"message": message} if message else {}
    document["status"]["conditions"] = [each for each in conditions if each["type"] != kind] + [new]
    return True


def policy_of(job: Document, pod: Document) -> str:
    """What the Job's podFailurePolicy says of a pod that failed."""
    for rule in (job["spec"].get("podFailurePolicy") or {}).get("rules", ()):
        conditions = rule.get("onPodConditions") or ()
        if any(has_condition(pod, each["type"]) for each in conditions):
            return str(rule["action"])
        codes = rule.get("onExitCodes")
        ends = [each["state"].get("terminated") for each in pod["status"].get("containerStatuses", ())]
        if codes and any(
            end and end["exitCode"] and (end["exitCode"] in codes["values"]) is (codes["operator"] == "In")
            for end in ends
        ):
            return str(rule["action"])
    return "Count"


def container_status(container: Document, state: Document, restarts: int, before: Document | None = None) -> Document:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": "running" in state,
        "restartCount": restarts,
        "state": state,
        "lastState": before or {},
    }


def gpus_of(spec: Document) -> int:
    return sum(int(each.get("resources", {}).get("limits", {}).get(GPU, 0)) for each in spec["containers"])


def gpus_on(node: Document) -> int:
    return int(node["status"]["allocatable"].get(GPU, 0))


def tolerates(spec: Document, taint: Document) -> bool:
    return any(
        (not each.get("key") or each["key"] == taint["key"]) and each.get("effect") in (None, "", taint["effect"])
        for each in spec.get("tolerations", ())
    )


def may_run(spec: Document, node: Document) -> bool:
    """Whether a node lets a pod in, and the pod wants it."""
    if node["spec"].get("unschedulable") or not has_condition(node, "Ready"):
        return False
    closed = [t for t in node["spec"].get("taints", ()) if t["effect"] in ("NoSchedule", "NoExecute")]
    if any(not tolerates(spec, taint) for taint in closed):
        return False
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term(term, node) for term in required["nodeSelectorTerms"])


def _term(term: Document, node: Document) -> bool:
    rules = [(rule, node["metadata"]["name"]) for rule in term.get("matchFields", ())]
    rules += [(rule, node["metadata"].get("labels", {}).get(rule["key"])) for rule in term.get("matchExpressions", ())]
    return all((found in rule["values"]) is (rule["operator"] == "In") for rule, found in rules)
