"""One reader a trace format, each to a `JobTable`; and a generator of traces."""
