"""Replays a `JobTable` under scheduling and retry policies; failures; metrics."""
