"""Help, manual pages and completion: all made from the commands themselves, and tried in real shells."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from typer.main import get_command

import perdure as package
from perdure.cli import completion_values
from perdure.cli.commands import ENTRIES, ENVIRONMENT, app
from perdure.cli.completion import ASKED, Place, Takes, in_bash, in_fish, in_zsh, places
from perdure.cli.completion_values import LETTERS
from perdure.cli.manual import every, page, page_name
from tests.cli.conftest import Ran
from tests.conftest import require_program

WIDTH = 80
ASKS_NO_SERVICE = {  # though they have --state
    "up", "doctor", "rules", "token", "completion",
    "why excerpt", "why batch", "why follow", "why ranks", "why report",
}  # fmt: skip
CHECKED_WHERE_USED = {  # numbers that their options take whatever they are
    "raise --severity", "speed --oversubscription", "speed --step-ms", "study tor --failing-share",
    "study tor --hard-min", "study tor --soft-min", "study tor --soft-share", "submit --memory", "submit --time",
    "trace generate --load", "up --gpus", "up --nodes", "up --port", "whatif compare --gittins-split",
}  # fmt: skip


@pytest.fixture(scope="module")
def contexts() -> list[Any]:
    root = get_command(app).make_context("perdure", [], resilient_parsing=True, terminal_width=WIDTH)
    return list(every(root))


@pytest.fixture(scope="module")
def found(contexts: list[Any]) -> list[Place]:
    return places(contexts[0])


def test_help_is_what_the_option_prints(perdure: Callable[..., Ran]) -> None:
    for words in ([], ["why"], ["node", "drain"], ["trace", "convert"]):
        assert perdure("help", *words).out == perdure(*words, "--help").out


def test_a_number_has_a_least_at_its_option_or_is_checked_where_it_is_used(contexts: list[Any]) -> None:
    boundless = set()
    for context in contexts:
        for each in context.command.params:
            kind = each.type_descriptor.annotation if hasattr(each, "type_descriptor") else None
            if {int, float} & {kind, *get_args(kind)} and each.min is None:
                boundless |= {f"{context.command_path.removeprefix('perdure ')} {name}" for name in each.opts}
    assert boundless == CHECKED_WHERE_USED


def test_help_on_no_command_names_those_that_there_are(perdure: Callable[..., Ran]) -> None:
    ran = perdure("help", "node", "drian")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(
        "help node drian: there is no command 'drian'. Did you mean drain? Commands: fail, "
    )
    assert "'wy'. Did you mean why? " in perdure("help", "wy").complaint
    assert "'zzz'. Use one of: up, " in perdure("help", "zzz").complaint
    assert "no commands below it" in perdure("help", "jobs", "x").complaint


@pytest.mark.parametrize("width", [40, 60, WIDTH, 200])
def test_no_line_of_help_is_wider_than_a_terminal_and_no_sentence_is_cut(
    contexts: list[Any], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for context in contexts:
        monkeypatch.setattr(context, "terminal_width", None)  # so that the terminal says it
        lines = context.get_help().splitlines()
        assert [line for line in lines if len(line) > width] == [], context.command_path
        usage = lines[: lines.index("")]
        cut = [line for line in lines if line.endswith("...") and not line.endswith(",...")]  # A,B,... is a list
        assert set(cut) <= set(usage), context.command_path


def test_narrow_help_says_the_same(contexts: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for context in contexts:
        told = []
        for width in ("40", "200"):
            monkeypatch.setenv("COLUMNS", width)
            monkeypatch.setattr(context, "terminal_width", None)
            told.append("".join(context.get_help().split()))
        assert told[0] == told[1], context.command_path


def test_the_list_of_commands_says_what_each_is(contexts: list[Any]) -> None:
    told = contexts[0].get_help()
    for name, entry in ENTRIES.items():
        assert f"  {name} " in told
        assert entry.says in told
        assert entry.says.endswith(".")


def test_every_command_that_asks_the_service_names_its_variables(contexts: list[Any]) -> None:
    for context in contexts:
        options = [name for parameter in context.command.params for name in parameter.opts]
        if context.command_path == "perdure notices test":  # it sends by itself
            assert context.command.epilog is None
        elif "--state" in options and context.command_path.removeprefix("perdure ") not in ASKS_NO_SERVICE:
            assert context.command.epilog == ENVIRONMENT, context.command_path
    assert "PERDURE_URL" in ENVIRONMENT
    assert "PERDURE_TOKEN" in ENVIRONMENT


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_list_of_commands_loads_none_of_them(option: str) -> None:
    code = "import sys; from perdure.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, check=True, env=env)
    modules = {f"perdure.cli.{entry.where.partition(':')[0]}" for entry in ENTRIES.values()}
    assert not modules & set(ran.stderr.split())


# ---------------------------------------------------------------- manual pages


def test_there_is_a_manual_page_for_each_command(perdure: Callable[..., Ran], home: Path, contexts: list[Any]) -> None:
    assert perdure("help", "--man", "share/man").out == "share/man/man1: a page for each command\n"
    written = {path.name for path in (home / "share/man/man1").iterdir()}
    assert written == {f"{page_name(context)}.1" for context in contexts}
    ran = perdure("help", "--man", "/proc/nowhere")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith("/proc/nowhere/man1: cannot be written")


def test_a_manual_page_says_what_the_help_says(contexts: list[Any]) -> None:
    for context in contexts:
        told = page(context).replace("\\-", "-").replace("\\(dq", '"').replace("\\e", "\\")
        for parameter in context.command.get_params(context):
            if record := parameter.get_help_record(context):
                assert all(part in told for part in record), (context.command_path, record)
        assert context.command.epilog is None or "PERDURE_TOKEN" in told


def test_troff_has_nothing_to_say_against_the_pages(contexts: list[Any]) -> None:
    require_program("groff")
    for context in contexts:
        ran = subprocess.run(
            ["groff", "-man", "-ww", "-z", "-Tutf8"], input=page(context), capture_output=True, text=True, check=True
        )
        assert ran.stderr == "", context.command_path


# ---------------------------------------------------------------- completion

WANTED = [
    ("wh", {"why", "who", "whatif", "when"}),
    ("node d", {"drain"}),
    ("jobs --job-state r", {"running"}),
    ("jobs --status r", {"running"}),
    ("why cor", {"correct"}),
    ("why --go", {"--good"}),
    ("help no", {"node", "nodes", "notices"}),
    ("help node dr", {"drain"}),
    ("completion ", {"bash", "zsh", "fish"}),
    ("whatif --policy fif", {"fifo"}),
    ("whatif --policy fifo,fj", {"fifo,fjf"}),
    ("whatif --placement cou", {"count"}),
    ("whatif --retry alw", {"always:"}),
    ("raise --type job.req", {"job.requeue-loop"}),
    ("events --type job.req", {"job.requeue-loop"}),
    ("rules command-missing-", {"command-missing-translated"}),
]


def run_shell(shell: list[Any], script: str, home: Path) -> str:
    """Run a script in a shell that finds this very perdure."""
    (home / "bin").mkdir(exist_ok=True)
    program = home / "bin" / "perdure"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m perdure "$@"\n')
    program.chmod(0o755)
    env = {
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "PYTHONPATH": str(Path(package.__file__).parents[1]),
    }
    ran = subprocess.run([*shell, script], capture_output=True, text=True, env=env, cwd=home, timeout=120, check=True)
    return ran.stdout


def test_bash_completes(found: list[Place], home: Path) -> None:
    require_program("bash")
    tries = "\n".join(f"try perdure {words} {chr(39) * 2 if words.endswith(' ') else ''}" for words, _ in WANTED)
    script = f"""{in_bash(found)}
    try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _perdure; echo "${{COMPREPLY[*]}}"; }}
    {tries}"""
    offered = run_shell(["bash", "--norc", "-c"], script, home).splitlines()
    assert [set(line.split()) for line in offered] == [wanted for _, wanted in WANTED]


def test_bash_offers_files_where_no_service_answers(found: list[Place], home: Path) -> None:
    require_program("bash")
    script = f"""{in_bash(found)}
    complete -p perdure; COMP_WORDS=(perdure why t); COMP_CWORD=2; _perdure; echo "${{#COMPREPLY[@]}}"
    COMP_WORDS=(perdure exec -- tr); COMP_CWORD=3; _perdure; echo "${{#COMPREPLY[@]}}" """
    assert run_shell(["bash", "--norc", "-c"], script, home) == "complete -F _perdure perdure\n0\n0\n"


def test_bash_offers_values_where_no_shell_finds_the_program(perdure: Callable[..., Ran], home: Path) -> None:
    """As after ``make up``: typed is .venv/bin/perdure."""
    require_program("bash")
    script = f"""{perdure("completion", "bash").out}
    COMP_WORDS=(.venv/bin/perdure rules command-missing-); COMP_CWORD=2
    PATH=/nowhere; _perdure; echo "${{COMPREPLY[*]}}" """
    assert run_shell(["bash", "--norc", "-c"], script, home) == "command-missing-translated\n"


@pytest.mark.parametrize("write", [in_bash, in_zsh, in_fish])
def test_each_shell_asks_the_program_that_made_its_script(found: list[Place], write: Callable[..., str]) -> None:
    script = write(found, "'/opt/it is/perdure'")
    assert "(perdure completion" not in script
    assert re.search(r"/opt/it is/perdure\W+completion --values", script)


def test_fish_completes(found: list[Place], home: Path) -> None:
    require_program("fish")
    script = in_fish(found) + "".join(f"\ncomplete -C 'perdure {words}'; echo --" for words, _ in WANTED)
    told = run_shell(["fish", "--no-config", "-c"], script, home).split("--\n")
    for (_, wanted), part in zip(WANTED, told, strict=False):
        assert {line.partition("\t")[0] for line in part.splitlines()} >= wanted


def test_zsh_reads_its_script(found: list[Place], home: Path) -> None:
    require_program("zsh")
    (home / "_perdure").write_text(in_zsh(found))
    run_shell(["zsh", "-f", "-c"], "zsh -n _perdure", home)


def test_each_shell_is_given_every_command_and_option(found: list[Place]) -> None:
    for write in (in_bash, in_zsh, in_fish):
        script = write(found)
        for place in found:
            assert place.words in script
            for option in place.options:
                names = [name.lstrip("-") for name in option.names]
                assert all(name in script for name in names), (write.__name__, place.words)


def test_a_shell_is_offered_no_job_whose_id_it_would_run(found: list[Place]) -> None:
    assert not LETTERS & set("$`(){}[];&|<>*?~!#'\"\\ \t\n=/")
    assert {place.takes for place in found if place.words in ("why", "events")} == {Takes.JOB}


def test_completion_names_the_shells(perdure: Callable[..., Ran]) -> None:
    assert perdure("completion").complaint.startswith("completion: name a shell")
    assert perdure("completion", "tcsh").code == 2
    for kind in ("job", "node", "nonsense"):
        assert perdure("completion", "--values", kind).out.strip() == ""  # no service runs here


def test_all_that_takes_a_node_a_rule_or_a_type_is_completed(found: list[Place]) -> None:
    takes = {place.words: place.takes for place in found}
    takes |= {f"{place.words} {option.names[0]}": option.takes for place in found for option in place.options}
    nodes = ("node drain", "node undrain", "node fail", "node freeze", "node thaw", "node return")
    assert {takes[each] for each in (*nodes, "raise --node", "submit --exclude")} == {Takes.NODE}
    assert (takes["rules"], takes["raise --type"], takes["raise"]) == (Takes.RULE, Takes.TYPE, Takes.JOB)
    assert {takes[f"keep {each}"] for each in ("show", "stop", "explain")} == {Takes.CHAIN}
    assert set(takes.values()) >= set(ASKED)


def test_what_a_shell_asks_for_is_answered_by_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"/jobs": [{"job_id": "7_3"}, {"job_id": "$(reboot)"}], "/nodes": [{"name": "n-1.rack2"}, {"name": "-x"}]}
    asked = SimpleNamespace(pages=lambda path, most: listed[path])
    monkeypatch.setattr(completion_values, "_client", lambda state: asked)
    assert completion_values.values("job", None) == ["7_3"]
    assert completion_values.values("node", None) == ["n-1.rack2"]


def test_every_command_names_its_exit_codes_and_no_type_of_the_language(contexts: list[Any]) -> None:
    for context in contexts:
        told = context.get_help()
        assert "Exit codes" in told, context.command_path
        assert not re.search(r"<[a-z]|list\[", re.sub(r"<[a-z_|\s]+\|[a-z_|\s]+>", "", told)), context.command_path


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("token --role", "viewer operator"),
        ("up --cluster", "local slurm"),
    ],
)
def test_values_that_help_names_are_completed(perdure: Callable[..., Ran], option: str, values: str) -> None:
    script = perdure("completion", "bash").out
    line = next(line for line in script.splitlines() if line.strip().startswith(f"'perdure {option}')"))
    assert values in line
