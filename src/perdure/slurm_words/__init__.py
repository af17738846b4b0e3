"""The words of Slurm in one place: states, reasons, durations, resources (TRES) and lists of hosts."""
