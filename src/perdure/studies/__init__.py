"""`perdure study`: published experiments repeated, and planners measured on a trace; nothing else needs this part."""
