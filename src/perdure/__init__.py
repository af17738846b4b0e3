"""Perdure keeps deep-learning jobs running on shared GPU clusters."""

__version__ = "0.1.0"
