"""The HTTP API, the pages and what stands before them."""
