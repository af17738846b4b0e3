"""When to submit the successor of a running link: planners behind one protocol, one file each."""
