"""From a log and the facts around it to a verdict: why it failed, and whether a retry would help."""
