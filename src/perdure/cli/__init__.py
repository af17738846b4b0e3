"""The command line: one file a command, heavy imports only where a command needs them."""
