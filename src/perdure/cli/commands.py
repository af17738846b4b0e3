"""Which commands there are, and how every one of them ends. A command's module is loaded once it is called."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from perdure import __version__
from perdure.cli.help_width import HelpContext
from perdure.cli.text import plain, replace_missing_letters
from perdure.errors import PerdureError

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # of all that is wrong with a command line
OK, USAGE, INTERRUPTED, READER_LEFT = 0, 2, 130, 141  # the last two as the shell says it of a signal
MAX_FAULT = 300  # characters of an error that nobody foresaw
RUNS_A_PROGRAM = {"allow_interspersed_args": False}  # what follows the program's name is the program's
PLAIN: Mapping[str, Any] = {  # of a Typer; help without Rich: it is to be there at once
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}
ENVIRONMENT = (
    "Environment: PERDURE_URL is the address of the service (http://HOST:PORT), PERDURE_SOCKET its Unix socket, and "
    "PERDURE_TOKEN says who asks. Without them the service of --state is asked."
)


ASK_NO_SERVICE = {  # among the commands below one that does
    ("notices", "test"), ("events", "replay"), *(("who", name) for name in ("paths", "batch", "tor", "colocation")),
    *(("why", name) for name in ("excerpt", "batch", "follow", "ranks", "report")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: where it is, and what the list of commands says of it."""

    where: str  # module below perdure.cli, and the function there, or `app` for one with commands below it
    says: str
    asks: bool = False  # a running service, so that PERDURE_URL and PERDURE_TOKEN count
    settings: Mapping[str, Any] = field(default_factory=dict)


ENTRIES: Mapping[str, Entry] = {
    "up": Entry("up:up", "Watch a cluster, and show it on a page."),
    "open": Entry("open:open_", "Print a link that logs a browser in once.", asks=True),
    "doctor": Entry("doctor:doctor", "Check whether Slurm is ready for perdure up --act."),
    "why": Entry("why:app", "Say why a job failed, and whether to retry it.", asks=True),
    "who": Entry("who:app", "Name the components to blame for failures.", asks=True),
    "rules": Entry("rules:rules", "Tell what rules look for, and what to do."),
    "learn": Entry("learn:learn", "Show what the model learned from retries and persons.", asks=True),
    "whatif": Entry("whatif:app", "Replay traces under scheduling policies."),
    "study": Entry("study:app", "Repeat published experiments, and measure planners."),
    "plan": Entry("plan:plan", "Decide one round of a planning policy."),
    "speed": Entry("speed:speed", "Say how fast a model will train, and whether RDMA helps."),
    "emulate": Entry("emulate:app", "Run programs on GPUs that are not there."),
    "when": Entry("when:app", "Say when jobs will start, and what holds them."),
    "policy": Entry("policy:policy", "Show the scheduling policy in force; turn it on or off.", asks=True),
    "keep": Entry("keep:app", "Keep a job running past its walltime, as a chain."),
    "trace": Entry("trace:app", "Draw a trace, or turn one into another form."),
    "jobs": Entry("jobs:jobs", "List jobs, the latest first.", asks=True),
    "submit": Entry("jobs:submit", "Submit a job to the embedded cluster.", asks=True, settings=RUNS_A_PROGRAM),
    "nodes": Entry("node:nodes", "List nodes, their states and why.", asks=True),
    "node": Entry("node:app", "Drain a node, or break one of the embedded cluster.", asks=True),
    "actions": Entry("actions:actions", "List actions, or hold, undo and stop them.", asks=True),
    "events": Entry("events:app", "Show exceptions, and who owns the recovery.", asks=True),
    "notices": Entry("notices:app", "List notices and their delivery; test the targets.", asks=True),
    "raise": Entry(
        "events:raise_", "Raise an exception, until one handler owns it.", True, {"allow_interspersed_args": True}
    ),
    "config": Entry("config:app", "Look at the settings."),
    "exec": Entry("exec:exec_", "Run a program inside a job, and look after it.", settings=RUNS_A_PROGRAM),
    "agent": Entry("agent:agent", "Publish this node's heartbeat and health."),
    "token": Entry("token:token", "Mint or revoke a token."),
    "help": Entry("help:help_", "Show the help of a command; write manual pages."),
    "completion": Entry("completion:completion", "Print what completes commands in a shell."),
}


