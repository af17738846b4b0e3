"""``perdure why JOBID``: what the service found about a job."""

from __future__ import annotations

from typing import Any

from perdure.cli.output import instant, print_json, print_line, print_table
from perdure.service.client import Client, segment

NO_FINDING = ("", "retry")


def explain_job(job_id: str, client: Client, as_json: bool) -> bool:
    """Print a job's attempts, verdicts and decisions; True where the latest failure needs more than a retry."""
    found = client.get(f"/jobs/{segment(job_id)}")
    if as_json:
        print_json("job", 1, **found)
    else:
        _print(found)
    return bool(found["exceptions"]) and found["exceptions"][0]["decision"] not in NO_FINDING


def _print(found: dict[str, Any]) -> None:
    job = found["job"]
    print_line(f"{job['job_id']}  {job['state']}  {job['name']}  ({job['user']})")
    rows = (
        [a["incarnation"], a["state"], " ".join(a["nodes"]), instant(a["start_s"]), _summary(a)]
        for a in found["attempts"]
    )
    print_table(("ATTEMPT", "STATE", "NODES", "STARTED", "WHY"), rows, whole=("ATTEMPT", "STATE", "STARTED"))


def _summary(attempt: dict[str, Any]) -> str:
    verdict = attempt["verdict"]
    return str(verdict["summary"]) if verdict else ""
