"""Login by a reverse proxy that names its users in a header."""
