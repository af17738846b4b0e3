"""Localisation: which components are to blame for the failures of one window."""
