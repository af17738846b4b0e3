"""What the pure functions of some modules answer for random arguments.

A module is one line in `MODULES`. Its public functions and the methods of its values are asked, where their arguments
can be drawn.
"""

from __future__ import annotations

import importlib
import inspect
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.config import Config
from perdure.backends.slurm.records import JobRecord
from perdure.cli.picture import LEAST_S, LOOKS, LookAge
from perdure.coordination import record as records
from perdure.coordination.record import Annotation, Answer, AnswerKind, Component, ExceptionOutcome, ExceptionRecord
from perdure.hangs.rank_state import BUSY_FRAC, MOVES_BYTES_S, PYTHON, Frame, Seen
from perdure.model.jobs import Attempt
from perdure.retry.history import Fleet
from perdure.simulation.difference import Differences, PairedDifference
from perdure.simulation.groups import GroupKind
from perdure.simulation.verdict import PolicyStanding, PolicyVerdict
from perdure.slurm_words.link_job import LinkJob
from perdure.waits.forecast import LEVELS, WaitForecast
from tests.copying import replace
from tests.recorded import slurm_records
from tests.recorded.drawn import NOW, Drawn, MakesNoSense, NotDrawn, in_words
from tests.recorded.given import GIVEN
from tests.recorded.line import Line, hash_of
from tests.recorded.path_taken import path_taken

PLACE = Path(__file__).parent / "answers" / "modules"
MODULES = (
    "retry.budget", "retry.decide", "retry.history", "retry.not_the_node", "retry.one_node", "retry.size",
    "coordination.chain", "coordination.folding", "coordination.playbook", "coordination.record",
    "coordination.record_changes", "coordination.ruling", "coordination.handlers.node", "coordination.handlers.quota",
    "service.core.case", "service.core.chain_step", "service.core.comments", "service.core.consequences",
    "service.core.full_store", "service.core.launcher_notes", "service.core.loglines", "service.core.orders",
    "service.core.recovery", "service.core.requeue_loop", "service.core.scope", "service.core.successor",
    "service.core.triage_context", "service.core.view", "service.core.waiting", "service.core.waiting_retry",
    "service.notices.channels.protocol", "service.notices.channels.slack", "service.notices.derive",
    "service.notices.notice", "service.notices.rules", "service.learning.corrections", "succession.chain",
    "succession.chain_state", "succession.following", "succession.spans", "succession.unwritten", "hangs.collectives",
    "hangs.culprit", "hangs.live", "hangs.nccl_ras", "hangs.rank_state", "hangs.report", "waits.awaited",
    "waits.calibration", "waits.holds", "waits.limits", "waits.own_errors", "waits.queue", "blame.accuse",
    "blame.standing", "blame.witnesses", "blame.builders.attempts", "blame.builders.vms", "model.jobs",
    "model.observation", "model.signals", "backends.slurm.plans", "backends.slurm.outputs",
    "backends.slurm.accounting", "backends.slurm.siblings", "triage.conformal", "triage.verdict",
    "triage.learning.examples", "triage.learning.outcomes", "triage.learning.promise", "triage.learning.testimony",
    "triage.evidence.context", "triage.evidence.disk_space", "triage.evidence.gpu_memory",
    "triage.evidence.quota_tables", "triage.evidence.scheduler", "survey.tally", "job.link_marks", "job.liveness",
    "job.framework", "job.fence", "backends.rank_files", "backends.local.placement", "service.store.rows",
    "service.workers.executor", "service.access.auth", "service.blame.announce", "service.core.call_budget",
    "service.core.controller", "service.core.messages", "service.exceptions.permissions",
    "service.learning.learnt_messages", "service.learning.outcome_store", "service.runtime.share",
    "service.store.journal", "service.store.queries.chains", "service.store.queries.jobs",
    "service.store.queries.learning", "service.store.queries.places", "service.web.pages.blame",
    "service.web.pages.decision_timeline", "service.web.pages.jobs", "service.web.pages.labels",
    "service.web.pages.listing", "service.web.pages.now", "service.web.pages.timeline", "service.web.pages.waits",
    "service.workers.commands", "scheduling.backfill", "scheduling.shares", "scheduling.view", "simulation.verdict",
    "simulation.replay_error", "simulation.difference", "cli.card", "cli.diagnosis", "cli.emulate_values",
    "cli.help_width", "cli.keep_plan", "cli.keep_shown", "cli.link_order", "cli.output", "cli.picture",
    "cli.simulated", "cli.speed_choice", "cli.speed_settings", "cli.table", "cli.text", "demo.workload",
    "demo.driver", "hangs.flight_recorder", "hangs.stacks", "simulation.elastic_metrics", "simulation.foresight",
    "simulation.metrics", "scheduling.placement.resources", "scheduling.policies", "scheduling.slurm.site_limits",
    "throughput.collectives", "throughput.option_values", "throughput.pipeline", "emulation.profiles",
    "blame.builders.named", "blame.builders.topology", "backends.slurm.checkup", "backends.slurm.dependants",
    "backends.slurm.het", "backends.slurm.paths", "backends.slurm.picture", "backends.slurm.queue",
    "backends.slurm.records", "backends.slurm.unexplained", "backends.condor.requirements", "backends.local.records",
    "backends.local.outputs", "backends.kubernetes.attempts", "backends.kubernetes.runs", "model.actions",
    "model.events", "model.exits", "model.job_comment", "model.output", "coordination.cover", "coordination.replay",
    "coordination.site", "coordination.source", "coordination.bridges.bridged", "coordination.bridges.causes",
    "slurm_words.link_job", "service.web.pages.chain_timeline", "service.web.pages.start_words",
    "backends.condor.ads", "backends.condor.settings", "backends.kubernetes.objects", "backends.kubernetes.plans",
    "backends.kubernetes.resources", "backends.kubernetes.workloads", "backends.simulated.cluster",
    "backends.slurm.config", "backends.slurm.partitions", "backends.slurm.submission", "cli.emulate_study",
)  # fmt: skip
_ADDRESS = re.compile(r"0x[0-9a-f]{6}")
ASKS_THE_MACHINE = frozenset(
    {"backends.rank_files.home_of", "backends.slurm.picture.uid_of_name", "job.fence.claim",
     "cli.card.print_card", "cli.output.screen_width",
     "cli.output.coloured", "cli.output.since", "cli.output.clock", "cli.output.print_line", "cli.output.paint",
     "demo.workload.a_round", "cli.picture.warn", "cli.keep_shown.list_chains", "cli.keep_shown.show_chain",
     "cli.keep_shown.explain_chain"}
)  # fmt: skip

