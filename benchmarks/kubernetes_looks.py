"""What a look at a large Kubernetes cluster costs: ``python -m benchmarks.kubernetes_looks --jobs 2000 --nodes 1000``.

Objects are made in memory as a watch brings them, each Job with a gang of four pods, one in ten failed; the HTTP
side is left out. Prints the size of the JSON and the processor time of one look (`picture.jobs_in`, `nodes_in`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.backends.checks import Program
from perdure.backends.kubernetes.backend import _needed_of_node, _needed_of_pod
from perdure.backends.kubernetes.held import HeldObject, MirrorView
from perdure.backends.kubernetes.picture import QuietJob, ReadingRules, Sighted, jobs_in, nodes_in
from perdure.backends.kubernetes.workloads import JOB
from tests.backends.kubernetes.manifests import job
from tests.backends.kubernetes.standin.cluster import node

PODS = 4
LOOKS = 3


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job_with_pods(number: int, nodes: int, now: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A Job that runs, or has failed, and its pods."""
    made, uid = job(f"train-{number}", Program(node_count=PODS, run_s=60.0)), f"job-{number}"
    has_failed = number % 10 == 0
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "lastTransitionTime": stamp(now - 5),
    }
    made["metadata"] |= {"uid": uid, "resourceVersion": "1", "creationTimestamp": stamp(now - 600)}
    made["status"] = {"conditions": [failed]} if has_failed else {}
    pods = []
    for place in range(PODS):
        state: dict[str, Any] = {"running": {"startedAt": stamp(now - 500)}}
        if has_failed:
            ended = {"exitCode": 1, "reason": "Error", "startedAt": stamp(now - 500), "finishedAt": stamp(now - 10)}
            state = {"terminated": ended}
        status = {
            "phase": "Failed" if has_failed else "Running",
            "containerStatuses": [{"name": "main", "state": state}],
        }
        owner = {"kind": "Job", "name": f"train-{number}", "uid": uid, "controller": True}
        metadata = {
            "name": f"train-{number}-{place}-abcde", "namespace": "team", "uid": f"{uid}-{place}",
            "resourceVersion": "1", "creationTimestamp": stamp(now - 590), "ownerReferences": [owner],
            "labels": {"batch.kubernetes.io/job-completion-index": str(place), "job-name": f"train-{number}"},
        }  # fmt: skip
        spec = {**made["spec"]["template"]["spec"], "nodeName": f"node{(number * PODS + place) % nodes}"}
        pods.append({"metadata": metadata, "spec": spec, "status": status})
    return made, pods


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--jobs", type=int, default=2000)
    options.add_argument("--nodes", type=int, default=1000)
    given, now = options.parse_args(), time.time()
    made = [job_with_pods(number, given.nodes, now) for number in range(given.jobs)]
    pods = [pod for _, each in made for pod in each]
    nodes = [node(f"node{number}", 8) for number in range(given.nodes)]
    for each in nodes:
        each["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    seen = Sighted(
        {JOB: view([document for document, _ in made])},
        view([_needed_of_pod(pod) for pod in pods]),
        view([_needed_of_node(each) for each in nodes]),
    )
    took_s: list[float] = []
    memory: dict[str, QuietJob] = {}
    for _ in range(1 + LOOKS):
        began_s = time.process_time()
        jobs = jobs_in(seen, ReadingRules("c"), now, memory)
        found = nodes_in(seen)
        took_s.append(time.process_time() - began_s)
    size = len(msgspec.json.encode([*pods, *nodes, *(document for document, _ in made)]))
    attempts = sum(len(each.attempts) for each in jobs)
    print(
        f"{len(jobs)} Jobs, {attempts} attempts, {len(pods)} pods, {len(found)} nodes; {size / 2**20:.1f} MiB of JSON"
    )
    later_ms = statistics.median(took_s[1:]) * 1000
    print(f"the first look: {took_s[0] * 1000:.0f} ms of a processor; one later, nothing new: {later_ms:.0f} ms")


def view(documents: list[Any]) -> MirrorView:
    return MirrorView(tuple(map(HeldObject, documents)))


if __name__ == "__main__":
    main()
