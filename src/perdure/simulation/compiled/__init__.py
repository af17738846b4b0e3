"""The event loop for the common policies, compiled by numba (extra `sim`): the same schedules as the plain loop, fast.

Functions here are written in numba's part of Python. State is kept in named tuples of arrays; scalars that change
are arrays of one element. Machine code is cached on disk, so that only the first run on a machine compiles.

Units, everywhere below: a *row* is a job, numbered in the order of submit; times are whole *ticks*
(`Workload.ticks_per_s` of them a second); service is in ticks, or in GPU-ticks where it
counts GPUs; -1 stands for no row, no node and no fault, and 0 for no share and no place in a heap, whose entries count
from 1.

Three rules keep numba's code right, and are not checked by it:

- nothing is allocated in a kernel: every array is made before the first event, as long as it can ever get;
- an index is never out of bounds, which numba does not look after (``NUMBA_DISABLE_JIT=1`` does);
- what is read from a short field (`SHORT`) and then changes in a loop is made an ``np.int64`` first, or numba would
  compile the loop for two types.
"""
