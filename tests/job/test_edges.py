"""The in-job side at its limits: exactly there, and one step beside it. All of it pure, on clocks of our own."""

import json
import math
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError
from perdure.job import requested, walltime
from perdure.job.beats import DEFAULT_BEAT_S
from perdure.job.framework import Framework, PrestopSignal, framework_of, prestop_signal_of, recognised, signal_of
from perdure.job.heartbeat import Heartbeat, HeartbeatSource, Pulse, read
from perdure.job.identity import FENCE_JOB
from perdure.job.leave import LEAVE_FILE, RECENT_S, SCHEMA, code_left, leave
from perdure.job.liveness import Judgement, LivenessRules, SeenHeartbeat, Watchlog, allowed_s, observe, silent
from perdure.job.options import (
    GANG_STARTS_WITHIN_S,
    MIN_LOOK_S,
    ExecOptions,
    options_of,
    read_words,
    settled,
    warn_before,
)
from perdure.job.requested import STALE_S, Request, Requests
from perdure.job.signals import WITNESS_S, Sharing
from perdure.job.silence import FEW_GAPS, KEPT_GAPS, WORKING_S, HangRule, Pace, Silence, Tier
from perdure.job.walltime import NEAR_S, EndTime, WalltimeWatch
from perdure.model.exits import NEVER_AGAIN, RETRY_ME, STOP_HERE
from tests.copying import replace

RULE = HangRule(after_s=100.0, factor=10.0, min_gaps=3, soft_s=20.0, grace_s=5.0)

# -- silence


def heard(*gaps: float, rule: HangRule = RULE, **more: Any) -> tuple[Silence, float]:
    silence, now = Silence(rule, 0.0), 0.0
    for gap in gaps:
        now += gap
        silence.heard(now, **more)
    return silence, now


def test_a_silence_of_exactly_the_limit_is_no_alarm_and_each_step_to_the_end_comes_exactly_then() -> None:
    silence, now = heard(1.0, 1.0, 1.0, 1.0)
    assert silence.look(now + 100.0) is None
    assert silence.look(now + 100.25) is Tier.ALARM
    assert silence.look(now + 120.0) is None
    assert silence.look(now + 120.25) is Tier.TERM
    silence.condemn(now + 121.0)
    assert silence.look(now + 125.75) is None
    assert silence.look(now + 126.0) is Tier.KILL
    assert silence.look(now + 999.0) is None


def test_the_first_sign_of_life_begins_and_is_no_gap() -> None:
    """With three gaps to know, four signs of life: the start-up is not the usual pace."""
    assert heard(50.0, 1.0, 1.0)[0].look(1e9) is None
    assert heard(50.0, 1.0, 1.0, 1.0)[0].look(1e9) is Tier.ALARM


def test_the_longest_of_three_allows_what_it_is_the_longest_of() -> None:
    """The floor, ten times the usual gap, twice the longest gap."""
    for gaps, most in (((1.0,) * 4, 100.0), ((1.0, 30.0, 30.0, 30.0), 300.0), ((1.0, 1.0, 1.0, 1.0, 90.0), 180.0)):
        pace, now = Pace(0.0), 0.0
        for gap in gaps:
            now += gap
            pace.heard(now)
        assert pace.allowed_s(RULE) == most
        assert pace.last_s == now


