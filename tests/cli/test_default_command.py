"""What is meant where no command is named, and where one is named as an option, as it was before."""

from pathlib import Path
from typing import Any

import pytest

from perdure.cli.commands import ENTRIES
from perdure.cli.default_command import DefaultCommand
from perdure.cli.events import EventCommands
from perdure.cli.main import main
from perdure.cli.whatif import WhatIfCommands
from perdure.cli.who import WhoCommands
from perdure.cli.why import WhyCommands


@pytest.mark.parametrize(
    ("group", "old", "new"),
    [
        (WhyCommands, "train.log --good good.log", "explain train.log --good good.log"),
        (WhyCommands, "--json -", "explain --json -"),
        (WhyCommands, "batch logs.jsonl", "batch logs.jsonl"),
        (WhyCommands, "--batch logs.jsonl --json", "batch logs.jsonl --json"),
        (WhyCommands, "--json --batch=logs.jsonl", "batch logs.jsonl --json"),
        (WhyCommands, "--follow run.log --for 0 --resume at", "follow run.log --for 0 --resume at"),
        (WhyCommands, "--for 0 --follow run.log", "follow run.log --for 0"),
        (WhyCommands, "--ranks dumps", "ranks dumps"),
        (WhyCommands, "--report jobs.txt --out pictures", "report jobs.txt --out pictures"),
        (WhyCommands, "train.log --excerpt", "excerpt train.log"),
        (WhyCommands, "7 --correct transient --attempt 2", "correct 7 --attempt 2 -- transient"),
        (WhyCommands, "--batch", "batch"),
        (WhyCommands, "-- --batch", "explain -- --batch"),
        (EventCommands, "", "list"),
        (EventCommands, "7 --open", "list 7 --open"),
        (EventCommands, "--follow --type app", "follow --type app"),
        (EventCommands, "x-1 --close -done", "close x-1 -- -done"),
        (EventCommands, "--replay past.json --playbook site.toml", "replay past.json --playbook site.toml"),
        (WhoCommands, "--json", "suspects --json"),
        (WhoCommands, "--state /var/lib/perdure", "suspects --state /var/lib/perdure"),
        (WhoCommands, "window.parquet --solver flock", "paths window.parquet --solver flock"),
        (WhoCommands, "--batch cases --solver 007", "batch cases --solver 007"),
        (WhoCommands, "--study tor --soft-min 9", "tor --soft-min 9"),
        (WhoCommands, "--study colocation days.csv", "colocation days.csv"),
        (WhatIfCommands, "jobs.csv --cluster 4x8 --policy fifo", "compare jobs.csv --cluster 4x8 --policy fifo"),
        (WhatIfCommands, "--again figures.json --out again", "again figures.json --out again"),
        (WhatIfCommands, "jobs.csv --profiles sia --policy sia", "elastic sia jobs.csv --policy sia"),
        (WhatIfCommands, "--study retry --seeds 2", "retry --seeds 2"),
    ],
)
def test_words_are_read_as_they_are_written_today(
    group: type[DefaultCommand], old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr("typer.core.TyperGroup.parse_args", lambda _self, _ctx, args: read.extend(args))
    commands = {"why": "explain batch follow ranks report excerpt correct", "events": "list follow close replay"}
    commands["whatif"] = "compare again elastic"
    named = {WhyCommands: "why", EventCommands: "events", WhatIfCommands: "whatif"}.get(group, "")
    known: Any = dict.fromkeys(commands.get(named, "suspects paths batch").split())
    nobody: Any = None
    group(commands=known).parse_args(nobody, old.split())
    assert " ".join(read) == new


@pytest.mark.parametrize("name", ["why", "who", "events", "whatif", "study"])
def test_help_of_a_group_is_short_and_names_no_older_spelling(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ENTRIES[name].where.endswith(":app")
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 35
    assert "--study" not in said
    assert " tor " not in said or name == "study"


def test_a_folder_that_has_the_name_of_a_command_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "rank0.log").write_text("KeyError: 1\n")
    assert main(["why", "ranks"]) == 1
    assert "KeyError" in capsys.readouterr().out
