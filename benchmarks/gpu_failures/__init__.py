"""Logs of programs that really failed on a GPU, with their truths, and the programs."""
