"""A site's failure study: what failed for which reason, how often, after how long, and what retries made of it."""
