"""Learning from what happens on a site, without anybody labelling logs by hand."""
