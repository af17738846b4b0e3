"""Who may do what: the rules of roles, and what of them was used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class AccessAsked:
    """One thing that somebody wants to do."""

    verb: str
    group: str
    resource: str  # with its part, as "jobs/status"
    namespace: str = ""
    name: str = ""


@dataclass
class AccessRules:
    """By token: the rules of roles for the whole cluster, and those of namespaces. A token without any may do all."""

    rules: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)  # namespace ("" is all), rule
    used: dict[str, set[AccessAsked]] = field(default_factory=dict)

    def grant(self, token: str, namespace: str, rules: Iterable[dict[str, Any]]) -> None:
        self.rules.setdefault(token, []).extend((namespace, rule) for rule in rules)

    def allows(self, token: str, asked: AccessAsked) -> bool:
        """Whether the roles of a token let it."""
        if token not in self.rules:
            return token == ADMIN
        return any(space in ("", asked.namespace) and covers(rule, asked) for space, rule in self.rules[token])

    def note(self, token: str, asked: AccessAsked) -> None:
        self.used.setdefault(token, set()).add(asked)


def covers(rule: dict[str, Any], asked: AccessAsked) -> bool:
    """Whether one rule of a role allows it."""
    names = rule.get("resourceNames")
    return (
        asked.verb in rule.get("verbs", ())
        and asked.group in rule.get("apiGroups", ())
        and asked.resource in rule.get("resources", ())
        and (not names or asked.name in names)
    )
