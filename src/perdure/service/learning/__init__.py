"""Learning while the service runs: what was read of failures, what came of them, and the model in use."""
