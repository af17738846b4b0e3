"""What a comparison was made of: the command that asks for it again, and inputs that must be the same."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import __version__
from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.simulation.manifest import Manifest, read_manifest

CLUSTER = Cluster.parse("2x4+1x8")
WORDS = st.text("ab -='\"$;\\é\n", min_size=1, max_size=8).filter(lambda word: not word.startswith("-"))


def written(folder: Path, **options: Any) -> tuple[Path, Path]:
    """A file of figures with its manifest, and the trace that it is of."""
    trace, figures = folder / "trace.csv", folder / "figures.json"
    trace.write_bytes(b"job_id,submit_s\n")
    manifest = Manifest.of({"traces": [str(trace)], **options}, [trace], CLUSTER)
    figures.write_text(json.dumps({"runs": [], "manifest": manifest.to_json()}))
    return figures, trace


def test_a_change_far_behind_the_beginning_of_a_large_input_is_found(tmp_path: Path) -> None:
    trace, figures = tmp_path / "trace.csv", tmp_path / "figures.json"
    trace.write_bytes(b"x" * (5 << 20))
    told = Manifest.of({"traces": [str(trace)]}, [trace], CLUSTER).to_json()
    figures.write_text(json.dumps({"manifest": told}))
    assert told["inputs"][0]["bytes"] == 5 << 20
    with trace.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"y")
    with pytest.raises(InputError, match="it has changed"):
        read_manifest(figures)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    figures, trace = written(tmp_path, policies="fifo,srtf", seeds=3, fail=None, verbose=True, quiet=False)
    found = read_manifest(figures)
    assert found == {"traces": [str(trace)], "policies": "fifo,srtf", "seeds": 3, "verbose": True, "quiet": False}
    told = json.loads(figures.read_text())["manifest"]
    assert told["seeds"] == [0, 1, 2]
    assert told["cluster"] == {"gpus": 16, "nodes": {"4": 2, "8": 1}}
    assert told["inputs"] == [
        {"path": str(trace), "bytes": 16, "sha256": hashlib.sha256(b"job_id,submit_s\n").hexdigest()}
    ]


@settings(max_examples=40)
@given(
    st.lists(WORDS, min_size=1, max_size=3), st.dictionaries(st.sampled_from(["load", "retry_of", "cluster"]), WORDS)
)
def test_a_shell_takes_the_command_as_it_was_meant(traces: list[str], options: dict[str, str]) -> None:
    found = Manifest.of({"traces": traces, **options, "all": True, "none": False, "left": None}, [], CLUSTER)
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert shlex.split(found.command) == ["perdure", "whatif", *traces, *words, "--all"]


def test_an_input_that_has_changed_is_named(tmp_path: Path) -> None:
    figures, trace = written(tmp_path)
    trace.write_bytes(b"job_id,submit_S\n")  # as long as before
    with pytest.raises(InputError, match="has changed since") as caught:
        read_manifest(figures)
    assert str(trace) in str(caught.value)
    trace.unlink()
    with pytest.raises(InputError, match=r"cannot be read .*go to the folder in which the comparison was made"):
        read_manifest(figures)


def test_figures_of_another_version_are_refused(tmp_path: Path) -> None:
    figures, _ = written(tmp_path)
    figures.write_text(figures.read_text().replace(f'"version": "{__version__}"', '"version": "0.0.1"'))
    with pytest.raises(InputError, match=r"of Perdure 0\.0\.1, and this is"):
        read_manifest(figures)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"manifest": 3}', '{"manifest": {"options": {}, "inputs": [{"path": "a"}]}}']
)
def test_a_file_without_a_manifest_is_an_input_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "figures.json").write_text(text)
    with pytest.raises(InputError, match="holds no manifest"):
        read_manifest(tmp_path / "figures.json")


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Manifest.of({}, [tmp_path / "none.csv"], CLUSTER)
    with pytest.raises(InputError, match="cannot be read"):
        read_manifest(tmp_path / "none.json")


@pytest.mark.parametrize("inputs", [[{"path": 5, "bytes": 1, "sha256": ""}], [{}], "x"])
def test_inputs_that_are_no_files_are_refused(tmp_path: Path, inputs: Any) -> None:
    figures, _ = written(tmp_path)
    told = json.loads(figures.read_text())
    told["manifest"]["inputs"] = inputs
    figures.write_text(json.dumps(told))
    with pytest.raises(InputError, match=r"figures.json: manifest\.inputs"):
        read_manifest(figures)
