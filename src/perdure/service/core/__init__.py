"""What the service decides, purely: no clock, file, socket, process or database."""