class _Loaded(MutableMapping[str, Any]):
    """The commands by name, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _built(name, ENTRIES[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        raise KeyError(name)


def _built(name: str, entry: Entry) -> Any:
    module, _, what = entry.where.partition(":")
    made = getattr(import_module(f"perdure.cli.{module}"), what)
    parent = typer.Typer(**PLAIN)
    if isinstance(made, typer.Typer):
        parent.add_typer(made, name=name)
        command: Any = get_command(parent).commands[name]  # type: ignore[attr-defined]
    else:
        parent.command(name, context_settings=dict(entry.settings) or None)(made)
        command = get_command(parent)
    command.short_help = entry.says
    below = getattr(command, "commands", {}).values()
    for each in below:  # else the list of them cuts what it says, where the terminal is narrow
        each.short_help = each.short_help or f"{' '.join(each.help.split()).partition('. ')[0].rstrip('.')}."
    for each in (command, *below):
        each.context_class = HelpContext
        asks = entry.asks and (name, each.name) not in ASK_NO_SERVICE
        each.epilog = ENVIRONMENT if asks else each.epilog
    return command


class Commands(TyperGroup):
    """All commands; their list is shown without loading any."""

    context_class = HelpContext

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Loaded()

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.says) for name, entry in ENTRIES.items()])


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    **PLAIN,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"perdure {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def perdure(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[  # noqa: ARG001
        bool, typer.Option("--debug", envvar="PERDURE_DEBUG", help="Show where in the code an error came from.")
    ] = False,
) -> int:
    """Keep deep-learning jobs running: why a job failed, whether a retry helps, and one right recovery.

    Exit codes: 0 ok, 1 a finding (each command says which), 2 usage or bad input.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return USAGE
    return OK


def run(words: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    replace_missing_letters(sys.stdout, sys.stderr)
    command, debug = get_command(app), False
    try:
        with command.make_context("perdure", list(words)) as context:
            debug = bool(context.params["debug"])
            code = command.invoke(context)
        sys.stdout.flush()
        return code or OK
    except (Exception, KeyboardInterrupt) as err:
        return explain(err, words[0] if words else "perdure", debug=debug)


def explain(err: BaseException, command: str, *, debug: bool = False) -> int:
    """Say in one line on stderr why a command ended; returns its exit code."""
    debug = debug or bool(os.environ.get("PERDURE_DEBUG"))
    if isinstance(err, typer.Exit):
        return err.exit_code
    if isinstance(err, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED
    if isinstance(err, BrokenPipeError):
        _silence(sys.stdout.fileno())
        return READER_LEFT
    if isinstance(err, USAGE_ERROR):
        return _complain(_misused(err, command), debug=False)
    if isinstance(err, PerdureError):
        return _complain(str(err), debug)
    what = plain(f"{type(err).__name__}: {err}", MAX_FAULT)
    return _complain(f"{command}: {what}. This is a fault in Perdure; perdure --debug shows where.", debug)


def _complain(line: str, debug: bool) -> int:
    from perdure.installation import to_type

    if debug:
        traceback.print_exc()
    typer.echo(f"perdure: {plain(to_type(line.removeprefix('perdure ')))}", err=True)
    return USAGE


def _misused(err: Exception, command: str) -> str:
    """One line for what the parser of the command line says over several."""
    known: dict[str, Any] = getattr(get_command(app), "commands", {})
    context = getattr(err, "ctx", None)  # none where an option lacks its value
    path = context.command_path if context else f"perdure {command}" if command in known else "perdure"
    what = str(getattr(err, "format_message", err.__str__)()).rstrip(".").replace(": Value error, ", ": ")
    where = path.removeprefix("perdure").strip() or "command line"
    if path == "perdure" and command not in known:
        groups = [name for name, group in known.items() if command in getattr(group, "commands", {})]
        what = f"No such command '{command}'. Did you mean 'perdure {groups[0]} {command}'?" if groups else what
    return f"{where}: {what}{'' if what.endswith('?') else '.'} See {path} --help."


def _silence(descriptor: int) -> None:
    """Nobody reads any more: let what is still buffered go nowhere instead of failing once again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
