"""``perdure keep SCRIPT``: what was asked is checked, written down as a chain, and kept."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perdure.backends.slurm.config import read_config
from perdure.backends.slurm.links import environment_for_links, read_partitions, walltime_of
from perdure.backends.slurm.sbatch import warning_of
from perdure.backends.slurm.submission import (
    SbatchOption,
    interpreter_of,
    last_option,
    last_value,
    options_in_force,
    script_options,
    split_options,
    submission_of,
)
from perdure.backends.slurm.tools import Tools
from perdure.cli.chain_journal import ChainJournal, KeptChain, LinkPlan, refuse_second, unwritten
from perdure.cli.text import plain
from perdure.cli.trained_planner import TRAINED, TrainedFile
from perdure.durable import write_whole
from perdure.errors import ClusterBusy, InputError
from perdure.installation import user_name
from perdure.job.framework import Framework, recognised
from perdure.model.job_comment import MARK
from perdure.model.signals import signal_name
from perdure.slurm_words.durations import time_s
from perdure.succession.chain_state import ChainSpec, JobChain, Strategy

GRACE_S = 120.0  # for a checkpoint, where the script does not say how long it needs
_UNTIL_DONE = "done"
_MOST_DIGITS = 9  # int() takes some thousands, and then raises


@dataclass(frozen=True, slots=True)
class KeepRequest:
    """What was asked, in the user's words."""

    words: Sequence[str]  # the script and options of sbatch
    arguments: Sequence[str] = ()
    until: str = _UNTIL_DONE
    overlap_cost: float = 0.25
    max_interruption: float | None = None
    strategy: Strategy = Strategy.NONE
    planner: str = "reactive"
    trained: TrainedFile | None = None
    done_file: str = ""
    progress: str = ""


def cluster_name(tools: Tools) -> str:
    """Raises `ConfigError` without Slurm, `ClusterBusy` where it does not answer."""
    tools.check()
    tools.find("sbatch")
    with tools.dialog() as scontrol:
        config = read_config(scontrol.ask("show config").out, scontrol.mark)
    if config.time_s is None:
        raise ClusterBusy("slurmctld", "it does not answer", "Run `scontrol ping`")
    return config.cluster


def make_chain(request: KeepRequest, journal: ChainJournal, tools: Tools, now: float) -> KeptChain:
    """Write a new chain down. Raises `InputError` for what no chain can be made of, `ClusterBusy`."""
    order = submission_of(request.words, request.arguments)
    where = plain(order.script, 200)
    script = _read(order.script, where)
    own, given = script_options(script, where), split_options(order.options)[0]
    environment = environment_for_links(os.environ)
    options = options_in_force(own, environment, given)
    walltime_s = _walltime_s(options, where, tools)
    if request.trained is not None:
        request.trained.check(walltime_s)
    name = last_value(options, "job-name") or Path(order.script).name
    directory = os.path.abspath(last_value(options, "chdir") or os.getcwd())
    most, until_s = until_of(request.until, now)
    interpreter = interpreter_of(script, where)
    with journal.making():
        refuse_second(journal, name, directory)
        kept = journal.make(name)
        command = (*interpreter, str(kept.folder.script), *order.arguments)
        spec = ChainSpec(
            id=kept.id,
            tag=f"{kept.id}.{secrets.token_hex(4)}",
            name=name,
            script=os.path.abspath(order.script),
            directory=os.getcwd(),
            user=user_name(),
            created_s=now,
            walltime_s=walltime_s,
            options=order.options,
            arguments=order.arguments,
            strategy=request.strategy,
            planner=request.planner,
            overlap_cost=request.overlap_cost,
            max_interruption=request.max_interruption,
            most_links=most,
            until_s=until_s,
            done_file=_in(directory, request.done_file),
            progress_file=_in(directory, request.progress),
        )
        with unwritten(kept.path):
            write_whole(kept.folder.script, script, 0o600)
            if request.trained is not None:
                write_whole(kept.path / TRAINED, request.trained.data, 0o600)
            plan = _plan(script, own, given, options, command)
            write_whole(kept.path / "plan.json", msgspec.json.encode(plan), 0o600)
            write_whole(kept.path / "environment.json", msgspec.json.encode(environment), 0o600)
            kept.write(JobChain(spec).noting(now, f"{where} is to be kept running, links of {walltime_s:.0f} s"))
        return kept


def until_of(text: str, now: float) -> tuple[int | None, float | None]:
    """The most links of the chain, and the instant from which no more are submitted. Raises `InputError`."""
    from perdure.cli.when_answer import instant_of

    if text == _UNTIL_DONE:
        return None, None
    if text.isascii() and text.isdecimal():
        if len(text) > _MOST_DIGITS or not 1 <= int(text) <= 100_000:
            raise InputError(
                f"--until {plain(text, 40)}", "a chain has 1 to 100,000 links", "Write for example --until 10"
            )
        return int(text), None
    try:
        until_s = instant_of(text, now)
    except InputError as err:
        fix = "Write done, a number of links such as 10, or a day such as 2026-12-24"
        raise InputError(f"--until {plain(text, 40)!r}", "it is neither done, nor a number, nor a time", fix) from err
    if until_s <= now:
        raise InputError(f"--until {plain(text, 40)}", "it is over", "Name a time that is to come")
    return None, until_s


def _read(script: str, where: str) -> bytes:
    try:
        return Path(script).read_bytes()
    except (OSError, ValueError) as err:
        why = getattr(err, "strerror", None) or str(err)
        raise InputError(where, why, "Name a batch script") from err


def _walltime_s(options: Sequence[SbatchOption], where: str, tools: Tools) -> float:
    asked = last_option(options, "time")
    text, said = (asked.value, " ".join(asked.words)) if asked else (None, "")
    try:
        asked_s = time_s(text) if text else None
    except ValueError as err:
        raise InputError(where, f"{said} is not a time", "Write it like --time=1-12:00:00") from err
    if text and not asked_s:
        raise InputError(
            where, f"{said} is not a limit, so its job never needs a successor", "Give one: --time=24:00:00"
        )
    partition = last_value(options, "partition") or ""
    return walltime_of(read_partitions(tools), [each for each in partition.split(",") if each], asked_s, where)


def _plan(
    script: bytes,
    own: list[SbatchOption],
    given: list[SbatchOption],
    in_force: Sequence[SbatchOption],
    command: Sequence[str],
) -> LinkPlan:
    warning = warning_of(f"--signal={last_value(in_force, 'signal') or ''}")
    lines = [line for line in script.decode("utf-8", "replace").splitlines() if not line.lstrip().startswith("#")]
    kinds = [kind for line in lines if (kind := recognised(line.split(), {})) is not Framework.PLAIN]
    return LinkPlan(
        options=tuple((each.name, each.value, each.words) for each in (*own, *given)),
        script_options=len(own),
        command=tuple(command),
        signal=(signal_name(warning.signal) or str(warning.signal)) if warning else "",
        to_steps=warning is not None and "B:" not in warning.option.upper(),
        grace_s=warning.before_s if warning else GRACE_S,
        framework=str(kinds[0] if kinds else Framework.PLAIN),
        comment=_own_comment(last_value(in_force, "comment") or ""),
    )


def _own_comment(text: str) -> str:
    """The user's comment in one line, without the mark of another chain, which would hide this one's jobs."""
    return " ".join(text.replace(MARK, "").split())


def _in(directory: str, path: str) -> str:
    return os.path.join(directory, path) if path else ""
