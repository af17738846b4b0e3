"""When a job will start: queue state and history to a distribution of the wait."""
