"""Write the generated part of the reference: ``python docs/generate.py``.

Commands come from the command line's own help, settings from their dataclasses, signature rules and the catalogue from
their files, the API from its OpenAPI description, metrics from what `/metrics` answers. A test compares the pages with
what this prints.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from sqlalchemy import create_engine
from typer.main import get_command

from perdure.cli.commands import app
from perdure.cli.config import as_toml, shown
from perdure.retry.budget import BudgetStanding
from perdure.service.access.auth import TokenBook
from perdure.service.settings import Settings, groups, known_names, value_of, values_of
from perdure.service.store.queries.reader import Reader
from perdure.service.store.schema import metadata
from perdure.service.web.app import create_app
from perdure.service.web.metrics import ServiceMetrics
from perdure.service.workers.operations import Status
from perdure.triage.catalogue import own_catalogue
from perdure.triage.evidence.rule import Force, TriageRule
from perdure.triage.evidence.rules import own_rules
from perdure.triage.verdict import Bound

HERE = Path(__file__).parent / "reference"


def commands() -> str:
    """Every command with its help, as a terminal of 100 columns shows it."""
    parts = ["# Commands", "", "Every reading command takes `--json`; what it prints then says its form in `schema`."]
    for context in contexts("perdure", get_command(app), None):
        parts += ["", f"## {context.command_path}", "", "```text", context.get_help().rstrip(), "```"]
    return "\n".join(parts) + "\n"


def contexts(name: str, command: Any, parent: Any) -> Iterator[Any]:
    """A command as it is called, and those below it."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True, terminal_width=100)
    yield context
    for name_below, below in getattr(command, "commands", {}).items():
        yield from contexts(name_below, below, context)


def settings() -> str:
    """Every setting: what it means, and what is built in."""
    parts = [
        "# Settings",
        "",
        "Later sources win: built in, `/etc/perdure/config.toml`, `$XDG_CONFIG_HOME/perdure/config.toml`,",
        "`--config FILE`, `PERDURE_GROUP_KEY` in the environment, options of the command. A file is TOML with one",
        "table a group; an unknown key is an error. `perdure config check [FILE]` prints what is in force and where",
        "each value came from.",
    ]
    for group, kind in groups().items():
        meaning = meanings(kind)
        parts += ["", f"## [{group}]", "", inspect.cleandoc(kind.__doc__ or ""), ""]
        parts += ["| key | built in | values | meaning |", "|---|---|---|---|"]
        for name in (name for name in known_names() if name.startswith(f"{group}.")):
            key = name.partition(".")[2]
            parts.append(f"| `{key}` | {built_in(name)} | {values_of(name)} | {meaning.get(key, '')} |")
    return "\n".join(parts) + "\n"


def built_in(name: str) -> str:
    if name == "service.state":
        return "`$XDG_STATE_HOME/perdure`"
    value = value_of(Settings(), name)
    told = shown(name, value)
    return "" if told is None else f"`{as_toml(told)}`"


