"""A resource manager in memory, on virtual time, that loses, delays and duplicates messages on demand."""

from perdure.backends.simulated.backend import FaultPlan, SimulatedBackend
from perdure.backends.simulated.cluster import EVERY, Script, SimulatedCluster

__all__ = ["EVERY", "FaultPlan", "Script", "SimulatedBackend", "SimulatedCluster"]
