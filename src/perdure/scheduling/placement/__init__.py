"""Placements, one a file: on which nodes a gang gets its GPUs."""
