"""``perdure config check``: which settings are in force, and where each came from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.options import AsJson, Wide, load_settings
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import text, word

COLUMNS = (word("SETTING"), text("VALUE"), text("FROM", leave=1))

app = typer.Typer()


@app.callback()
def config() -> None:
    """Look at the settings.

    Exit codes: 0 all can be used, 2 the first that cannot is named.
    """


@app.command("check")
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Check it on top of the usual files.", show_default=False)
    ] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> int:
    """Print every setting in force and where it came from.

    That is a file and line, the environment, or built in.

    Exit codes: 0 all can be used, 2 the first that cannot is named.
    """
    from perdure.service.settings import known_names, value_of

    loaded = load_settings(file)
    if loaded.settings.triage.rules is not None:
        from perdure.triage.evidence.rules import with_site_rules

        with_site_rules(loaded.settings.triage.rules)
    values = {name: shown(name, value_of(loaded.settings, name)) for name in known_names()}
    if as_json:
        listed = {name: {"value": value, "from": loaded.origin[name]} for name, value in values.items()}
        print_json("config", 1, files=[str(path) for path in loaded.files], settings=listed)
        return 0
    print_line(f"Files read: {', '.join(map(str, loaded.files)) or 'none'}")
    rows = ((name, "" if value is None else as_toml(value), loaded.origin[name]) for name, value in values.items())
    print_table(COLUMNS, rows, wide=wide)
    return 0


def shown(name: str, value: Any) -> Any:
    """The value for a person or JSON; a password in a database's URL is not for either."""
    if name == "service.database" and "@" in value:
        scheme, _, rest = value.partition("://")
        return f"{scheme}://***@{rest.rpartition('@')[2]}"
    if hasattr(value, "read_tables"):
        return str(value) or None
    return str(value) if isinstance(value, Path) else value


def as_toml(value: Any) -> str:
    """The value as a file would hold it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
