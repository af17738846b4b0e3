"""``perdure open``: the dashboard, without pasting a token."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from perdure.cli.options import StateDir, service
from perdure.cli.output import print_line


def open_(
    browser: Annotated[bool, typer.Option("--browser", help="Open it in this machine's browser, too.")] = False,
    state: StateDir = None,
) -> int:
    """Print a link that logs a browser in once, within a quarter of an hour, as whoever asks. Asks the service.

    Exit codes: 0 printed, 2 no service answers.
    """
    client = service(state)
    link = f"{client.url}/?code={client.post('/login-codes')['code']}"
    print_line(link, whole=True)
    if browser:
        webbrowser.open(link)
    return 0
