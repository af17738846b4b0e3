"""What the dashboard has to offer: one line a page. `site` takes the routes from the module of that name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A page in the navigation."""

    name: str  # of the page's module, and as its route calls itself
    title: str
    path: str
    icon: str
    for_operators: bool = False


NAVIGATION = (
    NavigationEntry("now", "Now", "/", "pulse"),
    NavigationEntry("jobs", "Jobs", "/jobs", "list"),
    NavigationEntry("waits", "Waits", "/waits", "clock"),
    NavigationEntry("policy", "Policy", "/policy", "order"),
    NavigationEntry("chains", "Chains", "/chains", "swap"),
    NavigationEntry("nodes", "Nodes", "/nodes", "node"),
    NavigationEntry("exceptions", "Exceptions", "/exceptions", "chain"),
    NavigationEntry("blame", "Blame", "/blame", "probe"),
    NavigationEntry("actions", "Actions", "/actions", "bolt"),
    NavigationEntry("notices", "Notices", "/notices", "bell", for_operators=True),
    NavigationEntry("whatif", "What if", "/whatif", "fork"),
    NavigationEntry("speed", "Speed", "/speed", "gauge"),
    NavigationEntry("learning", "Learning", "/learning", "leaf"),
)
