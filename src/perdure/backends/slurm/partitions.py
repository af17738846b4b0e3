"""The partitions that a job may start in: of several, Slurm tells only while the job waits.

From its start until it is put back its record names the one that it started in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from perdure.backends.slurm.outputs import JobOutputs, has_failed
from perdure.backends.slurm.records import JobRecord
from perdure.slurm_words.states import is_waiting


@dataclass(slots=True)
class Partitions:
    """Lists of partitions, by job or array, as they were last seen."""

    _seen: dict[str, str] = field(default_factory=dict)

    def note(self, records: Collection[JobRecord]) -> None:
        """Take the controller's jobs; what it has forgotten is forgotten here, too."""
        known = {_array(record) for record in records}
        self._seen = {job_id: listed for job_id, listed in self._seen.items() if job_id.partition("_")[0] in known}
        for record in records:
            if is_waiting(record.state) and "," in record.partition:
                self._seen[record.job_id] = record.partition
            elif is_waiting(record.state):  # its owner may have changed their mind
                self._seen.pop(record.job_id, None)

    def of_ended(self, records: Iterable[JobRecord], outputs: Mapping[str, JobOutputs]) -> list[JobRecord]:
        """The records, those of jobs that failed with all the partitions that they may start in.

        Of one that was never seen to wait, its script tells. A list that does not hold the partition that it started
        in is not the job's any more.
        """
        return [self._listed(record, outputs) for record in records]

    def _listed(self, record: JobRecord, outputs: Mapping[str, JobOutputs]) -> JobRecord:
        if not has_failed(record):
            return record
        said = outputs.get(record.job_id)
        listed = self._seen.get(record.job_id) or self._seen.get(_array(record)) or (said.partitions if said else "")
        return replace(record, partition=listed) if record.partition in listed.split(",") else record


def _array(record: JobRecord) -> str:
    return record.job_id.partition("_")[0]
