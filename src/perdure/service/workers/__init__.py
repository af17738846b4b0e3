"""The threads that look, judge, act and watch, and what they share."""
