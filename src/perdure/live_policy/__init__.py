"""A scheduling policy above a resource manager: whose jobs it may touch, in which order they wait, who makes room."""
