"""The settings of one of many clusters: its file's name is its name, and that of its schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.service.runtime.cluster_process import load_cluster

COMMON = {"service.database": "postgresql://perdure@db/perdure"}


@pytest.mark.parametrize("name", ["a b", "<b>", "n\nl", '"; DROP', "..x", "l" * 64, "pg_x"])
def test_a_file_that_cannot_name_a_cluster_is_told_by_its_own_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.toml"
    file.write_text("")
    with pytest.raises(ConfigError) as err:
        load_cluster(file, tmp_path, COMMON)
    said = str(err.value)
    assert str(tmp_path) in said
    assert repr(name)[1:-1][:9] in said
    assert "\n" not in said


def test_a_file_settles_neither_its_clusters_name_nor_its_state_directory(tmp_path: Path) -> None:
    file = tmp_path / "north.toml"
    file.write_text('[service]\ncluster_name = "south"\nstate = "/elsewhere"\n')
    found = load_cluster(file, tmp_path / "state", COMMON).settings.service
    assert (found.cluster_name, found.state) == ("north", tmp_path / "state" / "north")


@pytest.mark.parametrize(("words", "port"), [("", 0), ("[service]\nport = 8555\n", 8555)])
def test_a_clusters_port_is_any_free_one_unless_its_file_names_one(tmp_path: Path, words: str, port: int) -> None:
    file = tmp_path / "north.toml"
    file.write_text(words)
    assert load_cluster(file, tmp_path, COMMON).settings.service.port == port
