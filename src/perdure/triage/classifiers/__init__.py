"""Models that say how a failure leans, each made by a classifier of one protocol."""
