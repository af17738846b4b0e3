"""Learning while the service runs: what was read of failures, how their retries ended, and the model in use."""
