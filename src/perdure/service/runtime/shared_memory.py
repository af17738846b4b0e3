"""What clusters' processes have in common: imported by the server that they are forked from, for its effect alone.

The collector would touch, and so copy, every page of what is imported and of the compiled rules. Frozen before the fork
all of it stays shared: a process that has only started has 7 MiB of its own in place of 68.
"""

from __future__ import annotations

import psycopg  # noqa: F401  (loaded late elsewhere)
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401

import perdure.backends.slurm.backend
import perdure.service.runtime.cluster_process  # noqa: F401
from perdure.service.workers.gc_tuning import keep_pauses_short
from perdure.triage.evidence.rules import own_rules

own_rules()
keep_pauses_short()
