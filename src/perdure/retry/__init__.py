"""From a verdict and the history to a decision: retry elsewhere, stop, or one probing retry."""
