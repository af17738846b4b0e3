"""The settings of ``perdure exec``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perdure.errors import ConfigError
from perdure.job.beats import DEFAULT_BEAT_S
from perdure.job.framework import Framework, framework_of, recognised, signal_of
from perdure.job.silence import HangRule

if TYPE_CHECKING:  # programs that are no link of a chain load less
    from perdure.job.handover import HandoverWatch

USUAL_HANG_AFTER_S = 1800.0
BEATS_IN_LIMIT, LOOKS_IN_LIMIT = 10, 20  # so often, at least, within a limit that somebody has set
MIN_LOOK_S = 0.2
GANG_STARTS_WITHIN_S = 7200.0  # of programs whose tasks wait for each other at the start
_SECONDS = ("hang_after", "start_within", "hang_grace")
_GANGS = (Framework.TORCHRUN, Framework.LIGHTNING, Framework.SUBMITIT)


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """How a program is looked after."""

    hang: HangRule = field(default_factory=HangRule)
    dump_signal: int | None = None  # sent at the alarm to the processes that have a handler for it
    warn_s: float | None = None  # seconds before walltime at which the program is told; None: it is not
    warn_signal: int | None = None  # None: what its framework expects
    pause_signal: int | None = None  # where the job is asked to pause; STOP: it is stopped until it may go on
    framework: Framework = Framework.AUTO
    poll_s: float = 0.2  # between two looks at the claim
    look_s: float = 5.0  # between two looks for signs of life
    heartbeat_s: float = 5.0  # of local rank 0; the others of a node write once a minute
    beat_s: float = DEFAULT_BEAT_S  # of the program's own
    handover: HandoverWatch | None = None  # of a link of a chain, instead of a warning before walltime
    clock: Callable[[], float] = time.monotonic  # by which silence, pauses and signals are timed


def settled(options: ExecOptions, argv: Sequence[str], environment: Mapping[str, str]) -> ExecOptions:
    """The settings for a command, where they are left to what drives it."""
    if options.framework is Framework.AUTO:
        options = replace(options, framework=recognised(argv, environment))
    if options.hang.start_within_s is None and options.hang.after_s and options.framework in _GANGS:
        options = replace(options, hang=replace(options.hang, start_within_s=GANG_STARTS_WITHIN_S))
    return _in_time(options) if options.hang.is_exact and options.hang.after_s else options


def _in_time(options: ExecOptions) -> ExecOptions:
    """Often enough that a limit that somebody has set is held to about a fifth."""
    beat_s = min(options.beat_s, options.hang.after_s / BEATS_IN_LIMIT)
    look_s = min(options.look_s, max(MIN_LOOK_S, options.hang.after_s / LOOKS_IN_LIMIT))
    return replace(options, beat_s=beat_s, look_s=look_s, hang=replace(options.hang, beat_s=beat_s))


def options_of(
    *,
    hang_after: float | None = None,
    start_within: float | None = None,
    hang_signal: str | None = None,
    hang_grace: float = 60.0,
    signal_before: str | None = None,
    on_pause: str | None = None,
    framework: str = "auto",
) -> ExecOptions:
    """The settings that the options of ``perdure exec`` name. Raises `ConfigError`."""
    hang = HangRule(
        after_s=USUAL_HANG_AFTER_S if hang_after is None else hang_after,
        is_exact=hang_after is not None,
        soft_s=hang_grace,
        grace_s=hang_grace,
        start_within_s=start_within,
        must_beat=bool(start_within),
    )
    warn_s, warn_signal = warn_before(signal_before) if signal_before is not None else (None, None)
    return ExecOptions(
        hang=hang,
        dump_signal=signal_of(hang_signal, "--hang-signal") if hang_signal else None,
        warn_s=warn_s,
        warn_signal=warn_signal,
        pause_signal=signal_of(on_pause, "--on-pause") if on_pause else None,
        framework=framework_of(framework),
    )


def read_words(words: Sequence[str]) -> tuple[list[str], dict[str, Any]] | None:
    """The program's words, and the options before them as `options_of` takes them; None where they are not plain.

    Plain are options that are spelled out, with values that can be, before a program.
    """
    left, given = list(words), dict[str, Any]()
    while left and left[0].startswith("-"):
        word, _, value = left.pop(0).partition("=")
        if word == "--":
            break
        if not value and not left:
            return None
        name, value = word.removeprefix("--").replace("-", "_"), value or left.pop(0)
        if name not in (options_of.__kwdefaults__ or {}) or not word.startswith("--") or "_" in word:
            return None
        given[name] = value
        if name in _SECONDS:
            if not (value.isascii() and value.replace(".", "", 1).isdecimal()):
                return None
            given[name] = float(value)
    return (left, given) if left else None


def warn_before(text: str) -> tuple[float, int | None]:
    """Read ``120`` or ``120:USR1``: seconds before walltime, and the signal. Raises `ConfigError`."""
    seconds, colon, name = text.partition(":")
    if not (seconds.isascii() and seconds.isdecimal()) or (colon and not name):
        raise ConfigError("--signal-before", f"{text[:40]!r} is not SECONDS[:SIGNAL]", "Say for example 120:USR1")
    return float(seconds), signal_of(name, "--signal-before") if name else None