MOST_TRIED, PATIENCE = 1500, 100  # cases, and cases in a row that show nothing new
PATIENCE_ALIKE = 500  # while all answers are alike
LEAST_KEPT, MOST_KEPT, OF_ONE_PATH, LEAST_TOLD = 10, 100, 3, 6
WIDEST = 160  # characters of an answer that are written down, before a hash of the rest


def _of_one_job(attempt: Attempt, rng: random.Random) -> Attempt:
    """Nodes that failed are some of its own; one that runs has no end."""
    nodes = attempt.nodes or ("n1",)
    end_s = max(attempt.start_s, attempt.end_s or attempt.start_s) if attempt.state.is_over else None
    return replace(attempt, nodes=nodes, failed_nodes=nodes[:1] if attempt.failed_nodes else (), end_s=end_s)


def _of_all_nodes(fleet: Fleet, rng: random.Random) -> Fleet:
    """All of a partition's nodes are among all nodes."""
    usable = {**fleet.usable, "": frozenset().union(*fleet.usable.values())} if fleet.usable else {}
    return replace(fleet, usable=usable, troubles={node: some for node, some in fleet.troubles.items() if some})


def _of_a_process(seen: Seen, rng: random.Random) -> Seen:
    """What it is at, and how much, at the edges of what is asked."""
    return replace(
        seen,
        state=rng.choice("SSSDTtR"),
        busy_frac=rng.choice((0.0, BUSY_FRAC - 0.01, BUSY_FRAC, 1.0)),
        bytes_s=rng.choice((0.0, MOVES_BYTES_S - 1.0, MOVES_BYTES_S, 1e9)),
        call=rng.choice(("", "read", "lock", "futex", "poll", "open", "write")),
        target=rng.choice(("", "", "socket", "/data/part-3")),
        code=rng.choice(("", PYTHON, "NCCL")),
    )


def _of_a_program(frame: Frame, rng: random.Random) -> Frame:
    """In a collective, in backward, in a loader, in another library, or the program's own."""
    function = rng.choice(("load", "all_reduce", "_engine_run_backward", "<module>"))
    places = ("/home/ada/train.py", "/v/site-packages/torch/distributed/c10d.py", "/v/lib/python3.11/threading.py")
    return replace(frame, function=function, file=rng.choice((*places, "/v/site-packages/torch/utils/data/loader.py")))


