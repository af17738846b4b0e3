"""Slurm's own way to schedule: multifactor priority, the main pass, and backfill with reservations."""
