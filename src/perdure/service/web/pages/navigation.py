"""What the dashboard has to offer: one line a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the navigation."""

    name: str  # as the page's route calls itself
    title: str
    path: str
    icon: str
    for_operators: bool = False


NAVIGATION = (
    Entry("now", "Now", "/", "pulse"),
    Entry("jobs", "Jobs", "/jobs", "list"),
    Entry("nodes", "Nodes", "/nodes", "node"),
    Entry("exceptions", "Exceptions", "/exceptions", "chain"),
    Entry("blame", "Blame", "/blame", "probe"),
    Entry("actions", "Actions", "/actions", "bolt"),
    Entry("notices", "Notices", "/notices", "bell", for_operators=True),
    Entry("whatif", "What if", "/whatif", "fork"),
    Entry("learning", "Learning", "/learning", "leaf"),
)
