"""The embedded cluster: a small real resource manager whose nodes are virtual and whose jobs are real processes.

It exists so that everything Perdure does can be tried, shown and tested on one machine without a scheduler:
jobs queue, start as gangs, write logs, fail, are preempted, reach their walltime; nodes die, freeze and thaw.

Its limits are named, not hidden: all tasks run as the user who started it (a job's `user` is a label), GPUs are
numbers in ``CUDA_VISIBLE_DEVICES``, and a task that leaves its session (``setsid``) is out of its reach.
"""

from perdure.backends.local.client import LocalBackend
from perdure.backends.local.control import start_daemon, stop_daemon
from perdure.backends.local.spec import JobSpec

__all__ = ["JobSpec", "LocalBackend", "start_daemon", "stop_daemon"]
