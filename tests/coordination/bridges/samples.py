"""A small text of each format, with at least one failure in it."""

import json

NOW = 1_763_720_000.0

FLUX = "\n".join(
    json.dumps(event)
    for event in (
        {"timestamp": 1763710000.1, "name": "submit", "context": {"userid": 1000, "urgency": 16}},
        {"timestamp": 1763710001.0, "name": "start"},
        {
            "timestamp": 1763710009.5,
            "name": "exception",
            "context": {"type": "exec", "severity": 0, "note": "node failure on vm (rank 2)", "userid": 1000},
        },
        {"timestamp": 1763710010.0, "name": "finish", "context": {"status": 9}},
        {"timestamp": 1763710010.5, "name": "clean"},
    )
)  # fmt: skip

TORCHELASTIC = json.dumps(
    {
        "message": {
            "message": "RuntimeError: NCCL error: unhandled system error",
            "extraInfo": {"py_callstack": "Traceback\n  train.py\nRuntimeError: NCCL error", "timestamp": "1763710000"},
            "errorCode": -6,
        },
        "rank": 3,
        "hostname": "n7",
    }
)

PMIX = json.dumps(
    {
        "status": "PMIX_EVENT_NODE_DOWN",
        "range": "PMIX_RANGE_SESSION",
        "source": {"nspace": "slurm.pmix.4711.0", "rank": 0},
        "info": {
            "pmix.hname": "n7",
            "pmix.evproc": {"nspace": "slurm.pmix.4711.0", "rank": 3},
            "pmix.evtstamp": 1763710000,
        },
    }
)

HEALTH = {
    "version": 1,
    "agent": "syslog-health-monitor",
    "componentClass": "GPU",
    "checkName": "SysLogsXIDError",
    "isFatal": True,
    "isHealthy": False,
    "message": "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS",
    "recommendedAction": "RESTART_BM",
    "errorCode": ["79"],
    "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:17:00"}, {"entityType": "GPU", "entityValue": "3"}],
    "generatedTimestamp": "2025-11-21T08:00:00Z",
    "nodeName": "n7",
}

NODE = {
    "kind": "Node",
    "metadata": {"name": "n7"},
    "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "timeAdded": "2025-11-21T08:00:05Z"}]},
    "status": {
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": "2025-11-21T08:00:00Z",
            },
        ]
    },
}

POD = {
    "kind": "Pod",
    "metadata": {
        "name": "train-3-x",
        "namespace": "ml",
        "uid": "u-1",
        "labels": {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/job-completion-index": "3"},
    },
    "spec": {"nodeName": "n7"},
    "status": {
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 1,
                "state": {
                    "terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2025-11-21T08:00:00Z"},
                },
            }
        ]
    },
}

SLURM = """\
perdure-event 1 end
JOBID=7
ARRAYJOBID=5
ARRAYTASKID=3
UID=1000
USERNAME=ada
JOBSTATE=NODE_FAIL
EXITCODE=0:0
SUBMIT=1763709000
START=1763709100
END=1763710000
NODES=n[1-2]
perdure-event 1 node
EVENT=down
NODES=n[1-2]
TIME=1763710001
NodeName=n3 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=1 Reason=Prolog error [root@2025-11-21T08:00:00]
9|PENDING|launch failed requeued held|
"""

SAMPLES = {
    "torchelastic": TORCHELASTIC,
    "flux": FLUX,
    "pmix": PMIX,
    "nvsentinel": json.dumps(HEALTH),
    "kubernetes": f"{json.dumps(NODE)}\n{json.dumps(POD)}",
    "slurm": SLURM,
}
