"""How the journal's schema came to be, one file a change, run by Alembic when the journal is opened."""
