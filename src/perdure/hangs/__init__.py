"""From a program that stands still to the ranks that stopped first."""
