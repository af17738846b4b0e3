"""Starting, going on with, and stopping chains from the command line."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from perdure.backends.slurm.tools import Tools
from perdure.cli.chain_journal import ChainJournal
from perdure.cli.keep_judge import judge_link
from perdure.cli.keep_outlook import Outlooks
from perdure.cli.keep_plan import Deciding
from perdure.cli.keep_start import KeepRequest, cluster_name, make_chain
from perdure.cli.keeper import Keeper
from perdure.cli.lookout import Lookout
from perdure.cli.output import print_line
from perdure.cli.text import plain
from perdure.cli.trained_planner import checked_planner
from perdure.errors import InputError
from perdure.succession.chain_state import ChainStanding, JobChain, Strategy

OK, STOPPED = 0, 1
TOOL_S = 30.0


@dataclass(frozen=True, slots=True)
class KeepCall:
    """What is on the command line."""

    words: tuple[str, ...]
    arguments: tuple[str, ...]
    until: str
    overlap_cost: float
    max_interruption: float | None
    strategy: str
    planner: str | None
    done_file: str
    progress: str
    once: bool
    trained: Path | None = None


def run_keep(call: KeepCall) -> int:
    """Make a chain where a script is named, and keep it; else keep all. Returns the exit code."""
    tools = Tools(timeout_s=TOOL_S)
    is_new = bool(call.words or call.arguments)
    if not is_new:
        _refuse_terms(call)
    request = _request(call)
    journal = ChainJournal.of(os.environ, cluster_name(tools))
    kept = make_chain(request, journal, tools, time.time()) if is_new else None
    if kept is not None:
        print_line(f"chain {kept.id}: see perdure keep show {kept.id}")
    keeper = _keeper(journal, tools, once=call.once)
    if kept is None and not journal.chains():
        print_line("No chain is kept. Begin one: perdure keep SCRIPT")
    keeper.keep(None if kept is None else [kept.id], once=call.once)
    if kept is None:
        return OK
    chain = kept.read()
    return STOPPED if chain.standing is ChainStanding.STOPPED else OK


def stop_chain(id_: str, *, at_once: bool) -> int:
    """Ask whoever keeps a chain to stop it, and do it here where nobody does."""
    tools = Tools(timeout_s=TOOL_S)
    journal = ChainJournal.of(os.environ, cluster_name(tools))
    kept = journal.find(id_)
    chain = kept.read()
    if chain.standing is not ChainStanding.RUNNING:
        print_line(f"chain {kept.id} is {chain.standing} already: {chain.why}")
        return OK
    kept.ask_stop(at_once)
    _keeper(journal, tools, once=False).keep([kept.id], once=True)
    print_line(f"chain {kept.id}: {_stopping(kept.read(), at_once=at_once)}")
    return OK


def _stopping(chain: JobChain, *, at_once: bool) -> str:
    """What has become of the wish to stop a chain, which another process may keep."""
    if chain.standing is ChainStanding.RUNNING and (at_once or not chain.last):
        return "another process keeps it, and stops it at its next look"
    jobs = ", ".join(link.job_id for link in chain.live if link.is_cancelled and link.job_id)
    asked = f"; asked Slurm to cancel job {jobs}" if jobs else ""
    return ("it is stopped" if at_once else "no link follows the running one") + asked


def _keeper(journal: ChainJournal, tools: Tools, *, once: bool) -> Keeper:
    """With `once` it goes on while forecasts are made: nobody would come back for them."""
    outlooks = Outlooks(journal.path)
    pending = outlooks.are_made if once else _never
    lookout = Lookout(tools, os.getuid())  # not by USER: jobs of another would hide those of the links
    return Keeper(journal, lookout, tools, Deciding(outlooks, journal.path), judge_link, _tell, pending)


def _never(now: float) -> bool:  # noqa: ARG001
    return False


def _refuse_terms(call: KeepCall) -> None:
    """Raise `InputError` for what only a new chain can be told."""
    given = {
        "--until": call.until != "done", "--overlap-cost": call.overlap_cost != 0.25,
        "--max-interruption": call.max_interruption is not None, "--strategy": call.strategy != Strategy.NONE,
        "--planner": call.planner is not None, "--trained": call.trained is not None,
        "--done-file": bool(call.done_file), "--progress": bool(call.progress),
    }  # fmt: skip
    if option := next((name for name, is_given in given.items() if is_given), ""):
        what = "no script is named, and chains go on by what they were begun with"
        raise InputError(option, what, "Name a script, or leave the option out")


def _request(call: KeepCall) -> KeepRequest:
    try:
        strategy = Strategy(call.strategy)
    except ValueError as err:
        fix = f"Use one of {', '.join(Strategy)}"
        raise InputError(f"--strategy {plain(call.strategy, 40)}", "is not a known strategy", fix) from err
    planner, trained = checked_planner(call.planner, call.trained)
    return KeepRequest(
        words=call.words,
        arguments=call.arguments,
        until=call.until,
        overlap_cost=call.overlap_cost,
        max_interruption=call.max_interruption,
        strategy=strategy,
        planner=planner,
        trained=trained,
        done_file=call.done_file,
        progress=call.progress,
    )


def _tell(chain_id: str, text: str) -> None:
    print_line(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {chain_id}: {text}")
    import sys

    sys.stdout.flush()
