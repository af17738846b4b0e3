"""What every format's bridge must hold, on its sample and on whatever else is thrown at it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

from perdure.coordination.bridges import bridged as bridged_module
from perdure.coordination.bridges.bridged import MAX_RECORDS, BridgeContext, Meaning, ReportedFailure, record_of
from perdure.coordination.bridges.registry import FORMATS, MAX_BYTES, read
from perdure.coordination.record import ExceptionRecord
from perdure.coordination.wire import decode, encode
from perdure.errors import InputError
from tests.coordination.bridges.samples import NOW, SAMPLES
from tests.copying import replace

FAMILIES = {"launcher", "app", "process", "node", "storage", "network", "power", "licence", "job"}
formats = pytest.mark.parametrize("name", FORMATS)


def test_what_differs_in_kind_job_or_facts_is_another_exception() -> None:
    about = BridgeContext("flux", "c", NOW, "9")
    told = [
        ReportedFailure(Meaning("app.oom"), ("x",)),
        ReportedFailure(Meaning("app.nan"), ("x",)),
        ReportedFailure(Meaning("app.oom"), ("y",)),
        ReportedFailure(Meaning("app.oom"), ("x",), job_id="8"),
    ]
    assert len({record_of(each, about).id for each in told}) == 4
    assert record_of(told[0], about).id == record_of(replace(told[0], note="again", time_s=5.0), about).id


def test_of_more_than_is_kept_what_was_there_before_is_still_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridged_module, "MAX_RECORDS", 2)
    about = BridgeContext("flux", "c", NOW, "9")
    first, second, third = (record_of(ReportedFailure(Meaning("app.oom"), (fact,)), about) for fact in "abc")
    kept = bridged_module.gather([first, None, second, third, first, second], "text")
    assert (kept.records, kept.skipped) == ((first, second), 2)


def over_the_wire(record: ExceptionRecord) -> None:
    text = json.dumps(encode(record), ensure_ascii=False).encode()  # half characters would end here
    assert decode(json.loads(text)) == record


def holds(name: str, data: bytes | str) -> None:
    """Reads anything, and what comes over is fit for the wire; or refuses it in one line."""
    try:
        bridged = read(name, data, "c", NOW)
    except InputError as refused:
        said = str(refused)
    else:
        said = ""
        for record in bridged.records:
            fit(record)
    assert "\n" not in said
    assert len(said) < 500


def fit(record: ExceptionRecord) -> None:
    over_the_wire(record)
    assert record.time_s <= NOW
    assert record.note.isprintable()
    assert record.subject.cluster == "c"


@formats
def test_a_sample_comes_over_whole(name: str) -> None:
    bridged = read(name, SAMPLES[name], "c", NOW)
    assert bridged.records
    assert bridged.skipped == 0
    for record in bridged.records:
        over_the_wire(record)
        assert record.type.partition(".")[0] in FAMILIES
        assert record.detected_by == name


@formats
def test_the_same_text_gives_the_same_ids_whenever_and_however_often_it_is_read(name: str) -> None:
    sample = SAMPLES[name]
    once = [record.id for record in read(name, sample, "c", NOW).records]
    assert [record.id for record in read(name, f"{sample}\n{sample}", "c", NOW + 86_400).records] == once
    assert len(set(once)) == len(once)
    elsewhere = read(name, sample, "d", NOW).records
    assert not {record.id for record in elsewhere} & set(once)


@formats
def test_bytes_with_a_mark_at_the_beginning_read_like_text(name: str) -> None:
    sample = SAMPLES[name]
    assert read(name, b"\xef\xbb\xbf" + sample.encode(), "c", NOW) == read(name, sample, "c", NOW)


@formats
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n\t",
        b"\x00" * 1000,
        bytes(range(256)) * 40,
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"status":' + "9" * 5000 + "}",
        "null",
        "[]",
        "{}",
        '"text"',
        "[1, 2",
        '{"kind": "Node"}\n{"kind":',
        "=|" * 10_000,
        "perdure-event 1 end",
        "perdure-event 1 \x1b[31m\nJOBID=1",
        "\ud800".encode("utf-8", "surrogatepass"),
        "x\n" * 5000,
        '{"message": ["' + "\\ud800" * 100 + '"]}',
    ],
    ids=range(19),
)
def test_hostile_text_is_refused_in_one_line_or_left_out(name: str, data: bytes | str) -> None:
    holds(name, data)


@formats
@pytest.mark.parametrize("data", ["", "\n \n"])
def test_nothing_is_refused(name: str, data: str) -> None:
    with pytest.raises(InputError, match="is empty"):
        read(name, data, "c", NOW)


@formats
def test_too_much_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="Send it in parts"):
        read(name, b" " * (MAX_BYTES + 1), "c", NOW)


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match="torchelastic, flux, pmix"):
        read("ganglia", "x", "c", NOW)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def paths(value: object, here: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Where something stands in a document."""
    yield here
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*here, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from paths(item, (*here, at))


def put(value: Any, path: tuple[Any, ...], new: object) -> object:
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


DOCUMENTS = [(name, json.loads(line)) for name in FORMATS if name != "slurm" for line in SAMPLES[name].splitlines()]


@given(data=st.data(), new=VALUES)
def test_any_value_in_any_place_is_read_or_left_out(data: DataObject, new: object) -> None:
    name, document = data.draw(st.sampled_from(DOCUMENTS))
    path = data.draw(st.sampled_from(list(paths(document))))
    holds(name, json.dumps(put(document, path, new)))


@given(st.sampled_from(sorted(FORMATS)), st.text(max_size=200))
def test_any_text_is_read_or_left_out(name: str, text: str) -> None:
    holds(name, text)


@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_any_piece_of_a_sample_is_read_or_left_out(name: str, data: DataObject) -> None:
    sample = SAMPLES[name]
    begin = data.draw(st.integers(0, len(sample)))
    holds(name, sample[begin : data.draw(st.integers(begin, len(sample)))])


@given(st.text(max_size=60), st.integers(0, 20))
def test_any_cell_of_slurms_text_is_read_or_left_out(text: str, at: int) -> None:
    lines = SAMPLES["slurm"].splitlines()
    at %= len(lines)
    holds("slurm", "\n".join([*lines[:at], lines[at].partition("=")[0] + "=" + text, *lines[at + 1 :]]))


def test_no_more_records_are_made_than_can_be_kept() -> None:
    event = {"timestamp": 1.0, "name": "exception", "context": {"type": "oom", "severity": 0, "note": ""}}
    events = "\n".join(json.dumps({**event, "timestamp": float(i)}) for i in range(MAX_RECORDS + 7))
    bridged = read("flux", events, "c", NOW, job_id="1")
    assert (len(bridged.records), bridged.skipped) == (MAX_RECORDS, 7)


def test_a_text_that_tells_of_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridged_module, "MAX_FOUND", 20)
    event = "perdure-event 1 node\nEVENT=down\nNODES=n[1-10]\nTIME=1\n"
    assert len(read("slurm", event * 2, "c", NOW).records) == 10
    with pytest.raises(InputError, match="more than 20 failures"):
        read("slurm", event * 3, "c", NOW)
