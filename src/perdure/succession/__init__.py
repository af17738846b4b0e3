"""Keeping work running past its walltime: a chain of jobs, and when to submit the successor of its running link."""
