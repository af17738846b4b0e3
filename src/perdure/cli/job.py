"""``perdure why JOBID``: what the service found about a job."""

from __future__ import annotations

import time
from typing import Any

from perdure.cli.diagnosis import Diagnosis
from perdure.cli.output import clock, print_json, print_line, print_table
from perdure.cli.picture import picture_of
from perdure.cli.service_client import Client, segment
from perdure.cli.table import names, text, word
from perdure.cli.text import MAX_JOB_NAME, plain
from perdure.coordination.record import REQUEUE_LOOP, ExceptionOutcome
from perdure.errors import NotFound
from perdure.installation import to_type
from perdure.retry.decide import Decision, DecisionKind
from perdure.service.store.queries.places import NodeFailures, in_words
from perdure.triage.verdict import CauseRole, Evidence, Label, Verdict

ATTEMPTS = (word("ATTEMPT"), word("STATE"), names("NODES"), word("STARTED", leave=1), text("WHY"))
ACTIONS = (word("ACTION"), word("STATE"), word("BY", leave=2), word("DECIDED", leave=1), text("RESULT"))
TASKS = (word("TASK"), word("STATE"), word("FAILURE"), word("DECISION"))
MAX_TASKS = 200  # shown of an array
MAX_ACTIONS = 10  # shown of a job


def explain_job(job_id: str, client: Client, as_json: bool, *, wide: bool = False) -> Diagnosis | None:
    """Print a job's latest failure and its attempts; that failure, None where there is none."""
    try:
        found = client.get(f"/jobs/{segment(job_id)}")
    except NotFound as err:
        if not (tasks := _tasks_of(job_id, client)):
            raise NotFound(err.where, f"{err.what}; {picture_of(client).age(time.time())}", err.fix) from err
        _explain_array(job_id, tasks, as_json, wide)
        return None
    latest = latest_diagnosis(found)
    if as_json:
        print_json("job", 1, **found)
    else:
        _print(found, latest, wide=wide)
    return latest


def _tasks_of(array: str, client: Client) -> list[dict[str, Any]]:
    """The tasks that are known of an array, whose own id is not a job any more once all of them have started."""
    if not array.isdecimal():
        return []
    found = client.get("/jobs", q=array, limit=MAX_TASKS)["items"]
    tasks = [job for job in found if job["job_id"].startswith(f"{array}_")]
    return sorted(tasks, key=lambda job: (len(job["job_id"]), job["job_id"]))


def _explain_array(array: str, tasks: list[dict[str, Any]], as_json: bool, wide: bool) -> None:
    """Print the states of an array's tasks; each is a job of its own."""
    if as_json:
        print_json("array", 1, job_id=array, tasks=tasks)
        return
    first = to_type(f"perdure why {tasks[0]['job_id']}")
    print_line(f"job {array} is an array; each task is a job of its own: {first}")
    failed = [job["failure"] or {} for job in tasks]
    rows = (
        (job["job_id"], job["state"], failure.get("category", ""), failure.get("decision", ""))
        for job, failure in zip(tasks, failed, strict=True)
    )
    print_table(TASKS, rows, wide=wide)


def correct_job(job_id: str, label: str, incarnation: int | None, client: Client) -> None:
    """Tell the service what a job's failure was: its latest judged one, unless `incarnation` names another.

    With the label "none" the latest correction is taken back. Raises `NotFound` where there is nothing to correct.
    """
    which = incarnation
    if which is None:
        which = next(iter(_corrected(job_id, client) if label == "none" else _judged(job_id, client)), None)
    if which is None:
        what = "you have made no correction" if label == "none" else "it has no verdict to correct"
        raise NotFound(f"job {job_id}", what, f"See perdure why {job_id} and perdure learn")
    client.post(f"/jobs/{segment(job_id)}/attempts/{which}/correction", {"label": label})
    noted = f"noted: {label}; verdicts on what looks alike follow it"
    said = "correction taken back" if label == "none" else noted + _for_whom(job_id, which, client)
    print_line(f"job {job_id}, attempt {which}: {said}")


def _judged(job_id: str, client: Client) -> list[int]:
    """The attempts that have a verdict, the latest first."""
    return [a["incarnation"] for a in client.get(f"/jobs/{segment(job_id)}")["attempts"] if a["verdict"]]


def _corrected(job_id: str, client: Client) -> list[int]:
    """The attempts whose verdict was corrected, the latest correction first."""
    return [c["incarnation"] for c in sorted(_words(job_id, client), key=lambda c: -c["time_s"])]


