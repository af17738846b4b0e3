"""Planners that learn by reinforcement: the environment, what an agent observes, its training, and how it is served."""
