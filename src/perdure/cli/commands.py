"""Which commands there are, and how every one of them ends."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from perdure import __version__
from perdure.cli import actions, agent, config, doctor, events, jobs, learn, node, token, trace, up, whatif, who, why
from perdure.cli import exec as exec_
from perdure.cli.text import plain
from perdure.errors import PerdureError

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # of all that is wrong with a command line
OK, USAGE, INTERRUPTED = 0, 2, 130
MAX_FAULT = 300  # characters of an error that nobody foresaw
RUNS_A_PROGRAM = {"allow_interspersed_args": False}  # what follows the program's name is the program's

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,  # help without Rich: it is to be there at once
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("up")(up.up)
app.command("doctor")(doctor.doctor)
app.command("why")(why.why)
app.command("who")(who.who)
app.command("learn")(learn.learn)
app.command("whatif")(whatif.whatif)
app.add_typer(trace.app, name="trace")
app.command("jobs")(jobs.jobs)
app.command("submit", context_settings=RUNS_A_PROGRAM)(jobs.submit)
app.command("nodes")(node.nodes)
app.add_typer(node.app, name="node")
app.command("actions")(actions.actions)
app.command("events")(events.events)
app.command("raise", context_settings={"allow_interspersed_args": True})(events.raise_)
app.add_typer(config.app, name="config")
app.command("exec", context_settings=RUNS_A_PROGRAM)(exec_.exec_)
app.command("agent")(agent.agent)
app.command("token")(token.token)


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
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no reason to stop
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
        return INTERRUPTED
    if isinstance(err, USAGE_ERROR):
        return _complain(_misused(err), debug=False)
    if isinstance(err, PerdureError):
        return _complain(str(err), debug)
    what = plain(f"{type(err).__name__}: {err}", MAX_FAULT)
    return _complain(f"{command}: {what}. This is a fault in Perdure; perdure --debug shows where.", debug)


def _complain(line: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    typer.echo(f"perdure: {plain(line.removeprefix('perdure '))}", err=True)
    return USAGE


def _misused(err: Exception) -> str:
    """One line for what the parser of the command line says over several."""
    context = getattr(err, "ctx", None)
    path = context.command_path if context else "perdure"
    what = str(getattr(err, "format_message", err.__str__)()).rstrip(".")
    where = path.removeprefix("perdure").strip() or "command line"
    return f"{where}: {what}{'' if what.endswith('?') else '.'} See {path} --help."


def _silence(descriptor: int) -> None:
    """Nobody reads any more: let what is still buffered go nowhere instead of failing once again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
