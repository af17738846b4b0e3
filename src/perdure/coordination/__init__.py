"""Each failure is one exception with one owner of its recovery."""
