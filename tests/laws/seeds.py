"""How many seeds each law is tried on: few in a run of all tests, any number by `make laws N=300`."""

import os

SEEDS = range(int(os.environ.get("LAWS_SEEDS", "6")))
