"""Figures that the docs promise to users and operators are those that the code keeps to."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perdure.backends import reader
from perdure.backends.slurm import kind as slurm
from perdure.cli.why import EXIT_CODES
from perdure.coordination import chain, record_changes, wire
from perdure.hangs import rank_state
from perdure.job import beats, liveness, options, requested, silence
from perdure.job.agent import Post
from perdure.model import exits
from perdure.retry.decide import _HOPELESS_P
from perdure.retry.history import NEARBY_S
from perdure.retry.rules import RetryRules
from perdure.service import settings
from perdure.service.access import auth
from perdure.service.blame.settings import BlameSettings
from perdure.service.core import successor
from perdure.service.core.settings import Caps
from perdure.service.exceptions import permissions
from perdure.service.notices import notice, rules
from perdure.service.notices.channels import webhook
from perdure.service.web.pages import listing
from perdure.service.workers import comment_writer, kept_logs, log_queue
from perdure.service.workers import threads as hands
from perdure.triage.evidence import context

DOCS = Path(__file__).parents[2] / "docs"
CAPS, RETRY, LIVE = Caps(), RetryRules(), liveness.LivenessRules()
Promises = list[tuple[str, Any, Any]]
PACE = settings.Settings(service=settings.ServiceSettings(cluster="slurm")).pace


def break_even(ran_h: float) -> float:
    """The chance from which on a retry is worth it, after so many hours."""
    return round((ran_h + RETRY.nuisance_h) / (ran_h + RETRY.nuisance_h + RETRY.person_delay_h), 2)


HOW_TO = [
    ("at most 10,000; a text that a spreadsheet", listing.MOST_IN_CSV, 10_000),
    ("would very probably have failed again (p at most 0.2)", _HOPELESS_P, 0.2),
    ("in any minute (10); also a pause twice as long as the last look", (PACE.looks, hands.LOOK_SHARE), (10, 2.0)),
    ("rounds in which actions are carried out | six times as many", PACE.rounds, 60),
    ("looks at the failed attempts whose epilogs wait | three times as many", PACE.early_looks, 30),
    ("one `scontrol` for all of these, kept open for 10 seconds", slurm.KEEP_OPEN_S, 10.0),
    ("comments take a `sacctmgr` at most every 10 seconds", comment_writer.COMMENTS_EVERY_S, 10.0),
    ("where hooks report ends, every 30 seconds", slurm.POLL_S, 30.0),
    ("compressed, at most 4 MiB of each", kept_logs.MAX_BYTES, 4 << 20),
    ("a count, and the first five by name", notice.NAMED, 5),
    ("at most every 15 minutes", rules.LONGEST_WAIT_S, 15 * 60.0),
    ("Refuse a `webhook-timestamp` older than 5 minutes", webhook.OLD_S, 5 * 60.0),
    ("within a second no action is begun any more", hands.ACT_EVERY_S <= 1.0, True),
    ("| 1 | stop: it would fail again", EXIT_CODES["stop"], 1),
    ("| 3 | probe: one retry", EXIT_CODES["probe"], 3),
    ("the wrapper kills it (exit code 93)", exits.STOP_HERE, 93),
    ("and end with exit code 75", exits.RETRY_ME, 75),
]
LIMITS = [
    ("4 drains an hour, a tenth of the nodes or two, never more than half of them out at once",
     (CAPS.drains_per_hour, CAPS.nodes_share_per_hour, CAPS.drains_floor_per_hour, CAPS.nodes_out_share),
     (4, 0.1, 2, 0.5)),
    ("two a user and 32 in all are read at once", (log_queue.MOST_OF_ONE, log_queue.THREADS), (2, 32)),
    ("the others' are judged without after 20 s", log_queue.PATIENCE_S, 20.0),
    ("share 8 MiB evenly, and at most 1,024 of them are read", (reader.RANKS_BYTES, reader.MAX_RANK_FILES),
     (8 << 20, 1024)),
    ("What one loop submits (a second apart at most) is many jobs", successor.TOGETHER_S, 1.0),
    ("is the other source only once it has lasted 15 s", max(LIVE.floor_s, LIVE.factor * 5.0), 15.0),
]  # fmt: skip
JOBS: Promises = [
    ("| signs of life | `heartbeat.json`, every 5 s |", options.ExecOptions().heartbeat_s, 5.0),
    ("- half an hour,", (silence.HangRule().after_s, options.USUAL_HANG_AFTER_S), (1800.0, 1800.0)),
    ("- ten times the usual gap", silence.HangRule().factor, 10.0),
    ("Before ten gaps are known", silence.HangRule().min_gaps, 10),
    ("two hours for torchrun, Lightning and submitit", options.GANG_STARTS_WITHIN_S, 7200.0),
    ("(reads or writes a quarter of a MiB a second", rank_state.MOVES_BYTES_S, 256 * 1024),
    ("or uses half a core", rank_state.BUSY_FRAC, 0.5),
    ("the silence looked at again, for up to half an hour in all", silence.WORKING_S, 1800.0),
    ("after ten minutes in which nothing is heard of the service", requested.STALE_S, 600.0),
    ("writes `DIR/<node>.json` every 3 s", Post.__dataclass_fields__["every_s"].default, 3.0),
    ("more than half of the nodes fall silent at once", LIVE.max_share, 0.5),
]
EXCEPTIONS = [
    ("A user may have 200 exceptions open", chain.MAX_OF_ONE_GUEST, 200),
    ("and 16 handlers registered", chain.MAX_HANDLERS_OF_ONE_GUEST, 16),
    ("64 pieces of evidence and 64 annotations of 4,096 characters each, half of them from users",
     (wire.MAX_ITEMS, record_changes.MAX_ANNOTATIONS, wire.MAX_NOTE, record_changes.MAX_ANNOTATIONS_OF_GUESTS),
     (64, 64, 4096, 32)),
    ("an instant at most a minute ahead and a week back",
     (permissions.AHEAD_S, permissions.BEHIND_S), (60.0, 7 * 86400.0)),
    ("up to 32 fields of its own", wire.MAX_EXTRA, 32),
]  # fmt: skip
OTHERS: dict[str, Promises] = {
    "reference/api.md": [("within a quarter of an hour: ``/?code=CODE``", auth.CODE_LIFE_S, 15 * 60.0)],
    "who.md": [
        ("Every 5 minutes (`blame.step_s`)", BlameSettings().step_s, 300.0),
        ("that ended within the last 60 (`blame.window_s`)", BlameSettings().window_s, 3600.0),
    ],
    "learning.md": [
        ("a thousand steps or collectives had worked", (context.FAR_STEPS, context.FAR_COLLECTIVES), (1000, 1000)),
        ("or it ran for half an hour", context.LONG_S, 1800.0),
        ("failed on the same node within a quarter of an hour", NEARBY_S, 15 * 60.0),
        ("Every quarter of an hour (`triage.learn_every_s`)", settings.TriageSettings().learn_every_s, 15 * 60.0),
    ],
    "why.md": [
        (
            "A failure after 30 seconds is retried on a weak hunch (the break-even is p = 0.11",
            break_even(1 / 120),
            0.11,
        ),
        ("only on good evidence (p = 0.72)", break_even(10.0), 0.72),
    ],
}
PAGES = {"how-to.md": HOW_TO, "limits.md": LIMITS, "jobs.md": JOBS, "exceptions.md": EXCEPTIONS, **OTHERS}
PROMISES = [(page, *each) for page, promises in PAGES.items() for each in promises]


@cache
def words_of(page: str) -> str:
    """The page as one line: where its lines are broken is not a matter."""
    return " ".join((DOCS / page).read_text().split())


@pytest.mark.parametrize(("page", "promise", "kept", "meant"), PROMISES, ids=[each[1][:50] for each in PROMISES])
def test_what_is_promised_is_kept(page: str, promise: str, kept: Any, meant: Any) -> None:
    assert promise in words_of(page), f"{page} says so no longer: change the figure here and there together"
    assert kept == meant


def test_the_tables_of_notices_say_how_much_each_matters() -> None:
    """Each row names some kinds and their severity."""
    rows = re.findall(r"\| (`[a-z_`, ]+`) \| (info|warning|critical) \|", words_of("how-to.md"))
    told = {name: severity for names, severity in rows for name in re.findall(r"[a-z_]+", names)}
    assert told == {kind.value: kind.severity.value for kind in notice.Kind if kind is not notice.Kind.TEST}


def test_the_defaults_in_the_reference_are_those_in_force() -> None:
    """It is generated; what a default means in seconds and shares is written down here once more."""
    assert (RETRY.max_infrastructure_retries, RETRY.max_user_retries, RETRY.max_probes) == (8, 2, 1)
    assert (RETRY.cluster_floor_per_hour, RETRY.per_cluster_per_hour, RETRY.per_node_per_hour) == (100, 5000, 60)
    assert (RETRY.back_off_s, RETRY.back_off_cap_s, RETRY.node_memory_s) == (10.0, 3600.0, 86400.0)
    assert (RETRY.user_share, RETRY.cluster_share_per_hour, RETRY.per_user_per_hour) == (0.5, 1.0, 2500)
    assert (RETRY.person_delay_h, RETRY.nuisance_h, RETRY.repeat_odds, RETRY.same_place_odds) == (4.0, 0.5, 0.25, 0.6)
    assert (beats.DEFAULT_BEAT_S, auth.MAX_OWN_CODES) == (10.0, 5)