def _words(job_id: str, client: Client) -> list[dict[str, Any]]:
    """What persons said of the failures of a job."""
    found: list[dict[str, Any]] = client.get(f"/jobs/{segment(job_id)}")["corrections"]
    return found


def _for_whom(job_id: str, incarnation: int, client: Client) -> str:
    of_operator = any(c["incarnation"] == incarnation and c["for_all"] for c in _words(job_id, client))
    return "" if of_operator else ", for your own jobs until an operator confirms it"


def latest_diagnosis(found: dict[str, Any]) -> Diagnosis | None:
    """The latest failure that was judged and decided, out of the service's answer."""
    decided = {e["incarnation"]: e for e in found["exceptions"] if e["decided"]}
    for attempt in found["attempts"]:
        if attempt["verdict"] and attempt["incarnation"] in decided:
            job_id = found["job"]["job_id"]
            failure = decided[attempt["incarnation"]]
            verdict, decision = _verdict(attempt["verdict"]), _decision(failure["decided"])
            return Diagnosis(
                f"job {job_id}", verdict, decision, job_id, found.get("elsewhere", ""), decided_s=_handled_s(failure)
            )
    return None


def _handled_s(failure: dict[str, Any]) -> float:
    """When a failure was decided; when it was raised where the record does not say."""
    answers = failure["record"].get("verdicts", ())
    return float(next((answer["time"] for answer in answers if answer["verdict"] == "handled"), failure["time_s"]))


def _verdict(found: dict[str, Any]) -> Verdict:
    """Evidence is null for those who may not read the log."""
    lines = (Evidence(e["line"], e["text"], CauseRole(e["role"]), e["rule"]) for e in found["evidence"] or ())
    return Verdict(
        Label(found["label"]),
        found["p_transient"],
        found["category"],
        found["summary"],
        tuple(lines),
        advice=found["advice"],
        ending=found.get("ending", ""),
    )


def _decision(found: dict[str, Any]) -> Decision:
    return Decision(DecisionKind(found["kind"]), found["reason"], tuple(found["exclude"]), found["delay_s"],
                    p_transient=found["p_transient"])  # fmt: skip


def _print(found: dict[str, Any], latest: Diagnosis | None, *, wide: bool) -> None:
    if latest is not None:
        from perdure.cli.card import print_card

        print_card(latest)
    job = found["job"]
    why = f": it {job['waits']}" if job.get("waits") else _because(job["reason"])
    print_line(f"job {job['job_id']}, {plain(job['name'], MAX_JOB_NAME)!r} of {job['user']}, is {job['state']}{why}")
    for place in found["places"]:
        print_line(in_words(NodeFailures(**place)))
    rows = (
        (a["incarnation"], a["state"], " ".join(a["nodes"]), clock(a["start_s"]), _summary(a))
        for a in found["attempts"]
    )
    if found["attempts"]:
        print_table(ATTEMPTS, rows, wide=wide)
    for said in found.get("corrections", ()):
        confirmed = f", confirmed by {said['confirmed_by']}" if said["confirmed_by"] else ""
        print_line(f"attempt {said['incarnation']} was {said['label']}, by the word of {said['by']}{confirmed}")
    _print_actions([action for action in found["actions"] if action["kind"] != "comment"], wide=wide)
    for raised in found["exceptions"]:
        if raised["type"] == REQUEUE_LOOP and raised["record"]["outcome"] == ExceptionOutcome.OPEN:
            print_line(f"{raised['type']}, open: {raised['record']['note']}")
        if raised["type"].startswith("app.") and (note := raised["record"].get("note")):
            print_line(f"attempt {raised['incarnation']} says {raised['type']}: {note}")
    for attempt in found["attempts"]:
        if reached := attempt.get("reached"):
            print_line(f"attempt {attempt['incarnation']} {reached}")
        if kept := attempt.get("kept_log"):
            print_line(f"log of attempt {attempt['incarnation']}: {kept} (zcat shows it)")


def _print_actions(actions: list[dict[str, Any]], *, wide: bool) -> None:
    """What was done about it and the results, the latest first."""
    rows = [(a["kind"], a["state"], a["by"], clock(a["created_s"]), a["detail"]) for a in actions[:MAX_ACTIONS]]
    if rows:
        print_table(ACTIONS, rows, wide=wide)


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _summary(attempt: dict[str, Any]) -> str:
    verdict = attempt["verdict"]
    return str(verdict["summary"]) if verdict else ""
