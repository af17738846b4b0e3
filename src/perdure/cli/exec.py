"""``perdure exec -- CMD``: run a job's program so that only its newest incarnation lives, and look after it."""

from __future__ import annotations

from typing import Annotated

import typer

Command = Annotated[list[str], typer.Argument(metavar="CMD", help="The program and its arguments.")]
HangAfter = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Report a hang after this many seconds without output or heartbeat, from the first step on; 0 disables"
        " hang detection. [default: at least 1800, more where the program has been silent for longer before]",
        show_default=False,
    ),
]
StartWithin = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Maximum silence during start-up, before a typical interval is known; 0 = unlimited. If set, a program"
        " whose log is not visible must send its first heartbeat within this time. [default: 7200 for torchrun,"
        " lightning and submitit, else 0]",
        show_default=False,
    ),
]
HangSignal = Annotated[
    str | None,
    typer.Option(
        metavar="SIGNAL",
        help="At a hang, send this signal to the ranks that have a handler for it, such as faulthandler's.",
        show_default=False,
    ),
]
HangGrace = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="From the alarm to TERM, and again from TERM to KILL.")
]
SignalBefore = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS[:SIGNAL]",
        help="Warn the program this many seconds before its walltime ends, as its framework expects or by this signal.",
        show_default=False,
    ),
]
OnPause = Annotated[
    str | None,
    typer.Option(
        metavar="SIGNAL",
        help="Where the service asks the job to pause: STOP stops the program until it may go on, another signal"
        " goes to its processes that listen to it.",
        show_default=False,
    ),
]
FrameworkName = Annotated[
    str,
    typer.Option(
        metavar="auto|torchrun|lightning|submitit|plain",
        help="torchrun and plain get TERM, lightning USR1, submitit USR2.",
    ),
]


def exec_(
    command: Command,
    hang_after: HangAfter = None,
    start_within: StartWithin = None,
    hang_signal: HangSignal = None,
    hang_grace: HangGrace = 60.0,
    signal_before: SignalBefore = None,
    on_pause: OnPause = None,
    framework: FrameworkName = "auto",
) -> int:
    """Run a program inside a job, fenced and supervised.

    Once a newer attempt of the job has started, this one is ended. A program that hangs, by its beats
    (perdure.job.beat) or where it has none by its log, is ended too. Its exit report is kept in the fence directory.

    Exit codes: the program's own (75 asks for a retry, 78 and 93 for none), 128 + n after signal n,
    75 after a hang, 93 fenced, 126 or 127 where it cannot be started, 2 usage.
    """
    from perdure.job.exec import run
    from perdure.job.options import options_of

    options = options_of(
        hang_after=hang_after,
        start_within=start_within,
        hang_signal=hang_signal,
        hang_grace=hang_grace,
        signal_before=signal_before,
        on_pause=on_pause,
        framework=framework,
    )
    return run(command, options=options)
