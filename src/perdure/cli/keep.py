"""``perdure keep ...``: a job that outlives its walltime, as a chain of jobs that go on where the last one stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perdure.cli.options import AsJson, Wide
from perdure.cli.study import successors

_SCRIPT = "script"
_AFTER = "perdure.keep.arguments"
TAKES_SBATCH = {"ignore_unknown_options": True, "allow_extra_args": True}


class ScriptsToo(TyperGroup):
    """A group in which `script` is meant where the first word names no command; what follows ``--`` is the script's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_AFTER] = tuple(args[at + 1 :])
            args = args[:at]
        if (args[:1] or [""])[0] not in self.commands and not {"-h", "--help"}.intersection(args[:1]):
            args = [_SCRIPT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=ScriptsToo)
ChainId = Annotated[str, typer.Argument(metavar="CHAIN", help="The chain, as perdure keep list names it.")]


@app.callback()
def keep() -> None:
    """Keep a job running past its walltime, as a chain of jobs.

    perdure keep SCRIPT submits the script and, in time, its successor, until the work is done; it needs no service and
    no rights but those of sbatch. perdure keep alone goes on with all chains of this user, after a reboot for example.

    Exit codes: 0 ok, 1 a chain has stopped, 2 usage or bad input.
    """


@app.command(_SCRIPT, context_settings=TAKES_SBATCH)
def script(
    context: typer.Context,
    until: Annotated[
        str, typer.Option(metavar="done|N|TIME", help="Until the work is done, for N links at most, or until a time.")
    ] = "done",
    overlap_cost: Annotated[
        float,
        typer.Option(
            metavar="A",
            min=0.0,
            max=1000.0,
            help="What a second of overlap costs, against 1 for a second of interruption.",
        ),
    ] = 0.25,
    max_interruption: Annotated[
        float | None,
        typer.Option(
            metavar="P", min=0.0, max=1.0, help="Accept an interruption with this probability, instead of a price."
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="none|dependency|begin|hold", help="How the successor is submitted.")
    ] = "none",
    planner: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who decides when it is submitted; the default one if not given.")
    ] = None,
    trained: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What it has learned: a file of perdure study successors --save."),
    ] = None,
    done_file: Annotated[str, typer.Option(metavar="FILE", help="The work is done once this file is there.")] = "",
    progress: Annotated[
        str, typer.Option(metavar="FILE", help="It tells how far the work is: two links that end alike stop the chain.")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Do what is to be done now, and end: for a scrontab.")] = False,
) -> int:
    """Submit SCRIPT, and keep it running until its work is done.

    All other options are sbatch's, and hold for every link; arguments of the script follow --. The successor of a link
    is submitted early where that pays. It asks the link that still runs to write its checkpoint, by the signal of the
    script's --signal or as its framework expects, and begins once that has ended. Work is done when the script ends
    with 0 without having been told to end. Without SCRIPT all chains of this user go on.

    Exit codes: 0 the work is done, 1 the chain has stopped, 2 usage or bad input.
    """
    from perdure.cli.keep_run import KeepCall, run_keep

    arguments = tuple(context.meta.get(_AFTER, ()))
    return run_keep(
        KeepCall(
            tuple(context.args), arguments, until, overlap_cost, max_interruption, strategy, planner, done_file,
            progress, once, trained,
        )
    )  # fmt: skip


@app.command("list")
def list_(wide: Wide = False, as_json: AsJson = False) -> int:
    """List the chains of this user, how many links they have had, and how long their work was interrupted.

    Exit codes: 0 listed, 2 usage or bad input.
    """
    from perdure.cli.keep_shown import list_chains

    return list_chains(as_json, wide=wide)


@app.command("show")
def show(chain: ChainId, wide: Wide = False, as_json: AsJson = False) -> int:
    """Show one chain, link by link: waits, gaps and overlaps.

    Exit codes: 0 it runs or is done, 1 it has stopped, 2 usage or bad input.
    """
    from perdure.cli.keep_shown import show_chain

    return show_chain(chain, as_json, wide=wide)


@app.command("stop")
def stop(
    chain: ChainId,
    now: Annotated[bool, typer.Option("--now", help="Cancel the running link too, instead of letting it end.")] = False,
) -> int:
    """Stop a chain: no link follows the running one, and one that waits is cancelled.

    Exit codes: 0 it stops, or is over already, 2 usage or bad input.
    """
    from perdure.cli.keep_run import stop_chain

    return stop_chain(chain, at_once=now)


@app.command("explain")
def explain(chain: ChainId, as_json: AsJson = False) -> int:
    """Say what was seen and decided about a chain, when, and why.

    Exit codes: 0 shown, 2 usage or bad input.
    """
    from perdure.cli.keep_shown import explain_chain

    return explain_chain(chain, as_json)


app.command("study", hidden=True)(successors)  # as it was spelt before `perdure study successors`
