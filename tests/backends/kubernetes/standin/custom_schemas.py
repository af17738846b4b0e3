"""What an object of JobSet, Kueue or Kubeflow may hold, as their published types say.

Own work: names, types and limits of the fields that a job's owner, its controller or Perdure writes (JobSet v1alpha2,
Kueue v1beta1 and v1beta2, training operator v1). A name that is not here is refused, as
`kubectl apply --validate=strict` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
NAME: Schema = {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
TEMPLATE: Schema = {"$ref": "#/$defs/io.k8s.api.core.v1.PodTemplateSpec"}
JOB_SPEC: Schema = {"$ref": "#/$defs/io.k8s.api.batch.v1.JobSpec"}
METADATA: Schema = {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}


def record(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def listed(each: Schema, least: int = 0, most: int | None = None) -> Schema:
    return {"type": "array", "items": each, "minItems": least, **({} if most is None else {"maxItems": most})}


def by_name(each: Schema) -> Schema:
    return {"type": "object", "additionalProperties": each}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


CONDITION = record(
    ("type", "status", "reason", "message", "lastTransitionTime"),
    type=TEXT,
    status=one_of("True", "False", "Unknown"),
    reason={"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    message={"type": "string", "maxLength": 32768},
    lastTransitionTime=TIME,
    observedGeneration=COUNT,
)

REPLICATED_JOB = record(
    ("name", "template"),
    name=TEXT,
    groupName=TEXT,
    template=record(metadata={"type": "object"}, spec=JOB_SPEC),
    replicas=COUNT,
    dependsOn=listed(record(("name", "status"), name=TEXT, status=one_of("Ready", "Complete")), most=10),
)
RESTART_ACTIONS = ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts")
JOB_SET = record(
    suspend=FLAG,
    replicatedJobs=listed(REPLICATED_JOB),
    network=record(enableDNSHostnames=FLAG, subdomain=TEXT, publishNotReadyAddresses=FLAG),
    successPolicy=record(("operator",), operator=one_of("All", "Any"), targetReplicatedJobs=listed(TEXT)),
    failurePolicy=record(
        maxRestarts=COUNT,
        restartStrategy=one_of("Recreate", "BlockingRecreate", "InPlaceRestart"),
        rules=listed(
            record(
                ("name", "action"),
                name=TEXT,
                action=one_of(*RESTART_ACTIONS),
                targetReplicatedJobs=listed(TEXT),
                onJobFailureReasons=listed(TEXT),
            )
        ),
    ),
    startupPolicy=record(("startupPolicyOrder",), startupPolicyOrder=one_of("AnyOrder", "InOrder")),
    coordinator=record(("replicatedJob",), replicatedJob=TEXT, jobIndex=COUNT, podIndex=COUNT),
    managedBy=TEXT,
    ttlSecondsAfterFinished=COUNT,
)
JOBS_COUNTED = record(("name",), name=TEXT, ready=COUNT, succeeded=COUNT, failed=COUNT, active=COUNT, suspended=COUNT)
JOB_SET_STATUS = record(
    conditions=listed(CONDITION),
    restarts=COUNT,
    restartsCountTowardsMax=COUNT,
    terminalState=TEXT,
    replicatedJobsStatus=listed(JOBS_COUNTED),
)

POD_SET = record(
    ("name", "template", "count"),
    name=NAME,
    template=TEMPLATE,
    count=COUNT,
    minCount=COUNT,
    topologyRequest=by_name({}),
)
WORKLOAD: Schema = {
    "podSets": listed(POD_SET, 1, 8),
    "queueName": TEXT,
    "priority": {"type": "integer"},
    "active": FLAG,
    "maximumExecutionTimeSeconds": {"type": "integer", "minimum": 1},
}
PRIORITY_V1BETA1: Schema = {
    "priorityClassName": TEXT,
    "priorityClassSource": one_of("kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""),
}
PRIORITY_V1BETA2: Schema = {
    "priorityClassRef": record(
        ("group", "kind", "name"),
        group=one_of("kueue.x-k8s.io", "scheduling.k8s.io"),
        kind=one_of("WorkloadPriorityClass", "PriorityClass"),
        name=TEXT,
    )
}
WORKLOAD_STATUS = {
    "conditions": listed(CONDITION),
    "admission": record(("clusterQueue",), clusterQueue=TEXT, podSetAssignments=listed(by_name({}))),
    "requeueState": record(count=COUNT, requeueAt=TIME),
    "admissionChecks": listed(by_name({})),
    "reclaimablePods": listed(record(("name", "count"), name=NAME, count=COUNT)),
}

# Its conditions are older than those of the API machinery: a reason and a message may be missing.
OPERATOR_CONDITION = record(
    ("type", "status"),
    type=TEXT,
    status=one_of("True", "False", "Unknown"),
    reason=TEXT,
    message=TEXT,
    lastUpdateTime=TIME,
    lastTransitionTime=TIME,
)
REPLICAS = by_name(
    record(replicas=COUNT, template=TEMPLATE, restartPolicy=one_of("Always", "OnFailure", "Never", "ExitCode"))
)
PYTORCH_JOB = record(
    ("pytorchReplicaSpecs",),
    runPolicy=record(
        cleanPodPolicy=one_of("", "All", "Running", "None"),
        ttlSecondsAfterFinished=COUNT,
        activeDeadlineSeconds=COUNT,
        backoffLimit=COUNT,
        schedulingPolicy=by_name({}),
        suspend=FLAG,
        managedBy=TEXT,
    ),
    elasticPolicy=by_name({}),
    nprocPerNode=TEXT,
    pytorchReplicaSpecs={**REPLICAS, "propertyNames": {"enum": ["Master", "Worker"]}},
)
PYTORCH_JOB_STATUS = record(
    conditions=listed(OPERATOR_CONDITION),
    replicaStatuses=by_name(record(active=COUNT, succeeded=COUNT, failed=COUNT, selector=TEXT)),
    startTime=TIME,
    completionTime=TIME,
    lastReconcileTime=TIME,
)


def _object(spec: Schema, status: Schema) -> Schema:
    return record(("metadata", "spec"), apiVersion=TEXT, kind=TEXT, metadata=METADATA, spec=spec, status=status)


CUSTOM_SCHEMAS: Mapping[tuple[str, str], Schema] = {  # by apiVersion and kind
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _object(JOB_SET, JOB_SET_STATUS),
    ("kueue.x-k8s.io/v1beta1", "Workload"): _object(record(**WORKLOAD, **PRIORITY_V1BETA1), record(**WORKLOAD_STATUS)),
    ("kueue.x-k8s.io/v1beta2", "Workload"): _object(
        record(**WORKLOAD, **PRIORITY_V1BETA2), record(**WORKLOAD_STATUS, accumulatedPastExecutionTimeSeconds=COUNT)
    ),
    ("kubeflow.org/v1", "PyTorchJob"): _object(PYTORCH_JOB, PYTORCH_JOB_STATUS),
}
