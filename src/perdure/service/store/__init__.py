"""The database: the journal, its tables and migrations, and what pages and API read from it."""
