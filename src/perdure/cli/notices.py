"""``perdure notices``: the latest notices, whether they were delivered, and a test of the targets."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from perdure.cli.options import AsJson, ConfigFile, Limit, StateDir, Wide, load_settings, service
from perdure.cli.output import clock, print_json, print_line, print_table
from perdure.cli.table import text, word
from perdure.errors import NotFound
from perdure.installation import to_type

COLUMNS = (word("TARGET"), word("STATE"), word("LAST", leave=1), text("WHAT"))

app = typer.Typer()


@app.callback(invoke_without_command=True)
def notices(
    context: typer.Context,
    limit: Limit = 50,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """List the messages that notify people, the latest first. Asks the service.

    Exit codes: 0 listed, 2 the service does not answer.
    """
    if context.invoked_subcommand is not None:
        return 0
    found = list(service(state).pages("/notices", limit))
    if as_json:
        print_json("notices", 1, notices=found)
        return 0
    if not found:
        print_line(to_type("no notices yet; perdure notices test tries the targets"))
        return 0
    rows = ([each["target"], each["state"], clock(each["last_s"]), _what(each)] for each in found)
    print_table(COLUMNS, rows, wide=wide)
    return 0


@app.command("test")
def send_test(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="One of [notices.targets]; all of them if not given.")
    ] = None,
    config: ConfigFile = None,
) -> int:
    """Send a test message to a target, or to all, from this process. Needs no running service.

    Exit codes: 0 all took it, 1 one did not, 2 there is no such target.
    """
    from perdure.service.notices.settings import kind_of

    loaded = load_settings(config).settings
    known = loaded.notices.targets.by_name
    if not known or (target is not None and target not in known):
        what = "no target is set" if target is None else "no such target"
        fix = f"Name one of: {', '.join(known)}" if known else "Write [notices.targets.NAME] into the settings"
        raise NotFound(target or "notices", what, fix)
    failed = False
    for name in [target] if target else known:
        error = _try(name, loaded)
        failed = failed or bool(error)
        print_line(f"{name} ({kind_of(known[name])}): {error or 'sent'}")
    return int(failed)


def _try(target: str, settings: Any) -> str:
    """Send a test; what went wrong, or ""."""
    import secrets
    from dataclasses import replace

    from perdure.errors import ConfigError, NotDelivered
    from perdure.installation import user_name
    from perdure.service.notices.network import TRIED_AGAIN
    from perdure.service.notices.notifier import deliver, network_of, trial_message

    channel, given = settings.notices.targets.by_name[target], settings.notices
    message = trial_message(settings.service.cluster_id, target, time.time(), secrets.token_hex(16))
    if channel.is_personal:
        message = replace(message, whose=user_name())
    url = given.url or f"http://{settings.service.host}:{settings.service.port}"
    try:
        deliver(channel, message, url, time.time(), network_of(given))
    except (NotDelivered, ConfigError) as err:
        return str(err).replace(TRIED_AGAIN, "The service would try again")
    return ""


def _what(message: dict[str, Any]) -> str:
    """What it tells, why it did not arrive, and what it waits for."""
    named = ", ".join(message["about"])
    more = message["count"] - len(message["about"])
    text = f"{message['title']}: {named}" + (f" and {more} more" if more else "")
    until = f", until {clock(message['until_s']).short}" if message["until_s"] is not None else ""
    why = [message["error"].rstrip("."), f"{message['waits_for']}{until}" if message["waits_for"] else ""]
    said = "; ".join(filter(None, why))
    return f"{text} ({said})" if said else text
