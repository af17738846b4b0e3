"""Scheduling policies, one file each, and placements: who runs, and where."""
