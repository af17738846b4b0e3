"""Localisation: which components are to blame for the failures of one window."""

from perdure.blame.registry import localise

__all__ = ["localise"]
