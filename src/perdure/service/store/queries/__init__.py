"""What is read from the journal to be shown: SQL in, frozen dataclasses out. Every answer is bounded."""