def meanings(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass."""
    (body,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def rules() -> str:
    """The signature rules: what they are about, and each with what it means and what to do."""
    book = own_rules().rules
    parts = [
        "# Signature rules",
        "",
        f"{len(book)} rules, in the order in which they are tried: within one line the earlier wins. `p` is the chance",
        "that a retry elsewhere gets past the point, before the model and the job's history have had their say. A",
        "*root* names the cause, a *cascade* follows from a failure elsewhere, a *confirmation* says that something",
        "failed and not what. A site adds its own with `triage.rules`. They were written from documentation, from real",
        f"logs or from the foundry's programs: {_counted(book)}.",
        "",
        "| software | rules |",
        "|---|---|",
    ]
    about: dict[str, list[str]] = {}
    for rule in book:
        for software in rule.software:
            about.setdefault(software, []).append(f"[{rule.cause.name}](#{rule.cause.name})")
    parts += [f"| {software} | {', '.join(names)} |" for software, names in sorted(about.items(), key=_folded)]
    for rule in book:
        parts += ["", *_rule(rule)]
    return "\n".join(parts) + "\n"


def _counted(book: Sequence[TriageRule]) -> str:
    """How many rules were written from what."""
    number = Counter(str(rule.written_from) for rule in book)
    return ", ".join(f"{name} {count}" for name, count in number.most_common())


def _folded(item: tuple[str, object]) -> str:
    return item[0].lower()


def _rule(rule: TriageRule) -> Iterator[str]:
    cause = rule.cause
    force = "" if cause.force is Force.PLAIN else f", {cause.force}"
    yield f"## {cause.name}"
    yield ""
    about = f"{cause.category}, {cause.role}{force}, p = {cause.p_transient:.2f}, from {rule.written_from}."
    yield f"{about} {_sentence(cause.says)} {cause.advice}"
    if cause.bound is not Bound.NOTHING:
        yield f"A retry goes elsewhere: bound to the {cause.bound}." if cause.bound is Bound.NODE else "A retry waits."
    yield ""
    yield "```text"
    yield from rule.yes
    yield "```"
    if rule.see:
        yield ""
        yield f"See <{rule.see}>."


def catalogue() -> str:
    """What is known of systems' messages by their documentation: each family with its codes."""
    families = [family.table for family in own_catalogue().families]
    count = sum(1 for family in families for _ in family.keys)
    parts = [
        "# Catalogue",
        "",
        f"{len(families)} families of messages, {count:,} codes, each from the documentation that is named. Only a",
        "line that no [signature rule](rules.md) decides is looked up here. `p` is the chance that a retry passes;",
        "fault is whose a failure is: the job's, a peer's (another task of it), a tenant's (another job), the site's,",
        "the hardware's or a service's outside the cluster. A * stands for some words.",
    ]
    for family in families:
        parts += ["", f"## {family.name}", "", f"{family.source}.", "", "```text", family.example, "```", ""]
        parts += ["| it means | category | p | fault | codes |", "|---|---|---|---|---|"]
        for key, (category, p, fault, means) in family.codes.items():
            codes = ", ".join(f"`` {code} ``" if "`" in code else f"`{code}`" for code in key.split("|"))
            parts.append(f"| {means} | {category} | {p:.2f} | {fault} | {codes} |")
    return "\n".join(parts) + "\n"


def _sentence(half: str) -> str:
    return f"{half[:1].upper()}{half[1:]}."


def api() -> str:
    """Every route of the API, from its OpenAPI description."""
    parts = [
        "# HTTP API",
        "",
        "`Authorization: Bearer TOKEN`, with a token of `perdure token USER --role viewer|operator`. Errors are",
        "problem details (RFC 9457) with `where` and `fix`. Listings end where `next_cursor` is null; else ask again",
        "with it as `cursor`. The service shows all of it, with every field, on its page `/docs/api`, and serves the",
        "description as `/api/v1/openapi.json`.",
        "",
        "| route | what it does |",
        "|---|---|",
    ]
    app = create_app(create_engine("sqlite://"), Idle(), TokenBook(Path()))
    for path, methods in sorted(app.openapi()["paths"].items()):
        for method, route in methods.items():
            parts.append(f"| `{method.upper()} {path}` | {' '.join(route.get('description', '').split())} |")
    return "\n".join(parts) + "\n"


def metrics() -> str:
    """Every metric, from what an idle service answers."""
    parts = [
        "# Metrics",
        "",
        "What `/metrics` answers, for Prometheus 2 and 3. Slurm's own exporter has the rest. No job, user, node or",
        "text is ever a label, and each label has few values: `category` is a cause of the",
        "[signature rules](rules.md), `type` an entry of the [playbook](../exceptions.md), `target` a target of",
        "notices. Counters begin with the service. The journal is counted every 5 seconds at most.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for family in sorted(_families(), key=lambda family: family.name):
        name = f"{family.name}{ENDINGS.get(family.type, '')}"
        labels = ", ".join(f"`{label}`" for label in _labels(family))
        kind = "gauge" if family.type == "info" else family.type
        parts.append(f"| `{name}` | {kind} | {labels} | {family.documentation} |")
    return "\n".join(parts) + "\n"


ENDINGS = {"counter": "_total", "info": "_info"}


def _families() -> list[Metric]:
    """The metrics of an empty journal."""
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    told = ServiceMetrics()
    told.tried_notice("ops", "sent")
    told.watch(Reader(engine, "local"), Idle())
    return list(told.registry.collect())


def _labels(family: Metric) -> list[str]:
    """Those of its samples; a family without any has declared them."""
    of_samples = {label for sample in family.samples for label in sample.labels} - {"le"}
    return sorted(of_samples.union(getattr(family, "_labelnames", ())))


class Idle:
    """A service that does nothing: enough to be described."""

    def status(self) -> Status:
        budget = BudgetStanding("the cluster's retries", 0, 100, 0.0, "per_cluster_per_hour", "cluster")
        return Status(
            "local", "local", armed=False, stopped=False, last_look_s=None, retries=budget, left={"cluster": 100}
        )


PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands,
    "settings.md": settings,
    "rules.md": rules,
    "catalogue.md": catalogue,
    "api.md": api,
    "metrics.md": metrics,
}


def main() -> int:
    HERE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
