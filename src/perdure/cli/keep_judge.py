"""Whether a successor of a failed link would fail too: by its job's log, as ``perdure why`` reads it."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.cli.text import plain
from perdure.errors import PerdureError
from perdure.model.exits import NEVER_AGAIN, RETRY_ME
from perdure.retry.decide import DecisionKind
from perdure.succession.chain_state import JobChain, Link
from perdure.triage.verdict import CauseRole

MAX_LINE = 160  # of the log, in a sentence


def judge_link(chain: JobChain, link: Link) -> tuple[bool, str]:
    """Whether the failure passes, and why, in a sentence."""
    ended = link.marks.ended
    code = None if ended is None else ended.exit_code
    if code == NEVER_AGAIN:
        return False, f"it ended with exit code {code}, by which a program says that it is never to be run again"
    if code == RETRY_ME:
        return True, f"it ended with exit code {code}, by which a program asks to be run again"
    log = log_of(chain, link)
    if not log:
        return True, f"{link.why}, and its output cannot be found"
    from perdure.cli.diagnosis import diagnoser, rules_of
    from perdure.cli.logs import read_log
    from perdure.cli.options import load_settings

    try:
        settings = load_settings().settings
        found = diagnoser(settings)(log, read_log(log, rules_of(settings).matcher()).text)
    except PerdureError as err:
        return True, f"{link.why}, and its output cannot be read: {err.what}"
    lines = [line for line in found.verdict.shown_evidence if line.line]
    root = [line for line in lines if line.role is CauseRole.ROOT] or lines
    shown = [plain(line.text, MAX_LINE) for line in root[-1:]]
    says = ": ".join([found.verdict.summary or found.decision.reason, *shown])
    if not found.has_failed:
        return True, f"{link.why}, and its output shows no failure"
    return found.decision.kind is not DecisionKind.STOP, says


def log_of(chain: JobChain, link: Link) -> str:
    """The file of a link's output; "" where that is not known."""
    begun = link.marks.begun
    usual = os.path.join(chain.spec.directory, f"slurm-{link.job_id}.out")
    named = begun.stdout if begun is not None else ""
    return next((path for path in (named, usual) if path and Path(path).is_file()), "")
