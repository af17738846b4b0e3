"""Accounting, as ``sacct`` reads it and ``sacctmgr`` writes into it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from perdure.backends.slurm import accounting
from perdure.backends.slurm.account_lines import AccountLines
from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.het import merge_rows
from perdure.backends.slurm.plans import Accounted
from perdure.backends.slurm.tools import Tools
from perdure.errors import ClusterBusy, ClusterError


class Accounts:
    """The two tools, with what is known of this site's: its fields, and the lines that were written."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._fields: tuple[str, ...] = ()
        self.tells_submit_line = False  # known from the first question on
        self.lines = AccountLines()

    def ask(self, *which: str, submit_lines: bool = False) -> tuple[AccountingRow, ...]:
        """The rows that the arguments of ``sacct`` choose. Raises `ClusterBusy` and `ClusterError`."""
        if not self._fields:
            known = self._tools.run("sacct", "--helpformat").out
            self._fields = accounting.known_fields(known)
            self.tells_submit_line = accounting.SUBMIT_LINE.encode() in known.split()
        delimiter = secrets.token_hex(16)
        asked = submit_lines and self.tells_submit_line
        fields = (*self._fields, *([accounting.SUBMIT_LINE] if asked else []))
        answer = self._tools.run(*accounting.arguments(fields, delimiter, *which))
        if answer.code:
            raise ClusterBusy("sacct", answer.complaint or f"exit code {answer.code}", "Run `sacctmgr ping`")
        rows, unreadable = accounting.read_rows(answer.out, fields, delimiter)
        if unreadable and not rows:
            raise ClusterError("sacct", f"none of {unreadable} rows can be read", "Report this with Slurm's version")
        return merge_rows(rows)

    def write(self, what: Sequence[Accounted]) -> None:
        """Write into jobs' records, all by one process. Raises `ClusterBusy` where accounting does not answer."""
        if not what:
            return
        lines = []
        for each in what:
            own = f' Comment="{each.text}"' if each.in_comment else ""
            where = f" cluster={self._tools.cluster}" if self._tools.cluster else ""
            lines.append(f'modify job where jobid={each.job_id}{where} set AdminComment="{each.text}"{own}\n')
        answer = self._tools.run("sacctmgr", "-i", "-Q", stdin="".join(lines).encode())
        if b"Modified" not in answer.out and b"Nothing modified" not in answer.out:
            raise ClusterBusy("sacctmgr", answer.complaint, "Run `sacctmgr ping`")
        self.lines.note(what)
