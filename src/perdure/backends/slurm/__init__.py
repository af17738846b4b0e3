"""Slurm through its own command-line tools, versions 22.05 to 26.05, with text formats only.

`backend` is what the rest of Perdure uses. `tools` runs the programs; `records` and `accounting` read what
``scontrol`` and ``sacct`` print, and trust no text of a user's; `picture` makes jobs and attempts of both; `plans`
decides what to tell Slurm for an action; `spool` hears what Slurm's hooks drop.
"""
