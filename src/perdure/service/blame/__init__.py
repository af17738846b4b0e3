"""Who is to blame, kept up to date while the service runs."""
