"""Jobs as their owners write them."""

from __future__ import annotations

from typing import Any

from perdure.backends.check_harness import Program

NAMESPACE = "team"


def job(name: str, program: Program, gpus: int = 4, **spec: Any) -> dict[str, Any]:
    """A Job of one pod a node, which takes all GPUs there; a program that works is started again by its controller."""
    annotations = {} if program.may_requeue else {"perdure.dev/retry": "never"}
    if program.min_nodes:
        annotations["perdure.dev/nodes"] = f"{program.min_nodes}-{program.node_count}"
    labels = {"stand-in/gang": "true"} if program.node_count > 1 else {}
    container = {
        "name": "main",
        "image": "trainer",
        "args": [program.says, str(program.run_s), str(program.exit_code)],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"perdure.dev/managed": "true"},
            "annotations": annotations,
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": program.node_count,
            "parallelism": program.node_count,
            "backoffLimit": 0 if program.exit_code else 3,
            "activeDeadlineSeconds": 3600,
            "template": {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [container]}},
            **spec,
        },
    }
