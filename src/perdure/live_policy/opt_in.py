"""Which jobs a policy may touch. All others are left alone, in every way."""

from __future__ import annotations

from perdure.live_policy.settings import PolicySettings
from perdure.model.jobs import JobState, PolicyConsent
from perdure.waits.queue import QueuedJob

NO_GPU = "it asks for no GPU"


def consent_of(job: QueuedJob, settings: PolicySettings) -> PolicyConsent:
    """What the policy may do with a job, by its owner's word or the site's.

    One that may start in several partitions takes part where all of them do.
    """
    by_site = bool(job.partitions) and set(job.partitions) <= set(settings.partitions)
    said = [job.consent if settings.owners else PolicyConsent.NONE]
    said.append(PolicyConsent.PREEMPT if job.qos and job.qos in settings.preempt_qos else PolicyConsent.NONE)
    said.append(PolicyConsent.ORDER if by_site or (job.qos and job.qos in settings.qos) else PolicyConsent.NONE)
    return max(said, key=list(PolicyConsent).index)


def unfit(job: QueuedJob) -> str:
    """Why a job that opted in is left to the resource manager all the same; "" mostly."""
    if job.parts > 1 or "+" in job.job_id:
        return "it is a heterogeneous job"
    if job.gpus < 1:
        return NO_GPU
    if job.state is JobState.HELD or (job.is_waiting and job.priority < 1):
        return "somebody holds it"
    if job.state is JobState.SUSPENDED:
        return "it is suspended"
    return ""
