"""``perdure exec -- CMD``: run a job's program so that only its newest incarnation lives."""

from __future__ import annotations

from typing import Annotated

import typer


def exec_(
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="The program and its arguments.")],
) -> int:
    """Run a program inside a job, fenced: once a newer attempt of the job has started, this one is ended.

    Exit codes: the program's own (128 + n after signal n), 2 usage.
    """
    from perdure.job.exec import run

    return run(command)
