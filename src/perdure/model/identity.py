"""Who is meant: one attempt of one job on one cluster."""

from __future__ import annotations

from msgspec import Struct


class AttemptId(Struct, frozen=True, order=True):
    """One execution of a job.

    `incarnation` is a fencing token: a whole number that grows with every start of the job, never reused.
    A resource manager's own restart count is not enough: after a crash of its controller Slurm has been seen
    to start a job a second time under the same count. Each backend says how it makes one (Slurm: the start
    instant in whole seconds; two starts are at least a requeue delay apart). 0 means "never started".

    >>> str(AttemptId("prod", "4711_3", 2))
    'prod/4711_3#2'
    """

    cluster: str
    job_id: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.job_id}#{self.incarnation}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        """Read what `str` wrote. Raises `ValueError` on anything else."""
        job, _, incarnation = text.rpartition("#")
        cluster, slash, job_id = job.partition("/")
        if not (cluster and slash and job_id and incarnation.isdecimal()):
            raise ValueError(f"{text!r} is not CLUSTER/JOB#INCARNATION")
        return cls(cluster, job_id, int(incarnation))
