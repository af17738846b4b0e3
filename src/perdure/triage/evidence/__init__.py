"""What lines and facts prove: the rules, where they match, and what speaks against a match or goes with it."""
