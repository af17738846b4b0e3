"""`perdure rules`: what a rule means, also where the documentation is not at hand."""

from collections.abc import Callable
from pathlib import Path

from perdure.triage.evidence.rules import own_rules
from tests.cli.conftest import Ran


def test_a_rule_is_told_with_what_to_do_and_lines_like_it(perdure: Callable[..., Ran]) -> None:
    rule = own_rules().named("port-busy")
    told = perdure("rules", "port-busy").out
    assert told.startswith(f"port-busy   port_busy, root, p = {rule.cause.p_transient:.2f}\n")
    assert f"Do: {rule.cause.advice}" in told
    assert all(f"    {line}\n" in told for line in rule.yes)


def test_without_a_name_all_are_listed(perdure: Callable[..., Ran]) -> None:
    found = perdure("rules", "--json").json
    assert [rule["name"] for rule in found["rules"]] == [rule.cause.name for rule in own_rules().rules]
    assert len(perdure("rules").out.splitlines()) > len(own_rules().rules)


def test_the_sites_own_rules_are_among_them(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "site.toml").write_text(
        '[[rule]]\nname = "our-filer"\ncategory = "fs"\npattern = "filer[0-9]+ is away"\np = 0.9\n'
        'says = "our filer was away"\nyes = ["filer3 is away"]\n'
    )
    (home / "perdure.toml").write_text('[triage]\nrules = "site.toml"\n')
    assert "Our filer was away." in perdure("rules", "our-filer", "--config", "perdure.toml").out


def test_the_state_directory_may_be_named_as_for_other_commands(perdure: Callable[..., Ran], home: Path) -> None:
    assert perdure("rules", "disk-full", "--state", str(home)).out == perdure("rules", "disk-full").out


def test_a_name_that_is_not_known_is_answered_with_those_like_it(perdure: Callable[..., Ran]) -> None:
    ran = perdure("rules", "port-bussy")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith("rule 'port-bussy': no rule has that name. Use one of: port-busy")


def test_a_name_that_is_like_no_other_is_answered_with_where_they_are_listed(perdure: Callable[..., Ran]) -> None:
    complaint = perdure("rules", "nosuch").complaint
    assert complaint == "rule 'nosuch': no rule has that name. List all of them: perdure rules."


def test_the_card_names_a_command_that_works(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "a.log").write_text("OSError: [Errno 98] Address already in use\n")
    (line,) = [line for line in perdure("why", "a.log").out.splitlines() if "rules port-busy" in line]
    assert perdure(*line.split()[-2:]).code == 0
