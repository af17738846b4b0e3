"""The HTTP API, the pages and what is before them."""
