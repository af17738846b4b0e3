"""The failure table: what an operator may rely on, row by row, on a real Slurm."""

from tests.slurm.table.dependencies import DEPENDENCIES
from tests.slurm.table.ends import ENDS
from tests.slurm.table.hostile import HOSTILE
from tests.slurm.table.logs import LOGS
from tests.slurm.table.manager import MANAGER
from tests.slurm.table.nodes import NODES
from tests.slurm.table.owners import OWNERS
from tests.slurm.table.row import Row
from tests.slurm.table.scheduling import SCHEDULING
from tests.slurm.table.shared import SHARED
from tests.slurm.table.structure import STRUCTURE

GROUPS = (LOGS, ENDS, OWNERS, STRUCTURE, DEPENDENCIES, NODES, SCHEDULING, MANAGER, SHARED, HOSTILE)
ROWS: tuple[Row, ...] = tuple(row for group in GROUPS for row in group.rows)
