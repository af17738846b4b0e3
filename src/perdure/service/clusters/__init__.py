"""Many clusters on one PostgreSQL: which of them this controller serves, a process each, and the page of all."""
