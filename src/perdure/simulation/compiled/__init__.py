"""The event loop for the common policies, compiled by numba (extra `sim`): the same schedules as the plain loop, fast.

Functions here are written in numba's part of Python. State is kept in named tuples of arrays; scalars that change
are arrays of one element. Machine code is cached on disk, so that only the first run on a machine compiles.
"""
