"""The in-job side: incarnation tokens, fencing, and the launcher wrapper `perdure exec`."""
