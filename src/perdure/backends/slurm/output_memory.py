"""Where jobs that failed write to, and who ran alongside them in the same directories: kept from one look to the
next.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from perdure.backends.ownership import Span
from perdure.backends.rank_files import home_of, rivals
from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.accounts import Accounts
from perdure.backends.slurm.asking import KnownConfig
from perdure.backends.slurm.outputs import (
    JobOutputs,
    has_failed,
    may_have_been_warned,
    may_hold_others_lines,
    outputs_of,
)
from perdure.backends.slurm.records import JobRecord
from perdure.backends.slurm.sbatch import WalltimeWarning, partitions_of, warning_of
from perdure.backends.slurm.sbatch import appends as script_appends
from perdure.backends.slurm.siblings import siblings, writing
from perdure.backends.slurm.tools import Dialog, Dialogs
from perdure.errors import PerdureError
from perdure.model.jobs import Attempt

LINES_PAUSES_S = (0.0, 0.4, 0.8, 1.6, 3.2)
MAX_SCRIPTS = 500  # asked for in one look, a few ms each
MAX_OUTPUTS = 5000  # jobs that failed of which it is remembered where they write to


class OutputMemory:
    """What is known of the files of jobs that failed: from their scripts, and from the lines that submitted them."""

    def __init__(
        self, dialogs: Dialogs, accounts: Accounts, site: KnownConfig, told: Mapping[tuple[str, int], AccountingRow]
    ) -> None:
        """`told` are the ends that hooks have reported, by job and start."""
        self._dialogs, self._accounts, self._site, self._told = dialogs, accounts, site, told
        self.known: dict[str, JobOutputs] = {}  # of jobs that failed
        self._beside: dict[str, JobOutputs] = {}  # of others that ran in the same directories
        self._siblings: dict[str, tuple[JobRecord, ...]] = {}  # of jobs that failed
        self.hosts: dict[str, str] = {}  # names of nodes' machines, where they are not those of the nodes

    def ask_scripts(self, scontrol: Dialog, records: Sequence[JobRecord]) -> dict[str, bytes]:
        """The batch scripts of jobs that are new among those that failed; of an array one for all its tasks.

        Of too many, those of the jobs that ended last: the others failed before anybody looked.
        """
        failed = [record for record in records if self._is_newly_failed(record)]
        if failed or any(record.state == "COMPLETING" and record.exit_code for record in records):
            self._site.ask(scontrol)
        scripts: dict[str, bytes] = {}
        for record in sorted(failed, key=_ended_s, reverse=True):
            if len(scripts) == MAX_SCRIPTS:
                break
            array = record.job_id.partition("_")[0]
            if array not in scripts:
                answer = scontrol.ask(f"write batch_script {record.raw_id} -")
                scripts[array] = answer.out
        return scripts

    def _is_newly_failed(self, record: JobRecord) -> bool:
        """Whether an attempt of the job failed, and it is not known yet where it writes to."""
        known = self.known.get(record.job_id)
        if known is not None and known.are_of(record):
            return False
        told = self._told.get((record.job_id, record.start_s or 0))  # a hook may know before the record tells
        return has_failed(record) or record.restarts > 0 or (told is not None and told.has_failed)

    @property
    def _appends(self) -> bool:
        """Whether the site's jobs add to the files that they find."""
        return self._site.known is not None and self._site.known["JobFileAppend"] == "1"

    def note(
        self, records: Iterable[JobRecord], scripts: dict[str, bytes], rows: Iterable[AccountingRow]
    ) -> list[JobRecord]:
        """Remember where jobs that failed write to; return those of them whose scripts name files themselves."""
        found: list[JobRecord] = []
        lines = told_lines(rows) if scripts else {}
        for record in records:
            array = record.job_id.partition("_")[0]
            script = scripts.get(array)
            if script is not None and self._is_newly_failed(record):
                line = lines.get(array, "")
                told = script_appends(line) if line else self._is_line_missing(record)
                appends = self._appends or told
                outputs = outputs_of(record, script, self.hosts, appends, home_of(record.uid))
                warning = warning_of(line) or outputs.warning
                partitions = partitions_of(line) or outputs.partitions
                self.known[record.job_id] = replace(outputs, warning=warning, partitions=partitions)
                found += [record] if outputs.by_script else []
        while len(self.known) > MAX_OUTPUTS:
            del self.known[next(iter(self.known))]
        return found

    def note_siblings(self, failed: Iterable[JobRecord], records: Collection[JobRecord]) -> None:
        """Remember who ran alongside jobs that failed, in the same directories, and where these write to."""
        for job in failed:
            beside = siblings(job, records)
            self._note_scripts([r for r in beside if r.job_id not in self.known and r.job_id not in self._beside])
            known = self.known.keys() | self._beside.keys()
            self._siblings[job.job_id] = tuple(r for r in beside if r.job_id in known or r.name == job.name)
        for remembered in (self._beside, self._siblings):
            while len(remembered) > MAX_OUTPUTS:
                del remembered[next(iter(remembered))]

    def _note_scripts(self, records: Collection[JobRecord]) -> None:
        """Remember where jobs write to that have not failed; of what is not known nothing is remembered."""
        if not records:
            return
        with contextlib.suppress(PerdureError), self._dialogs.dialog() as scontrol:
            for record in records:
                answer = scontrol.ask(f"write batch_script {record.raw_id} -")
                if not answer.complaint:
                    outputs = outputs_of(record, answer.out, self.hosts, home=home_of(record.uid))
                    self._beside[record.job_id] = outputs

    def warnings(self, records: Iterable[JobRecord]) -> dict[str, WalltimeWarning]:
        """What jobs asked to be sent before their walltime, of those that a signal ended."""
        known = ((r.job_id, self.known[r.job_id].warning) for r in records if r.job_id in self.known)
        return {job_id: warning for job_id, warning in known if warning is not None}

    def in_doubt(self, records: Iterable[JobRecord], scripts: Collection[str]) -> set[str]:
        """Jobs and arrays of which only the line that submitted them tells whether they added to files of others.

        Or whether they asked for the signal that ended them.
        """
        new = (record for record in records if self._is_newly_failed(record))
        found = (record for record in new if may_hold_others_lines(record) or may_have_been_warned(record))
        return {record.job_id.partition("_")[0] for record in found} & set(scripts)

    def _is_line_missing(self, record: JobRecord) -> bool:
        """Whether it is in doubt whose lines a job's files hold, and accounting, which could tell, has not done so."""
        tells = self._accounts.tells_submit_line and self._site.known is not None and self._site.known.accounts
        return tells and may_hold_others_lines(record)

    def submit_lines(self, which: Collection[str], until_s: float) -> tuple[AccountingRow, ...]:
        """How these jobs were submitted, as far as accounting has heard of it by an instant.

        It hears of a start, and of an end, a while before it hears of the line.
        """
        rows: tuple[AccountingRow, ...] = ()
        with contextlib.suppress(PerdureError):
            for pause_s in LINES_PAUSES_S if which else ():
                time.sleep(max(0.0, min(pause_s, until_s - time.time())))
                rows = self._accounts.ask("-j", ",".join(sorted(which)), submit_lines=True)
                if (
                    not self._accounts.tells_submit_line
                    or told_lines(rows).keys() >= set(which)
                    or time.time() >= until_s
                ):
                    break
        return rows

    def rivals_of(self, path: str, attempt: Attempt) -> tuple[Span, ...]:
        """The jobs alongside an attempt's that may have written to a file of a rank."""
        beside = self._siblings.get(attempt.id.job_id, ())
        return rivals(path, attempt, writing(beside, ChainMap(self.known, self._beside)))


def _ended_s(record: JobRecord) -> float:
    """When an attempt that failed ended; of one that was put back since, now."""
    return math.inf if record.end_s is None else record.end_s


def told_lines(rows: Iterable[AccountingRow]) -> dict[str, str]:
    """How jobs and arrays were submitted, by their numbers, where accounting has heard of it."""
    return {row.job_id.partition("_")[0]: row.submit_line for row in rows if row.submit_line}
