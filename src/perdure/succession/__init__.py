"""Keeping work running past its walltime: when to submit the successor of a running link, and the chain that does it."""
