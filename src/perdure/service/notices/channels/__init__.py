"""The ways in which people are told; each is one file, and one line in `registry`."""
