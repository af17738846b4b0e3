"""What `perdure doctor` checks of HTCondor: its answer, records of runs, rights, and what draining would end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.backends.condor.ads import ClassAd, expression, number, text, whole
from perdure.backends.condor.plans import LEAST_RETIREMENT_S
from perdure.backends.condor.settings import CondorSettings, identity_of
from perdure.backends.condor.tools import CondorTools
from perdure.backends.kind import ActingService, CheckResult, Checkup, Mark
from perdure.errors import PerdureError

PAGE = "see docs/condor.md"


def check_schedd(
    settings: CondorSettings, holder: Callable[[str], ActingService], tools: CondorTools | None = None
) -> Checkup:
    """Ask the schedd and its pool; one line a finding. Raises `ConfigError` where there are no tools."""
    asked = tools or CondorTools(settings)
    try:
        jobs = asked.read(asked.ask_queue("condor_q", "-allusers", "-json", "-attributes", "OnExitHold"), "condor_q")
        fields = "Machine,JobId,RetirementTimeRemaining,TotalGPUs"
        slots = asked.read(asked.ask_pool("condor_status", "-json", "-attributes", fields), "condor_status")
        return Checkup(list(_findings(asked, jobs, slots, holder)), answered=True)
    except PerdureError as err:
        return Checkup([CheckResult(Mark.FAIL, f"HTCondor does not answer: {err.what}", err.fix)], answered=False)


def _findings(
    tools: CondorTools, jobs: list[ClassAd], slots: list[ClassAd], holder: Callable[[str], ActingService]
) -> Iterator[CheckResult]:
    machines = {text(slot, "Machine"): whole(slot, "TotalGPUs") for slot in slots}
    what = f"{len(jobs)} jobs in the queue of {tools.schedd}, {len(machines)} machines, {sum(machines.values())} GPUs"
    yield CheckResult(Mark.OK, what)
    yield _of_records(tools)
    kept = sum(expression(job, "OnExitHold") not in ("", "false") for job in jobs)
    if jobs and not kept:
        fix = f"Let owners write on_exit_hold, or set it for all by a job transform: {PAGE}"
        yield CheckResult(Mark.WARN, "no job stays in the queue when it fails: none can be put back", fix)
    elif jobs:
        yield CheckResult(Mark.OK, f"{kept} of {len(jobs)} jobs stay in the queue when they fail")
    short = sorted({text(s, "Machine") for s in slots if text(s, "JobId") and _evicts_soon(s)})
    if short:
        fix = f"Set MAXJOBRETIREMENTTIME of the startds to the longest job: {PAGE}"
        yield CheckResult(Mark.WARN, f"draining {short[0]} would end its jobs: it is refused", fix)
    acting = holder(identity_of(tools.schedd, tools.settings))
    if acting.told and not acting.is_own:
        what = f"another service acts on this schedd: {acting.told}"
        yield CheckResult(Mark.WARN, what, "Stop it before perdure up --act")


def _of_records(tools: CondorTools) -> CheckResult:
    answer = tools.ask_queue("condor_history", "-epochs", "-limit", "1", "-json", "-attributes", "ClusterId")
    if answer.code == 0:
        return CheckResult(Mark.OK, "HTCondor keeps a record of each run")
    fix = f"Set JOB_EPOCH_HISTORY on the schedd's machine, and run Perdure there: {PAGE}"
    return CheckResult(Mark.WARN, f"records of runs cannot be read: {answer.complaint}", fix)


def _evicts_soon(slot: ClassAd) -> bool:
    return (number(slot, "RetirementTimeRemaining") or 0.0) < LEAST_RETIREMENT_S
