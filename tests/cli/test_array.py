"""``perdure why`` of an array, by the id that sbatch printed."""

import json
from typing import Any

import pytest

from perdure.cli.job import explain_job
from perdure.cli.service_client import Client
from perdure.errors import NotFound

FAILURE = {"category": "net", "decision": "retry", "state": "handled"}
TASKS = [
    {"job_id": "9_10", "state": "running", "failure": None},
    {"job_id": "9_2", "state": "failed", "failure": FAILURE},
    {"job_id": "99_1", "state": "failed", "failure": None},
]


class Service(Client):
    """Knows the tasks of an array; the array itself is not a job any more."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "")

    def get(self, path: str, **query: Any) -> dict[Any, Any]:
        if path != "/jobs":
            raise NotFound("job", "no such job is known", "See perdure jobs")
        return {"items": TASKS if query["q"] == "9" else []}


def test_the_tasks_of_an_array_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_job("9", Service(), as_json=False) is None
    said = capsys.readouterr().out
    assert "perdure why 9_2" in said
    assert said.index("9_2 ") < said.index("9_10 ")
    assert "99_1" not in said
    assert "retry" in said


def test_they_are_listed_for_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    explain_job("9", Service(), as_json=True)
    assert [task["job_id"] for task in json.loads(capsys.readouterr().out)["tasks"]] == ["9_2", "9_10"]


@pytest.mark.parametrize("job_id", ["8", "9_7", "x"])
def test_what_is_no_array_is_still_not_found(job_id: str) -> None:
    with pytest.raises(NotFound):
        explain_job(job_id, Service(), as_json=False)