def test_the_usual_gap_is_the_middle_one_and_old_ones_are_forgotten() -> None:
    pace, now = Pace(0.0), 0.0
    for gap in (0.0, *[1000.0] * KEPT_GAPS, *[20.0] * (KEPT_GAPS // 2 + 1)):
        now += gap
        pace.heard(now)
    assert pace.allowed_s(replace(RULE, is_exact=True)) == 100.0  # half of those that are kept are short
    assert pace.allowed_s(RULE) == 2000.0  # the longest is not forgotten


@pytest.mark.parametrize("known", range(FEW_GAPS + 2))
def test_a_limit_that_was_set_gives_way_to_twice_the_usual_gap_once_a_few_are_known(known: int) -> None:
    rule = replace(RULE, is_exact=True, min_gaps=10)
    pace = Pace(0.0)
    for number in range(known + 1):
        pace.heard(number * 200.0, is_step=True)
    assert pace.allowed_s(rule) == (400.0 if known >= FEW_GAPS else 100.0)


def test_it_says_whether_it_is_alarmed_and_for_how_long_it_has_been_silent() -> None:
    silence, now = heard(1.0, 1.0, 1.0, 1.0)
    assert (silence.is_alarmed, silence.heard_s, silence.silent_s(now + 7.0)) == (False, now, 7.0)
    silence.look(now + 101.0)
    assert (silence.is_alarmed,) == (True,)
    silence.heard(now + 102.0)
    assert (silence.is_alarmed,) == (False,)
    silence.condemn(now + 103.0)
    assert (silence.is_alarmed,) == (True,)
    assert not silence.excuse(now + 104.0)  # its end has begun


def test_work_excuses_a_silence_that_is_shorter_than_half_an_hour() -> None:
    silence, now = heard(1.0, 1.0, 1.0, 1.0)
    assert silence.excuse(now + WORKING_S - 0.25)
    assert not silence.excuse(now + WORKING_S)
    assert WORKING_S == 1800.0


def test_an_announced_pause_ends_when_it_was_said_and_the_limit_runs_from_there() -> None:
    silence, now = heard(1.0, 1.0, 1.0, 1.0)
    silence.heard(now, quiet_s=50.0)
    assert silence.look(now + 150.0) is None
    assert silence.look(now + 150.25) is Tier.ALARM
    other, now = heard(1.0, 1.0, 1.0, 1.0)
    other.heard(now, quiet_s=50.0)
    other.skip(10.0)  # what is announced is not eaten up by a freeze
    assert other.look(now + 160.0) is None
    assert other.look(now + 160.25) is Tier.ALARM


# -- signals that came to the launcher


def test_a_signal_waits_for_its_witness_for_exactly_its_time() -> None:
    sharing = Sharing()
    sharing.came(10, 1.0)
    assert sharing.patience_s(1.0, 5.0) == WITNESS_S
    assert sharing.alone(1.0 + WITNESS_S / 2) == frozenset()
    assert sharing.alone(1.0 + WITNESS_S) == {10}
    assert sharing.alone(9.0) == frozenset()
    assert sharing.patience_s(9.0, 5.0) == 5.0


@pytest.mark.parametrize(("apart_s", "alone"), [(WITNESS_S / 2, set()), (WITNESS_S, {10}), (60.0, {10})])
def test_a_witness_counts_for_one_signal_of_about_its_time(apart_s: float, alone: set[int]) -> None:
    sharing = Sharing()
    sharing.witnessed(10, 0.0)
    sharing.witnessed(12, 0.0)
    sharing.came(10, apart_s)
    assert sharing.alone(1000.0) == alone
    sharing.came(10, apart_s)  # the same once more, which nobody witnessed
    assert sharing.alone(1000.0) == {10}


def test_a_second_signal_while_the_first_waits_does_not_put_it_off() -> None:
    sharing = Sharing()
    sharing.came(10, 0.0)
    sharing.came(10, WITNESS_S / 2)
    assert sharing.alone(WITNESS_S) == {10}


# -- the walltime


def watching(tmp_path: Path, end_s: int = 1000, before_s: float | None = 120.0) -> WalltimeWatch:
    return WalltimeWatch(EndTime({"SLURM_JOB_END_TIME": str(end_s)}, tmp_path / "note"), before_s)


def test_how_much_is_left_and_whether_there_is_time_to_wait(tmp_path: Path) -> None:
    watch = watching(tmp_path=tmp_path)
    assert (watch.end_s, watch.left_s(900.0), watch.left_s(2000.0), watch.due_s(800.0)) == (1000.0, 100.0, 0.0, 80.0)
    assert watch.due_s(900.0) == 0.0
    assert not watch.has_time(0.0)  # nobody was told yet
    assert watch.look(880.0)
    assert watch.due_s(880.0) == math.inf  # told once
    assert not watch.look(990.0)
    assert watch.has_time(959.0)
    assert not watch.has_time(960.0)  # a third of 120 s
    unknown = WalltimeWatch(EndTime({}, tmp_path / "none"), 120.0)
    assert (unknown.left_s(0.0), unknown.due_s(0.0), unknown.look(1e9)) == (0.0, math.inf, False)


def test_a_signal_explains_an_end_within_five_minutes_of_the_limit(tmp_path: Path) -> None:
    watch = watching(before_s=None, tmp_path=tmp_path)
    assert NEAR_S == 300.0
    assert watch.explains(True, 700.0)
    assert not watch.explains(True, 699.0)
    assert (watch.due_s(999.0), watch.look(999.0)) == (math.inf, False)


def test_an_answer_counts_for_a_minute(tmp_path: Path) -> None:
    asked = []

    def ask() -> float:
        asked.append(1)
        return 1000.0

    end = EndTime({"SLURM_JOB_ID": "1"}, tmp_path / "note", ask)
    assert not end.refresh(0.0)
    end._asking.wait(60)
    assert end.refresh(walltime._ASK_EVERY_S - 0.5)
    assert not end.refresh(walltime._ASK_EVERY_S)
    end._asking.wait(60)
    assert len(asked) == 2
    assert EndTime({"SLURM_JOB_END_TIME": "N/A"}, tmp_path / "x").known_s is None


# -- a word on what is to become of the job


def left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **environment: Any) -> Any:
    """Leaves, and returns what was written down for the launcher."""
    note = tmp_path / "leave.json"
    for name in ("PERDURE_JOB_ID", "SLURM_JOB_ID", "PERDURE_FENCE_JOB", "TORCHELASTIC_ERROR_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(LEAVE_FILE, str(note))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        leave(75, "w" * 600)
    assert ended.value.code == 75
    return json.loads(note.read_text()) if note.exists() else None


def test_who_leaves_writes_it_down_for_the_own_jobs_launcher_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"PERDURE_JOB_ID": "7", FENCE_JOB: "7"}
    said = left(monkeypatch, tmp_path, **own)
    assert (said["exit_code"], said["why"]) == (75, "w" * 500)
    assert capsys.readouterr().err == "w" * 600 + "\n"
    (tmp_path / "leave.json").unlink()
    assert left(monkeypatch, tmp_path, **{**own, FENCE_JOB: "8"}) is None


def test_what_was_left_counts_for_a_minute(tmp_path: Path) -> None:
    note = tmp_path / "leave.json"
    assert code_left(note, 100.0) == 0
    note.write_text(json.dumps({"schema": SCHEMA, "exit_code": 78, "time_s": 100.0, "why": ""}))
    assert code_left(note, 100.0) == 78
    assert code_left(note, 100.0 + RECENT_S - 1) == 78
    assert code_left(note, 100.0 + RECENT_S) == 0
    note.write_text("{")
    assert code_left(note, 100.0) == 0
    assert (RETRY_ME, NEVER_AGAIN, STOP_HERE, RECENT_S) == (75, 78, 93, 60.0)


# -- what the service asks for


def test_what_is_not_renewed_is_believed_for_ten_minutes(tmp_path: Path) -> None:
    path, asked = tmp_path / "asked.json", Requests(tmp_path / "asked.json")
    requested.write(path, [Request("a", "pause")], 1)
    asked.look(1.0)
    asked.look(1.0 + STALE_S)
    assert asked.kinds() == {"pause"}
    assert asked.look(1.0 + STALE_S + 0.5).over == (Request("a", "pause"),)
    assert (STALE_S, Requests(None).look(0.0)) == (600.0, ((), ()))


# -- the options of the launcher


def test_what_options_mean() -> None:
    usual = options_of()
    assert (usual.hang.after_s, usual.hang.is_exact, usual.hang.must_beat) == (1800.0, False, False)
    assert (usual.hang.soft_s, usual.hang.grace_s, usual.warn_s, usual.framework) == (60.0, 60.0, None, Framework.AUTO)
    asked = options_of(hang_after=30.0, start_within=9.0, hang_grace=5.0, signal_before="120:USR1", on_pause="stop")
    assert (asked.hang.after_s, asked.hang.is_exact, asked.hang.start_within_s, asked.hang.must_beat) == (
        30.0,
        True,
        9.0,
        True,
    )
    assert (asked.hang.soft_s, asked.hang.grace_s) == (5.0, 5.0)
    assert (asked.warn_s, asked.warn_signal, asked.pause_signal) == (120.0, signal.SIGUSR1, signal.SIGSTOP)
    assert options_of(hang_signal="quit").dump_signal == signal.SIGQUIT
    assert not options_of(start_within=0.0).hang.must_beat


def test_a_limit_that_was_set_is_looked_at_often_enough() -> None:
    def of(hang_after: float | None) -> tuple[float, float, float]:
        found = settled(options_of(hang_after=hang_after), ["python"], {})
        return found.beat_s, found.look_s, found.hang.beat_s

    assert of(20.0) == (2.0, 1.0, 2.0)
    assert of(1.0) == (0.1, MIN_LOOK_S, 0.1)
    assert of(1e6) == (DEFAULT_BEAT_S, ExecOptions().look_s, DEFAULT_BEAT_S)
    assert of(None) == (DEFAULT_BEAT_S, ExecOptions().look_s, 0.0)
    assert of(0.0) == (DEFAULT_BEAT_S, ExecOptions().look_s, 0.0)  # nothing is held to hang


@pytest.mark.parametrize(
    ("argv", "within_s"), [(["torchrun", "a.py"], GANG_STARTS_WITHIN_S), (["python", "torchrun.py"], None)]
)
def test_programs_whose_tasks_wait_for_each_other_have_two_hours_to_start(
    argv: list[str], within_s: float | None
) -> None:
    assert settled(options_of(), argv, {}).hang.start_within_s == within_s
    assert settled(options_of(start_within=5.0), argv, {}).hang.start_within_s == 5.0
    assert settled(options_of(hang_after=0.0), argv, {}).hang.start_within_s is None
    assert GANG_STARTS_WITHIN_S == 7200.0


@pytest.mark.parametrize(
    ("text", "meant"), [("120", (120.0, None)), ("0", (0.0, None)), ("9:SIGUSR2", (9.0, signal.SIGUSR2))]
)
def test_the_time_of_a_warning(text: str, meant: tuple[float, signal.Signals | None]) -> None:
    assert warn_before(text) == meant


@pytest.mark.parametrize("text", ["", "-1", "1.5", "9:", ":USR1", "9:USR9", "\N{ARABIC-INDIC DIGIT NINE}"])
def test_what_is_no_time_of_a_warning_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        warn_before(text)


@pytest.mark.parametrize(
    ("words", "read_as"),
    [
        (["python", "a.py", "--hang-after", "5"], (["python", "a.py", "--hang-after", "5"], {})),
        (["--hang-after", "5.5", "--", "p"], (["p"], {"hang_after": 5.5})),
        (["--hang-after=5", "p"], (["p"], {"hang_after": 5.0})),
        (["--signal-before", "9:USR1", "p"], (["p"], {"signal_before": "9:USR1"})),
        (["--hang-after", "x", "p"], None),
        (["--hang-after", "5..5", "p"], None),
        (["--hang_after", "5", "p"], None),
        (["--help", "p"], None),
        (["-x", "5", "p"], None),
        (["--hang-after"], None),
        (["--hang-after", "5"], None),
        (["--", "p"], (["p"], {})),
        ([], None),
    ],
)
def test_options_that_are_spelled_out_are_read_without_the_command_line_s_library(
    words: list[str], read_as: tuple[list[str], Mapping[str, float | str]] | None
) -> None:
    assert read_words(words) == read_as


# -- frameworks


@pytest.mark.parametrize(
    ("argv", "environment", "framework"),
    [
        (["python", "train.py"], {}, Framework.PLAIN),
        (["/opt/bin/torchrun", "train.py"], {}, Framework.TORCHRUN),
        (["python", "-m", "torch.distributed.run", "train.py"], {}, Framework.TORCHRUN),
        (["accelerate", "launch", "train.py"], {}, Framework.TORCHRUN),
        (["accelerate", "config"], {}, Framework.PLAIN),
        (["python", "train.py", "torchrun"], {}, Framework.PLAIN),  # the script's own word
        (["lightning", "run", "x.py"], {}, Framework.LIGHTNING),
        (["python", "x.py"], {"PL_GLOBAL_SEED": "1"}, Framework.LIGHTNING),
        (["python", "-m", "submitit.core._submit", "d"], {}, Framework.SUBMITIT),
        (["torchrun", "x.py"], {"SUBMITIT_EXECUTOR": "slurm"}, Framework.SUBMITIT),
    ],
)
def test_a_framework_is_known_by_the_command_and_its_environment(
    argv: list[str], environment: dict[str, str], framework: Framework
) -> None:
    assert recognised(argv, environment) is framework


def test_each_framework_is_told_by_its_signal() -> None:
    told = {each: prestop_signal_of(each, {}) for each in Framework}
    plain = PrestopSignal(signal.SIGTERM)
    assert told == {
        Framework.AUTO: plain,
        Framework.PLAIN: plain,
        Framework.TORCHRUN: PrestopSignal(signal.SIGTERM, workers=True),
        Framework.LIGHTNING: PrestopSignal(signal.SIGUSR1),
        Framework.SUBMITIT: PrestopSignal(signal.SIGUSR2),
    }
    assert prestop_signal_of(Framework.SUBMITIT, {"SUBMITIT_PREEMPT_SIGNAL": "SIGUSR1"}) == PrestopSignal(
        signal.SIGUSR1
    )
    assert (signal_of("term", ""), signal_of("SIGTERM", "")) == (15, 15)
    for given, name in ((framework_of, "jax"), (lambda name: signal_of(name, "x"), "JAX")):
        with pytest.raises(ConfigError):
            given(name)


# -- who lives


RULES = LivenessRules(factor=3.0, floor_s=10.0, cap_s=120.0, away_s=30.0, max_share=0.5)
AGENT = Heartbeat(HeartbeatSource.AGENT, "n1", "n1", 1, 0, 0.0, 5.0)
JOB = Heartbeat(HeartbeatSource.JOB, "n1", "n1", 2, 0, 0.0, 5.0, job_id="12")


def log_of(nodes: Sequence[str], changed_s: float = 0.0, beats: tuple[Heartbeat, ...] = (AGENT, JOB)) -> Watchlog:
    seen = {
        f"{node}{n}": SeenHeartbeat(replace(beat, node=node), changed_s)
        for node in nodes
        for n, beat in enumerate(beats)
    }
    return Watchlog(seen, changed_s)


@pytest.mark.parametrize(("every_s", "most_s"), [(1.0, 10.0), (4.0, 12.0), (40.0, 120.0), (100.0, 120.0)])
def test_three_beats_may_be_missed_within_bounds(every_s: float, most_s: float) -> None:
    beat = replace(AGENT, every_s=every_s)
    assert allowed_s(beat, RULES) == most_s
    log = log_of(["n1"], beats=(beat, replace(JOB, every_s=every_s)))
    assert silent(log, most_s, RULES, {"12": ["n1"]}).nodes == ()
    (found,) = silent(log, most_s + 0.5, RULES, {"12": ["n1"]}).nodes
    assert (found.node, found.since_s, found.sources) == ("n1", 0.0, ("agent", "job 12"))


@pytest.mark.parametrize(("watched", "gone", "blind"), [(1, 1, False), (3, 1, False), (3, 2, True), (4, 2, False)])
def test_an_observer_is_blind_where_more_than_half_fall_silent_and_more_than_one(
    watched: int, gone: int, blind: bool
) -> None:
    names = [f"n{number}" for number in range(watched)]
    lost, live = log_of(names[:gone]), log_of(names[gone:], 100.0)
    both = Watchlog({**lost.seen, **live.seen}, 100.0)
    found = silent(both, 100.0, RULES, {"12": names})
    assert bool(found.blind) is blind
    assert len(found.nodes) == (0 if blind else gone)
    confirmed = silent(both, 100.0, RULES, {"12": names}, names[:1])  # by the manager's own word
    assert len(confirmed.nodes) == gone
    assert Judgement().nodes == ()


def test_an_observer_that_was_away_for_as_long_as_it_may_be_counts_the_time() -> None:
    log = log_of(["n1"])
    for away_s, changed_s in ((30.0, 0.0), (30.5, 30.5)):
        seen = observe(log, {name: each.heartbeat for name, each in log.seen.items()}, away_s, RULES).seen
        assert {each.changed_s for each in seen.values()} == {changed_s}


@pytest.mark.parametrize("change", [{"host": "n9"}, {"pid": 9}, {"count": 9}])
def test_a_heartbeat_is_another_by_its_host_its_process_or_its_count(change: Mapping[str, Any]) -> None:
    log = log_of(["n1"], beats=(AGENT,))
    for beat, changed_s in ((replace(AGENT, time_s=7.0), 0.0), (replace(AGENT, **change), 5.0)):
        assert observe(log, {"n10": beat}, 5.0, RULES).seen["n10"].changed_s == changed_s


def test_a_pulse_beats_a_little_early_and_says_its_end(tmp_path: Path) -> None:
    path = tmp_path / "beat.json"
    pulse = Pulse(path, replace(AGENT, every_s=10.0))
    written = []
    for now in (0.0, 8.5, 9.0, 12.0, 18.5):
        pulse.beat(now, step=int(now))
        written.append((read(path).count, read(path).step))
    assert written == [(1, 0), (1, 0), (2, 9), (2, 9), (3, 18)]
    pulse.end(step=99)
    last = read(path)
    assert (last.count, last.step, last.is_over) == (4, 99, True)
