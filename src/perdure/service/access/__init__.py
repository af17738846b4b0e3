"""Who asks, and what they may: tokens, sessions, peers, a proxy's word."""
