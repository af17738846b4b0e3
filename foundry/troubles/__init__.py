"""What stands in a program's way, by name: a port that is taken, a full disk, a server that fails, a signal."""

from foundry.troubles import disks, locks, memory, network, processes
from foundry.troubles.setting import Trouble, none, told

TROUBLES: dict[str, Trouble] = {
    "": none,
    "told": told,
    **network.TROUBLES,
    **locks.TROUBLES,
    **processes.TROUBLES,
    **disks.TROUBLES,
    **memory.TROUBLES,
}
