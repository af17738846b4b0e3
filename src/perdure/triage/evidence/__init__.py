"""What lines and facts prove: the rules, where they match, and what stands against or beside a match."""
