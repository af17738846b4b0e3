"""The Grafana board and the alert rules that come with Perdure speak of what the service tells."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

import perdure
from perdure.cli.commands import app
from perdure.coordination.record import ExceptionState
from perdure.service.store.journal import ActionState
from perdure.service.store.queries.totals import FATES
from perdure.triage.verdict import Label
from tests.conftest import require_program
from tests.service.web_world import fill, site

SHIPPED = Path(perdure.__file__).parent / "service" / "monitoring"
RULES = yaml.safe_load((SHIPPED / "alerts.yml").read_text())["groups"][0]["rules"]
BOARD = json.loads((SHIPPED / "grafana.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
FROM_RULES = [(rule["alert"], rule["expr"]) for rule in RULES]
FROM_BOARD = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [*FROM_RULES, *FROM_BOARD, *((one["name"], one["expr"]) for one in BOARD["annotations"]["list"])]
VALUES = {
    "state": {*ActionState, *ExceptionState},
    "label": {*Label},
    "fate": {*FATES},
    "outcome": {"sent", "failed"},
    "instance": {"$instance"},
}
WORDS = {"and", "or", "unless", "on", "by", "sum", "min", "max", "count"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of all samples that the service tells, and of the metrics that have none now, with their labels."""
    place = site(tmp_path_factory.mktemp("told"))
    fill(place.world)
    place.app.state.metrics.tried_notice("ops", "sent")
    found = set()
    for family in text_string_to_metric_families(place.client().get("/metrics").text):
        found |= {family.name, *(sample.name for sample in family.samples)}
    return found


def names(expression: str) -> set[Any]:
    """The metrics that an expression reads: what is not a label, function, duration or word of PromQL."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(by|on)\s*\([^)]*\)", " ", expression)
    words = re.findall(r"[A-Za-z_][A-Za-z0-9_]*(?!\w)(?!\s*\()", bare)
    return {word for word in words if word not in WORDS}


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_every_metric_that_is_read_is_told(told: set[str], where: str, expression: str) -> None:
    assert names(expression), expression
    assert names(expression) <= told


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_every_value_of_a_label_can_come(where: str, expression: str) -> None:
    for label, value in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', expression):
        assert set(value.split("|")) <= VALUES[label], (label, value)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"]
    assert len(rule["annotations"]["description"]) > 60
    for command in re.findall(r"`(perdure [^`]*)`", rule["annotations"]["description"]):
        assert_is_a_command(command)


def assert_is_a_command(command: str) -> None:
    known, options = get_command(app), set()
    for word in shlex.split(command)[1:]:
        known = getattr(known, "commands", {}).get(word, known)
        options |= {word} if word.startswith("--") else set()
    assert known is not get_command(app), command
    assert options <= {name for option in known.params for name in option.opts}, command


def test_a_board_is_whole_and_names_no_source_of_its_own() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    for panel in PANELS:
        assert panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert {variable["name"] for variable in BOARD["templating"]["list"]} == {"datasource", "instance"}


def promtool(*words: str) -> str:
    ran = subprocess.run(
        [require_program("promtool"), *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_promtool_takes_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", str(SHIPPED / "alerts.yml"))


def test_each_alert_fires_where_it_should_and_none_where_all_is_well() -> None:
    cases = Path(__file__).with_name("alerts_promtool.yml")
    (last,) = yaml.safe_load(cases.read_text())["tests"][-1]["promql_expr_test"]
    assert last["exp_samples"][0]["value"] == len(RULES) - 1, "all but the absence of the service"
    promtool("test", "rules", str(cases))


def test_promtool_takes_the_expressions_of_the_board(tmp_path: Path) -> None:
    """As rules, with what Grafana puts in for its variables."""
    expressions = [expression.replace("$instance", ".*") for _, expression in FROM_BOARD]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    (tmp_path / "board.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    promtool("check", "rules", str(tmp_path / "board.yml"))
