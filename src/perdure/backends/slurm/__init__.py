"""Slurm through its own command-line tools."""
