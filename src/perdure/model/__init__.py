"""Plain data and its invariants: jobs, attempts, nodes, what happened to them, what may be asked for them."""