def _of_a_look(look: LookAge, rng: random.Random) -> LookAge:
    """At the edges of what is old."""
    ago_s = rng.choice((0.0, 0.9, 1.0, LEAST_S, 60.0, 600.0))
    last_s = None if look.last_look_s is None else NOW - ago_s
    return replace(look, look_every_s=rng.choice((0.0, LEAST_S / LOOKS, 30.0, 300.0)), last_look_s=last_s)


def _on_its_way(record: ExceptionRecord, rng: random.Random) -> ExceptionRecord:
    """Half of them owned: by whom, with which holds, and what has come of it since."""
    keys = ((), ("hold:c/7#0",), ("hold:c/7#0", "hold:c/8#1@x"), ("drain:n1@7",))
    owned = Answer(
        Component.RESOURCE_MANAGER, AnswerKind.HANDLED, NOW - 60.0, "", rng.choice(keys), rng.choice(("", "", "ops")),
        rng.choice(((), (records.START,), ("requeue",))),
    )  # fmt: skip
    over = Answer(Component.RESOURCE_MANAGER, AnswerKind.ANNOTATED, NOW, "", rng.choice(((), ("hold:c/7#0",))))
    others = tuple(each for each in record.verdicts if each.kind is not AnswerKind.HANDLED)
    is_owned, is_open = rng.random() < 0.5, rng.random() < 0.6
    said = Annotation(
        "site",
        NOW - 30.0,
        rng.choice((records.READ_BACK, records.CLOSED, records.CLEARS, records.SEEN_BY)),
        "operator:ada",
    )
    return replace(
        record,
        verdicts=(*others, owned, over) if is_owned else others,
        state=records.ExceptionState.HANDLED if is_owned else record.state,
        outcome=ExceptionOutcome.OPEN if is_open else record.outcome,
        annotations=(*record.annotations, said) if rng.random() < 0.4 else record.annotations,
        detected_by=rng.choice(("", "perdure", "perdure.blame", "operator:ada", "ada", "unknown")),
    )


def _submitted(job: LinkJob, rng: random.Random) -> LinkJob:
    """In a state that Slurm knows."""
    return replace(job, state=rng.choice(slurm_records.OFTEN))


FITTING: dict[type, Callable[[Any, random.Random], Any]] = {
    Attempt: _of_one_job,
    Fleet: _of_all_nodes,
    Seen: _of_a_process,
    Frame: _of_a_program,
    LookAge: _of_a_look,
    ExceptionRecord: _on_its_way,
    LinkJob: _submitted,
    JobRecord: slurm_records.a_record,
    AccountingRow: slurm_records.a_row,
    Config: slurm_records.a_config,
}


def _forecast(rng: random.Random) -> WaitForecast:
    """Quantiles rise."""
    waits_s = sorted(rng.choice((1.0, 60.0, 600.0, 3600.0, 40_000.0, 600_000.0)) for _ in LEVELS)
    return WaitForecast(NOW - rng.choice((0.0, 60.0, 900.0)), tuple(waits_s), rng.choice(((), ("a remark",))))


def _differences(rng: random.Random) -> Differences:
    """Of all jobs, and of some users and sizes."""
    some = ((GroupKind.USER, "ada"), (GroupKind.USER, "bob"), (GroupKind.GPUS, "1"), (GroupKind.CLUSTER, ""))
    groups = ((None, ""), *some[: rng.choice((0, 2, 4))])
    return {group: {of: _difference(rng) for of in ("jct_s", "log_jct", "slowdown")} for group in groups}


def _difference(rng: random.Random) -> PairedDifference:
    mean, other = rng.choice((1.01, 80.0, 100.0, 5000.0)), rng.choice((1.0, 100.0, 101.0, 7200.0))
    share, off = mean / other - 1.0, rng.choice((None, 0.0, 0.001, 0.3))
    if off is None:
        return PairedDifference(9, mean, other)
    return PairedDifference(9, mean, other, share - off, share + off, rng.choice((0.0001, 0.04, 0.5)))


def _standing(rng: random.Random, label: str = "las", is_best: bool = False) -> PolicyStanding:
    passed, is_bound = rng.choice((1.0, 0.9, 0.901)), not is_best and rng.random() < 0.2
    return PolicyStanding(label, _differences(rng), None if is_best else _difference(rng), is_bound, passed)


