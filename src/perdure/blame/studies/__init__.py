"""Availability studies: what single points of failure and distance to storage cost."""
