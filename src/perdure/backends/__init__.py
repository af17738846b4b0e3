"""Resource managers behind one protocol: embedded, Slurm, and simulated."""