def _policy_verdict(rng: random.Random) -> PolicyVerdict:
    """Of up to three policies, of which one is best."""
    labels = ("fifo", "las", "srtf")[: rng.choice((1, 2, 3, 3))]
    best = rng.choice(labels)
    return PolicyVerdict(tuple(_standing(rng, label, label == best) for label in labels), rng.choice((1, 6, 7, 30)))


MAKING: dict[type, Callable[[random.Random], Any]] = {
    WaitForecast: _forecast,
    PairedDifference: _difference,
    PolicyStanding: _standing,
    PolicyVerdict: _policy_verdict,
}


def functions(module: str) -> dict[str, Callable[..., Any]]:
    """All that may be asked, by name."""
    found = sorted(_functions(f"perdure.{module}"))
    return {name: function for name, function in found if f"{module}.{name}" not in ASKS_THE_MACHINE}


def _answer(function: Callable[..., Any], case: str) -> str:
    """What a function answers in one case. Raises `NotDrawn` where its arguments cannot be drawn."""
    drawn, hints = Drawn(case, FITTING, MAKING), _hints_of(function)
    given = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name not in hints:
            raise NotDrawn(name)
        some = GIVEN.get(f"{case.partition(' ')[0]}.{name}")
        value = random.Random(f"{case} {name}").choice(some) if some else drawn(hints[name], name, name)
        given.append((name, parameter.kind, value))
    at_place = [value for _, kind, value in given if kind is not inspect.Parameter.KEYWORD_ONLY]
    by_name = {name: value for name, kind, value in given if kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        said = in_words(function(*at_place, **by_name))
    except NotDrawn:
        raise
    except Exception as err:  # whatever it refuses
        said = type(err).__name__
    if _ADDRESS.search(said):
        raise NotDrawn(said)
    return said


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except NameError as err:  # of a type that the module itself does not load
        raise NotDrawn(function) from err


def _functions(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    loaded = importlib.import_module(module)
    for name, found in vars(loaded).items():
        if name.startswith("_") or getattr(found, "__module__", "") != module:
            continue
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found):
            yield from _methods(found)


def _methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Of values that can be drawn, as functions of them."""
    for name, found in vars(kind).items():
        read = (
            found.fget if isinstance(found, property) else found.func if isinstance(found, cached_property) else found
        )
        if not name.startswith("_") and inspect.isfunction(read):
            with suppress(NameError):  # of a type that only type checkers import
                yield f"{kind.__name__}.{name}", _of_self(read, kind)


def _of_self(read: Callable[..., Any], kind: type) -> Callable[..., Any]:
    def ask(*given: Any, **named: Any) -> Any:
        return read(*given, **named)

    first = next(iter(inspect.signature(read).parameters))
    ask.__signature__ = inspect.signature(read)  # type: ignore[attr-defined]
    ask.__annotations__ = {**get_type_hints(read), first: kind}
    return ask


def _short(answer: str) -> str:
    line = answer.replace("\n", "\\n")
    if len(line) <= WIDEST:
        return line
    return f"{line[:WIDEST]}... {hash_of(line, 12)}"


def names() -> Iterable[str]:
    return MODULES


def lines_of(module: str) -> Iterator[Line]:
    """The cases that are there, asked again; of a function that is new, those that tell something."""
    known: dict[str, list[int]] = {}
    path = PLACE / f"{module}.txt"
    for line in path.read_text().splitlines() if path.exists() else ():
        name, case = line.partition(": ")[0].split()
        known.setdefault(name, []).append(int(case))
    for name, function in functions(module).items():
        for number in known.get(name) or _telling(module, name, function):
            said = _answer(function, f"{module}.{name} {number}")
            yield Line(f"{name} {number}: {_short(said)}", f"{name} {number}: {said}")


def _telling(module: str, name: str, function: Callable[..., Any]) -> Iterator[int]:
    """The cases that are worth keeping: those that take another path through the code, and the first other answers."""
    seen: Counter[Any] = Counter()
    said: set[str] = set()
    kept, last = 0, 0
    for case in range(MOST_TRIED):
        if kept >= MOST_KEPT or case > last + (PATIENCE if len(said) > 1 else PATIENCE_ALIKE):
            return
        try:
            with path_taken() as path:
                answer = _answer(function, f"{module}.{name} {case}")
        except MakesNoSense:
            continue
        except NotDrawn:
            return
        way = frozenset(path)
        seen[way] += 1
        is_new = answer not in said and len(said) < LEAST_TOLD
        said.add(answer)
        if kept < LEAST_KEPT or seen[way] <= OF_ONE_PATH or is_new:
            kept, last = kept + 1, case
            yield case
