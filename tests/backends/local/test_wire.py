"""Records survive the wire, and what does not fit is named."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

from perdure.backends.local.records import AttemptRecord, LocalEnding, LocalJob, LocalNode, TaskExit
from perdure.backends.local.spec import JobSpec, signal_number
from perdure.backends.local.wire import ACTIONS, decode, decode_action, encode
from perdure.errors import InputError
from perdure.model.actions import Outcome
from perdure.model.jobs import Attempt, Job, RetryPreference
from perdure.model.nodes import Node

RECORDS = [Job, Attempt, Node, Outcome, LocalNode, LocalJob, AttemptRecord, LocalEnding, TaskExit, *ACTIONS.values()]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@given(data=st.data())
def test_every_record_survives(record: type, data: DataObject) -> None:
    st.register_type_strategy(JobSpec, st.builds(JobSpec, st.just(("true",)), env=st.just({"A": "b"})))
    st.register_type_strategy(float, st.floats(0, 2e9))
    made = data.draw(st.builds(record))
    assert decode(record, json.loads(json.dumps(encode(made)))) == made


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"argv": "true"}, "JobSpec.argv"),
        ({"argv": [1]}, "JobSpec.argv"),
        ({"walltime_s": "long"}, "JobSpec.walltime_s"),
        ({"node_count": True}, "JobSpec.node_count"),
        ({"may_requeue": 1}, "JobSpec.may_requeue"),
        ({"env": {"A": 1}}, "JobSpec.env"),
        ({"env": []}, "JobSpec.env"),
        ({"wish": "perhaps"}, "perhaps"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_does_not_fit_is_named(change: Mapping[str, int | dict[str, int] | str | list[int]], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        decode(JobSpec, {"argv": ["true"], **change})


def test_what_a_user_sends_is_called_as_the_user_calls_it() -> None:
    for change in ({"argv": "true"}, {"colour": "red"}):
        with pytest.raises(ValueError, match=r"\bjob\b") as raised:
            decode(JobSpec, {"argv": ["true"], **change}, "job")
        assert "JobSpec" not in str(raised.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="argv"):
        decode(JobSpec, {})


def test_whole_numbers_are_good_times() -> None:
    spec = decode(JobSpec, {"argv": ["true"], "walltime_s": 60, "wish": "never"})
    assert (spec.walltime_s, type(spec.walltime_s), spec.wish) == (60.0, float, RetryPreference.NEVER)


def test_an_action_of_no_kind_is_named() -> None:
    for document in ({"kind": "explode"}, {}, None, 3):
        with pytest.raises(ValueError, match="is not an action"):
            decode_action(document)


def test_signals_have_both_their_names() -> None:
    assert signal_number("USR1") == signal_number("SIGUSR1")
    assert signal_number("NOPE") is None
    with pytest.raises(InputError, match="NOPE"):
        JobSpec(("true",), signal="NOPE")
