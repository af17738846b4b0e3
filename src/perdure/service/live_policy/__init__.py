"""The scheduling policy in force: what it has done, its worker, and the switch."""
