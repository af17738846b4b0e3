"""Builders: observations of one kind, as rows, to a window."""
