"""Where programs and people reach the chain of exceptions."""
