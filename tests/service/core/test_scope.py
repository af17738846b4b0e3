"""Where Perdure acts of its own accord."""

from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.model.actions import KINDS, Cancel, Drain, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.service.core.scope import ScopeSettings
from perdure.service.settings import load

REQUEUE = Requeue(AttemptId("c", "1", 1))
JOB = Job("c", "1", "train", "bob", JobState.FAILED, 0.0, partition="cpu,gpu", qos="normal", account="physics")
NODE = Node("n1", NodeState.UP, partitions=("gpu",))


@pytest.mark.parametrize(
    ("scope", "inside"),
    [
        (ScopeSettings(), True),
        (ScopeSettings(partitions=("gpu",)), True),
        (ScopeSettings(partitions=("fat",)), False),
        (ScopeSettings(not_partitions=("cpu",)), False),
        (ScopeSettings(qos=("normal",)), True),
        (ScopeSettings(not_qos=("normal",)), False),
        (ScopeSettings(accounts=("chemistry",)), False),
        (ScopeSettings(not_accounts=("chemistry",)), True),
        (ScopeSettings(users=("ada", "bob")), True),
        (ScopeSettings(not_users=("bob",)), False),
        (ScopeSettings(actions=("requeue",)), True),
        (ScopeSettings(actions=("drain",)), False),
        (ScopeSettings(not_actions=("requeue",)), False),
    ],
)
def test_a_jobs_action_lies_inside_or_outside(scope: ScopeSettings, inside: bool) -> None:
    assert (scope.refuses(REQUEUE, JOB, None) == "") is inside


def test_what_is_not_known_of_a_job_is_not_opted_in() -> None:
    assert "user unknown is not in scope.users" in ScopeSettings(users=("bob",)).refuses(REQUEUE, None, None)
    assert ScopeSettings(not_users=("bob",)).refuses(REQUEUE, None, None) == ""


def test_a_node_has_partitions_and_no_user() -> None:
    drain = Drain("n1", "r", "e")
    assert ScopeSettings(users=("ada",), partitions=("gpu",)).refuses(drain, None, NODE) == ""
    assert "partition gpu" in ScopeSettings(partitions=("cpu",)).refuses(drain, None, NODE)


def test_it_is_set_in_a_file_and_misspelt_kinds_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "perdure.toml"
    file.write_text('[scope]\npartitions = ["gpu"]\nnot_users = ["bob"]\nactions = ["requeue"]\n')
    found = load({}, file).settings.scope
    assert found == ScopeSettings(partitions=("gpu",), not_users=("bob",), actions=("requeue",))
    file.write_text('[scope]\nactions = ["requeu"]\n')
    with pytest.raises(ConfigError, match="'requeu' is not a kind of action"):
        load({}, file)
    assert KINDS["cancel"] is Cancel
